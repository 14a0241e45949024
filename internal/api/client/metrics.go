package client

import (
	"context"
	"math"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/metrics"
)

// restMetrics are the metrics of client-go. It reports them through global hooks, which can be set once, so there is
// one set of metrics per process.
var restMetrics = sync.OnceValue(func() *clientMetrics {
	m := newClientMetrics()
	metrics.Register(metrics.RegisterOpts{
		ClientCertExpiry:             m,
		ClientCertRotationAge:        rotationAge{m},
		RequestLatency:               latency{m.duration},
		RateLimiterLatency:           latency{m.limiter},
		RequestSize:                  size{m.requestSize},
		ResponseSize:                 size{m.responseSize},
		RequestResult:                m,
		RequestRetry:                 m,
		ExecPluginCalls:              calls{m},
		TransportCacheEntries:        m,
		TransportCreateCalls:         created{m},
		TransportCertRotationGCCalls: m.rotations(),
		TransportCAReloads:           reloads{m},
	})
	return m
})

// Metrics returns the metrics of client-go.
func Metrics() []prometheus.Collector { return restMetrics().collectors() }

type clientMetrics struct {
	duration, limiter         *prometheus.HistogramVec
	requestSize, responseSize *prometheus.HistogramVec
	requests, retries         *prometheus.CounterVec
	execCalls                 *prometheus.CounterVec
	rotation                  prometheus.Histogram
	ttl                       prometheus.Collector
	entries                   prometheus.Gauge
	creates, caReloads        *prometheus.CounterVec
	collected                 prometheus.Counter

	mu     sync.Mutex
	expiry time.Time // zero: no certificate is managed by a plugin
}

func newClientMetrics() *clientMetrics {
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    name,
			Help:    help,
			Buckets: buckets,
		}, []string{"verb", "host"})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	seconds := []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}
	bytes := []float64{64, 256, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20}
	const minute, hour, day = 60, 3600, 86400
	m := &clientMetrics{
		duration: histogram(metricRequestDuration, "Request latency in seconds by verb and host", seconds),
		limiter: histogram(metricLimiterDuration,
			"Client side rate limiter latency in seconds by verb and host", seconds),
		requestSize:  histogram(metricRequestSize, "Request size in bytes by verb and host", bytes),
		responseSize: histogram(metricResponseSize, "Response size in bytes by verb and host", bytes),
		requests: counters(metricRequests,
			"Number of HTTP requests by status code, method and host", "code", "method", "host"),
		retries: counters(metricRetries,
			"Number of request retries by status code, method and host", "code", "method", "host"),
		execCalls: counters(metricExecCalls,
			"Number of calls of the exec credential plugin by exit code and call status", "code", "call_status"),
		rotation: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: metricRotationAge,
			Help: "Lifetime in seconds of client certificates of the exec credential plugin before their rotation",
			Buckets: []float64{
				10 * minute, 30 * minute, hour, 4 * hour, day, 7 * day, 30 * day, 90 * day, 180 * day, 360 * day,
				4 * 360 * day,
			},
		}),
		entries: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: metricTransports,
			Help: "Number of transports in client-go's cache",
		}),
		creates: counters(metricTransportCreates, "Number of requested transports by cache result", "result"),
		caReloads: counters(metricCAReloads, "Number of reloads of server CAs by result and reason",
			"result", "reason"),
		collected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: metricRotationsEnded,
			Help: "Number of certificate rotations that ended because their transport was garbage collected",
		}),
	}
	m.ttl = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: metricPluginTTL,
		Help: "Shortest time in seconds until a client certificate of the exec credential plugin expires; +Inf without any",
	}, func() float64 {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.expiry.IsZero() {
			return math.Inf(1)
		}
		return time.Until(m.expiry).Seconds()
	})
	return m
}

func (m *clientMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.duration, m.limiter, m.requestSize, m.responseSize, m.requests, m.retries, m.execCalls, m.rotation, m.ttl,
		m.entries, m.creates, m.caReloads, m.collected,
	}
}

// Set implements metrics.ExpiryMetric.
func (m *clientMetrics) Set(expiry *time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expiry = time.Time{}
	if expiry != nil {
		m.expiry = *expiry
	}
}

// Increment implements metrics.ResultMetric.
func (m *clientMetrics) Increment(_ context.Context, code, method, host string) {
	m.requests.WithLabelValues(code, method, host).Inc()
}

// IncrementRetry implements metrics.RetryMetric.
func (m *clientMetrics) IncrementRetry(_ context.Context, code, method, host string) {
	m.retries.WithLabelValues(code, method, host).Inc()
}

// Observe implements metrics.TransportCacheMetric.
func (m *clientMetrics) Observe(n int) { m.entries.Set(float64(n)) }

func (m *clientMetrics) rotations() counted { return counted{m.collected} }

type counted struct{ prometheus.Counter }

func (c counted) Increment() { c.Inc() }

type latency struct{ *prometheus.HistogramVec }

func (l latency) Observe(_ context.Context, verb string, u url.URL, took time.Duration) {
	l.WithLabelValues(verb, u.Host).Observe(took.Seconds())
}

type size struct{ *prometheus.HistogramVec }

func (s size) Observe(_ context.Context, verb, host string, bytes float64) {
	s.WithLabelValues(verb, host).Observe(bytes)
}

type rotationAge struct{ *clientMetrics }

func (r rotationAge) Observe(age time.Duration) { r.rotation.Observe(age.Seconds()) }

type calls struct{ *clientMetrics }

func (c calls) Increment(exitCode int, status string) {
	c.execCalls.WithLabelValues(strconv.Itoa(exitCode), status).Inc()
}

type created struct{ *clientMetrics }

func (c created) Increment(result string) { c.creates.WithLabelValues(result).Inc() }

type reloads struct{ *clientMetrics }

func (r reloads) Increment(result, reason string) { r.caReloads.WithLabelValues(result, reason).Inc() }
