package memory

import "github.com/prometheus/client_golang/prometheus"

type metrics struct{ requests, errors prometheus.Counter }

func newMetrics() metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return metrics{counter(metricRequests, "Containers that were to be kept to the memory of NUMA nodes"),
		counter(metricErrors, "Containers that could not be kept to the memory of NUMA nodes")}
}

// Describe makes the Book a collector of its metrics.
func (b *Book) Describe(ch chan<- *prometheus.Desc) {
	b.metrics.requests.Describe(ch)
	b.metrics.errors.Describe(ch)
}

// Collect tells them.
func (b *Book) Collect(ch chan<- prometheus.Metric) {
	b.metrics.requests.Collect(ch)
	b.metrics.errors.Collect(ch)
}
