package cgroup

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// NewMetrics registers the durations of operations on pods' cgroups. The function that it returns observes one; see
// [Config.Observe].
func NewMetrics(r prometheus.Registerer) func(operation string, took time.Duration) {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "kubelet_cgroup_manager_duration_seconds",
		Help:    "Duration in seconds of operations on cgroups of pods, by operation",
		Buckets: prometheus.DefBuckets,
	}, []string{"operation_type"})
	r.MustRegister(h)
	return func(operation string, took time.Duration) { h.WithLabelValues(operation).Observe(took.Seconds()) }
}
