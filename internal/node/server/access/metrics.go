package access

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// calls counts questions to the API server by the HTTP status of the answer.
type calls struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newCalls(total, duration string) calls {
	label := []string{"code"}
	return calls{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{Name: total, Help: "Number of HTTP requests partitioned by status code."}, label),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: duration, Help: "Request latency in seconds. Broken down by status code.",
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
		code = "201" // what a review that was made is answered with
	case errors.As(err, &status) && status.Status().Code != 0:
		code = strconv.Itoa(int(status.Status().Code))
	}
	c.total.WithLabelValues(code).Inc()
	c.duration.WithLabelValues(code).Observe(time.Since(start).Seconds())
	return err
}

// The statuses under which look-ups are counted.
const (
	statusHit      = "hit"
	statusMiss     = "miss"
	statusOK       = "ok"
	statusError    = "error"
	statusBlocked  = "blocked"   // those who wait for an answer
	statusInFlight = "in_flight" // questions that are being asked
)

// lookups counts how often a memo knew, and what it asked. Nil counts nothing.
type lookups struct {
	requests, fetches *prometheus.CounterVec
	duration          *prometheus.HistogramVec
	active            *prometheus.GaugeVec
}

func newLookups() *lookups {
	label := []string{"status"}
	return &lookups{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricTokenRequests, Help: "Tokens that were looked up, by whether the answer was known"}, label),
		fetches:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricTokenFetches, Help: "Tokens that the API server was asked about"}, label),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: metricTokenDuration, Help: "Seconds until a token was known", Buckets: prometheus.DefBuckets}, label),
		active:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: metricTokenActive, Help: "Questions about tokens under way, and those who wait for the answer"}, label),
	}
}

func (l *lookups) all() []prometheus.Collector {
	return []prometheus.Collector{l.requests, l.fetches, l.duration, l.active}
}

// Describe makes the lookups a collector.
func (l *lookups) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range l.all() {
		c.Describe(ch)
	}
}

func (l *lookups) Collect(ch chan<- prometheus.Metric) {
	for _, c := range l.all() {
		c.Collect(ch)
	}
}

func (l *lookups) asked(known bool, took time.Duration) {
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

func (l *lookups) fetched(err error) {
	if l == nil {
		return
	}
	status := statusOK
	if err != nil {
		status = statusError
	}
	l.fetches.WithLabelValues(status).Inc()
}

// during counts one more of a kind until what it returns is called.
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
