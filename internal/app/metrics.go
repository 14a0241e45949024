package app

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"keelson/internal/runtime/cri"
)

// nodeName tells scrapers which node this is.
func nodeName(name string) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_node_name", Help: "The name of this node, as a label", ConstLabels: prometheus.Labels{"node": name}})
	g.Set(1)
	return g
}

// sinceStart shows of the process when it was started, and no more.
type sinceStart struct{ prometheus.Gatherer }

func (s sinceStart) Gather() ([]*dto.MetricFamily, error) {
	all, err := s.Gatherer.Gather()
	return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool {
		return strings.HasPrefix(f.GetName(), "process_") && f.GetName() != "process_start_time_seconds"
	}), err
}

// losingSupport is the release of the agent that will refuse runtimes which do
// not tell their cgroup driver.
const losingSupport = "1.37.0"

// runtimeAgeing tells operators that the runtime is too old for a coming release.
func runtimeAgeing() prometheus.Collector {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubelet_cri_losing_support",
		Help: "1 if the container runtime lacks what the release named by the label will need"}, []string{"version"})
	g.WithLabelValues(losingSupport).Set(1)
	return g
}

// runtimeMetrics counts the calls to the runtime under upstream's names.
func runtimeMetrics(r prometheus.Registerer) func(method string, took time.Duration, err error) {
	label := []string{"operation_type"}
	total := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_runtime_operations_total",
		Help: "Cumulative number of runtime operations by operation type."}, label)
	failed := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_runtime_operations_errors_total",
		Help: "Cumulative number of runtime operation errors by operation type."}, label)
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_runtime_operations_duration_seconds",
		Help: "Duration in seconds of runtime operations. Broken down by operation type.",
		// 5 ms to about 31 minutes
		Buckets: prometheus.ExponentialBuckets(.005, 2.5, 14)}, label)
	r.MustRegister(total, failed, duration)
	return func(method string, took time.Duration, err error) {
		op := cri.OperationType(method)
		total.WithLabelValues(op).Inc()
		duration.WithLabelValues(op).Observe(took.Seconds())
		if err != nil {
			failed.WithLabelValues(op).Inc()
		}
	}
}

// cgroupMetrics measures changes to the pods' control groups.
func cgroupMetrics(r prometheus.Registerer) func(operation string, took time.Duration) {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_cgroup_manager_duration_seconds",
		Help: "Seconds that operations on control groups of pods took, by operation", Buckets: prometheus.DefBuckets}, []string{"operation_type"})
	r.MustRegister(h)
	return func(operation string, took time.Duration) { h.WithLabelValues(operation).Observe(took.Seconds()) }
}
