package access

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// calls counts reviews by the HTTP status of the response.
type calls struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newCalls(total, duration string) calls {
	label := []string{"code"}
	return calls{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: total,
			Help: "Number of HTTP requests partitioned by status code.",
		}, label),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    duration,
			Help:    "Request latency in seconds. Broken down by status code.",
			Buckets: []float64{0.25, 0.5, 0.7, 1, 1.5, 3, 5, 10},
		}, label),
	}
}

func (c calls) count(call func() error) error {
	start := time.Now()
	err := call()
	code := "<error>"
	var status apierrors.APIStatus
	switch {
	case err == nil:
		code = "201" // status of a successful review
	case errors.As(err, &status) && status.Status().Code != 0:
		code = strconv.Itoa(int(status.Status().Code))
	}
	c.total.WithLabelValues(code).Inc()
	c.duration.WithLabelValues(code).Observe(time.Since(start).Seconds())
	return err
}

// Values of the label status.
const (
	statusHit      = "hit"
	statusMiss     = "miss"
	statusOK       = "ok"
	statusError    = "error"
	statusBlocked  = "blocked"   // waiting for a review
	statusInFlight = "in_flight" // reviews in progress
)

// lookups are the metrics of the token cache. Nil counts nothing.
type lookups struct {
	requests, fetches *prometheus.CounterVec
	duration          *prometheus.HistogramVec
	active            *prometheus.GaugeVec
}

func newLookups() *lookups {
	label := []string{"status"}
	return &lookups{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: metricTokenRequests,
			Help: "Number of token authentications by cache result",
		}, label),
		fetches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: metricTokenFetches,
			Help: "Number of token reviews by result",
		}, label),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    metricTokenDuration,
			Help:    "Duration in seconds of token authentications by cache result",
			Buckets: prometheus.DefBuckets,
		}, label),
		active: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: metricTokenActive,
			Help: "Number of token reviews in flight and of requests that wait for one",
		}, label),
	}
}

func (l *lookups) collectors() []prometheus.Collector {
	return []prometheus.Collector{l.requests, l.fetches, l.duration, l.active}
}

// Describe implements prometheus.Collector.
func (l *lookups) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range l.collectors() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (l *lookups) Collect(ch chan<- prometheus.Metric) {
	for _, c := range l.collectors() {
		c.Collect(ch)
	}
}

func (l *lookups) observeLookup(known bool, took time.Duration) {
	if l == nil {
		return
	}
	status := statusMiss
	if known {
		status = statusHit
	}
	l.requests.WithLabelValues(status).Inc()
	l.duration.WithLabelValues(status).Observe(took.Seconds())
}

func (l *lookups) countFetch(err error) {
	if l == nil {
		return
	}
	status := statusOK
	if err != nil {
		status = statusError
	}
	l.fetches.WithLabelValues(status).Inc()
}

// during increments a gauge until the returned function is called.
func (l *lookups) during(status string) (end func()) {
	if l == nil {
		return func() {}
	}
	g := l.active.WithLabelValues(status)
	g.Inc()
	return g.Dec
}

func register(r prometheus.Registerer, collectors ...prometheus.Collector) error {
	if r == nil {
		return nil
	}
	for _, c := range collectors {
		if err := r.Register(c); err != nil {
			return fmt.Errorf("register access metrics: %w", err)
		}
	}
	return nil
}
