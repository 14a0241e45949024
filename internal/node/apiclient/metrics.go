package apiclient

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

// The client library reports to hooks of the process, which can be set once. So
// its metrics belong to the process, and not to one Client.
var restMetrics = sync.OnceValue(func() *clientMetrics {
	m := newClientMetrics()
	metrics.Register(metrics.RegisterOpts{
		ClientCertExpiry: m, ClientCertRotationAge: rotationAge{m},
		RequestLatency: latency{m.duration}, RateLimiterLatency: latency{m.limiter},
		RequestSize: size{m.requestSize}, ResponseSize: size{m.responseSize}, RequestResult: m, RequestRetry: m, ExecPluginCalls: calls{m},
		TransportCacheEntries: m, TransportCreateCalls: created{m}, TransportCertRotationGCCalls: m.rotations(), TransportCAReloads: reloads{m},
	})
	return m
})

// Metrics are those of calls to API servers.
func Metrics() []prometheus.Collector { return restMetrics().all() }

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
	expiry time.Time // zero: no plugin manages a certificate
}

func newClientMetrics() *clientMetrics {
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{"verb", "host"})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	seconds := []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}
	bytes := []float64{64, 256, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20}
	const minute, hour, day = 60, 3600, 86400
	m := &clientMetrics{
		duration:     histogram(metricRequestDuration, "Seconds that requests took, by verb and host", seconds),
		limiter:      histogram(metricLimiterDuration, "Seconds that requests waited for their turn, by verb and host", seconds),
		requestSize:  histogram(metricRequestSize, "Bytes of requests, by verb and host", bytes),
		responseSize: histogram(metricResponseSize, "Bytes of answers, by verb and host", bytes),
		requests:     counters(metricRequests, "HTTP requests, by status code, method and host", "code", "method", "host"),
		retries:      counters(metricRetries, "Requests that were tried again, by status code, method and host", "code", "method", "host"),
		execCalls:    counters(metricExecCalls, "Calls of the credential plugin, by exit code and how the call went", "code", "call_status"),
		rotation: prometheus.NewHistogram(prometheus.HistogramOpts{Name: metricRotationAge, Help: "Seconds that client certificates of the credential plugin lived before the next",
			Buckets: []float64{10 * minute, 30 * minute, hour, 4 * hour, day, 7 * day, 30 * day, 90 * day, 180 * day, 360 * day, 4 * 360 * day}}),
		entries:   prometheus.NewGauge(prometheus.GaugeOpts{Name: metricTransports, Help: "Transports in the client library's cache"}),
		creates:   counters(metricTransportCreates, "Transports that were asked for, by how they were had", "result"),
		caReloads: counters(metricCAReloads, "Times that the authority of a server was read again", "result", "reason"),
		collected: prometheus.NewCounter(prometheus.CounterOpts{Name: metricRotationsEnded, Help: "Certificate rotations that ended because nobody used their transport any more"}),
	}
	m.ttl = prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: metricPluginTTL, Help: "Seconds until the first client certificate of the credential plugin expires; +Inf without any"}, func() float64 {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.expiry.IsZero() {
			return math.Inf(1)
		}
		return time.Until(m.expiry).Seconds()
	})
	return m
}

func (m *clientMetrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.duration, m.limiter, m.requestSize, m.responseSize, m.requests, m.retries, m.execCalls, m.rotation, m.ttl, m.entries, m.creates, m.caReloads, m.collected}
}

// Set is told when the plugin's certificate expires.
func (m *clientMetrics) Set(expiry *time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expiry = time.Time{}
	if expiry != nil {
		m.expiry = *expiry
	}
}

// Increment counts a request.
func (m *clientMetrics) Increment(_ context.Context, code, method, host string) {
	m.requests.WithLabelValues(code, method, host).Inc()
}

// IncrementRetry counts a request that is tried again.
func (m *clientMetrics) IncrementRetry(_ context.Context, code, method, host string) {
	m.retries.WithLabelValues(code, method, host).Inc()
}

// Observe is told how many transports there are.
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
