package dra

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// slow are the histogram buckets for calls to drivers.
var slow = prometheus.ExponentialBucketsRange(.1, 40, 15)

type metrics struct {
	operations, calls *prometheus.HistogramVec
}

func newMetrics() metrics {
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: slow}, labels)
	}
	m := metrics{
		operations: histogram(metricOperations,
			"Latency histogram in seconds for the duration of handling all ResourceClaims of a pod",
			"operation_name", "is_error"),
		calls: histogram(metricCalls, "Duration in seconds of the DRA gRPC operations",
			"driver_name", "method_name", "grpc_status_code"),
	}
	for _, operation := range []string{operationPrepare, operationUnprepare} {
		// from the start, because upstream also counts pods without claims
		m.operations.WithLabelValues(operation, "false")
	}
	return m
}

var inUseDesc = prometheus.NewDesc(metricInUse,
	"Number of ResourceClaims that are in use on the node, by driver and in total", []string{"driver_name"}, nil)

func (m *metrics) observeCall(driver, method string, code codes.Code, took time.Duration) {
	m.calls.WithLabelValues(driver, method, code.String()).Observe(took.Seconds())
}

func (m *metrics) observeOperation(operation string, took time.Duration, err error) {
	m.operations.WithLabelValues(operation, strconv.FormatBool(err != nil)).Observe(took.Seconds())
}

// Describe implements prometheus.Collector. It includes the metrics of the drivers.
func (s *Manager) Describe(ch chan<- *prometheus.Desc) {
	s.metrics.operations.Describe(ch)
	s.cfg.Drivers.metrics.calls.Describe(ch)
	ch <- inUseDesc
}

// Collect implements prometheus.Collector.
func (s *Manager) Collect(ch chan<- prometheus.Metric) {
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
