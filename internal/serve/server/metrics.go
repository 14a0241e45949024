package server

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

type metrics struct {
	requests   *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	inflight   *prometheus.GaugeVec
	websockets *prometheus.CounterVec
	check      *prometheus.GaugeVec
	checks     *prometheus.CounterVec
}

func newMetrics(r, slis prometheus.Registerer) (metrics, error) {
	labels := []string{"method", "path", "server_type", "long_running"}
	m := metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: metricRequests,
			Help: "Number of the http requests received since the server started",
		}, labels),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: metricDuration,
			Help: "Duration in seconds to serve http requests",
		}, labels),
		inflight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: metricInflight,
			Help: "Number of the inflight http requests",
		}, labels),
		websockets: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: metricWebSocketRequests,
			Help: "Number of streaming requests over WebSockets that the node answered itself",
		}, []string{"subresource"}),
		check: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: metricHealthcheck,
			Help: "This metric records the result of a single healthcheck.",
		}, []string{"name", "type"}),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: metricHealthchecks,
			Help: "This metric records the results of all healthcheck.",
		}, []string{"name", "type", "status"}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.duration, m.inflight, m.websockets} {
		if r == nil {
			break // no metrics endpoint
		}
		if err := r.Register(c); err != nil {
			return m, fmt.Errorf("register server metrics: %w", err)
		}
	}
	for _, c := range []prometheus.Collector{m.check, m.checks} {
		if err := slis.Register(c); err != nil {
			return m, fmt.Errorf("register health metrics: %w", err)
		}
	}
	return m, nil
}

var knownMethods = []string{
	http.MethodConnect, http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodOptions,
	http.MethodPatch, http.MethodPost, http.MethodPut, http.MethodTrace,
}

// instrumented instruments requests. The values of the labels are from a closed set.
func (s *Server) instrumented(serverType string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method := r.Method
		if !slices.Contains(knownMethods, method) {
			method = "other"
		}
		bucket, long := bucketFor(r.URL.Path)
		labels := []string{method, bucket, serverType, strconv.FormatBool(long)}
		s.metrics.requests.WithLabelValues(labels...).Inc()
		inflight := s.metrics.inflight.WithLabelValues(labels...)
		inflight.Inc()
		start := time.Now()
		rec := &recorder{ResponseWriter: w}
		defer func() {
			inflight.Dec()
			took := time.Since(start)
			s.metrics.duration.WithLabelValues(labels...).Observe(took.Seconds())
			// The query is left out, because it contains the command lines of exec.
			s.cfg.Log.Debug("served HTTP request",
				"method", r.Method, "path", r.URL.Path, "status", rec.status, "duration", took, "remote", r.RemoteAddr)
		}()
		next.ServeHTTP(rec, r)
	})
}

func (s *Server) metricsAll() http.HandlerFunc        { return exposition(s.cfg.Metrics) }
func (s *Server) metricsContainers() http.HandlerFunc { return exposition(s.cfg.ContainerMetrics) }
func (s *Server) metricsResource() http.HandlerFunc   { return exposition(s.cfg.ResourceMetrics) }
func (s *Server) metricsProbes() http.HandlerFunc     { return exposition(s.cfg.ProbeMetrics) }
func (s *Server) metricsSLIs() http.HandlerFunc       { return exposition(s.slis) }

// started lets scrapers detect a restart.
var started = time.Now()

// exposition serves the metrics of g, as text or protobuf. OpenMetrics is not offered, because it would add _total to
// the names of counters. A failing collector does not hide the others.
func exposition(g prometheus.Gatherer) http.HandlerFunc {
	if g == nil {
		return nil
	}
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{
		ErrorHandling:    promhttp.ContinueOnError,
		ProcessStartTime: started,
	}).ServeHTTP
}

// StartTimeOnly is a Gatherer without the metrics of the process, except for its start time.
type StartTimeOnly struct{ prometheus.Gatherer }

// Gather omits the metrics process_*, except for process_start_time_seconds.
func (s StartTimeOnly) Gather() ([]*dto.MetricFamily, error) {
	all, err := s.Gatherer.Gather()
	return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool {
		return strings.HasPrefix(f.GetName(), "process_") && f.GetName() != "process_start_time_seconds"
	}), err
}
