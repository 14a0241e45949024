package device

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	registrations *prometheus.CounterVec
	allocations   *prometheus.HistogramVec
}

func newMetrics() metrics {
	label := []string{"resource_name"}
	return metrics{
		registrations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: metricRegistrations,
			Help: "Cumulative number of device plugin registrations. Broken down by resource name.",
		}, label),
		allocations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    metricAllocations,
			Help:    "Duration in seconds to serve a device plugin Allocation request. Broken down by resource name.",
			Buckets: prometheus.DefBuckets,
		}, label),
	}
}

// Describe implements prometheus.Collector.
func (p *Manager) Describe(ch chan<- *prometheus.Desc) {
	p.metrics.registrations.Describe(ch)
	p.metrics.allocations.Describe(ch)
}

// Collect implements prometheus.Collector.
func (p *Manager) Collect(ch chan<- prometheus.Metric) {
	p.metrics.registrations.Collect(ch)
	p.metrics.allocations.Collect(ch)
}
