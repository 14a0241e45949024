package dra

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// slow are the bounds of what may take as long as a driver likes.
var slow = prometheus.ExponentialBucketsRange(.1, 40, 15)

type metrics struct {
	operations, calls *prometheus.HistogramVec
}

func newMetrics() metrics {
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: slow}, labels)
	}
	m := metrics{
		operations: histogram(metricOperations, "Seconds that it took to prepare the claims of a pod, or to unprepare them", "operation_name", "is_error"),
		calls:      histogram(metricCalls, "Seconds that calls to drivers took", "driver_name", "method_name", "grpc_status_code"),
	}
	for _, operation := range []string{operationPrepare, operationUnprepare} {
		m.operations.WithLabelValues(operation, "false") // there from the start; upstream counts pods without claims, too
	}
	return m
}

var inUseDesc = prometheus.NewDesc(metricInUse, "Claims that are in use on the node, by driver, and of all drivers", []string{"driver_name"}, nil)

func (m *metrics) called(driver, method string, code codes.Code, took time.Duration) {
	m.calls.WithLabelValues(driver, method, code.String()).Observe(took.Seconds())
}

func (m *metrics) did(operation string, took time.Duration, err error) {
	m.operations.WithLabelValues(operation, strconv.FormatBool(err != nil)).Observe(took.Seconds())
}

// Describe makes the Store a collector of its metrics and of its drivers'.
func (s *Store) Describe(ch chan<- *prometheus.Desc) {
	s.metrics.operations.Describe(ch)
	s.cfg.Drivers.metrics.calls.Describe(ch)
	ch <- inUseDesc
}

// Collect tells them.
func (s *Store) Collect(ch chan<- prometheus.Metric) {
	s.metrics.operations.Collect(ch)
	s.cfg.Drivers.metrics.calls.Collect(ch)
	s.mu.Lock()
	by := map[string]int{anyDriver: len(s.claims)}
	for _, c := range s.claims {
		for name := range c.drivers {
			by[name]++
		}
	}
	s.mu.Unlock()
	for name, n := range by {
		ch <- prometheus.MustNewConstMetric(inUseDesc, prometheus.GaugeValue, float64(n), name)
	}
}
