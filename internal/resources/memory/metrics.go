package memory

import "github.com/prometheus/client_golang/prometheus"

type metrics struct{ requests, errors prometheus.Counter }

func newMetrics() metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return metrics{
		requests: counter(metricRequests, "Number of container allocations that required pinning to NUMA nodes"),
		errors: counter(metricErrors,
			"Number of container allocations that required pinning to NUMA nodes and failed"),
	}
}

// Describe implements prometheus.Collector.
func (b *Manager) Describe(ch chan<- *prometheus.Desc) {
	b.metrics.requests.Describe(ch)
	b.metrics.errors.Describe(ch)
}

// Collect implements prometheus.Collector.
func (b *Manager) Collect(ch chan<- prometheus.Metric) {
	b.metrics.requests.Collect(ch)
	b.metrics.errors.Collect(ch)
}
