package cri

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// UnsupportedFrom is the release of the agent that will require runtimes to report their cgroup driver.
const UnsupportedFrom = "1.37.0"

// NewUnsupportedMetric returns the metric for a runtime that a later release will not support.
func NewUnsupportedMetric() prometheus.Collector {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubelet_cri_losing_support",
		Help: "1 if the container runtime lacks a feature that the release in the label version will require",
	}, []string{"version"})
	g.WithLabelValues(UnsupportedFrom).Set(1)
	return g
}

// NewMetrics registers the metrics of calls to the runtime. The function that it returns is for [Config.Observe].
func NewMetrics(r prometheus.Registerer) func(method string, took time.Duration, err error) {
	label := []string{"operation_type"}
	total := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubelet_runtime_operations_total",
		Help: "Cumulative number of runtime operations by operation type.",
	}, label)
	failed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubelet_runtime_operations_errors_total",
		Help: "Cumulative number of runtime operation errors by operation type.",
	}, label)
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "kubelet_runtime_operations_duration_seconds",
		Help:    "Duration in seconds of runtime operations. Broken down by operation type.",
		Buckets: prometheus.ExponentialBuckets(.005, 2.5, 14), // 5 ms to about 31 minutes
	}, label)
	r.MustRegister(total, failed, duration)
	return func(method string, took time.Duration, err error) {
		op := OperationType(method)
		total.WithLabelValues(op).Inc()
		duration.WithLabelValues(op).Observe(took.Seconds())
		if err != nil {
			failed.WithLabelValues(op).Inc()
		}
	}
}
