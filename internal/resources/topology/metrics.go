package topology

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	requests, errors   prometheus.Counter
	duration           prometheus.Histogram
	aligned, unaligned *prometheus.CounterVec
}

func newMetrics() metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	vector := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"scope", "boundary"})
	}
	return metrics{
		requests: counter(metricRequests, "Number of pod admissions that the topology manager handled"),
		errors:   counter(metricErrors, "Number of pod admissions that the topology manager rejected"),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    metricDuration,
			Help:    "Duration in milliseconds of a pod admission by the topology manager",
			Buckets: prometheus.ExponentialBuckets(.05, 2, 15),
		}),
		aligned: vector(metricAligned,
			"Number of containers and pods whose compute resources are aligned to the boundary"),
		unaligned: vector(metricUnaligned,
			"Number of containers and pods whose compute resources could not be aligned to the boundary"),
	}
}

// CountAligned counts whether the resources of a container are aligned to a boundary that is required.
func (m *Manager) CountAligned(boundary string, ok bool) {
	if ok {
		m.metrics.aligned.WithLabelValues(ScopeContainer, boundary).Inc()
	} else {
		m.metrics.unaligned.WithLabelValues(ScopeContainer, boundary).Inc()
	}
}

// InitAligned creates the series of the alignment counters for the given boundaries. With the static CPU manager policy
// upstream has them from the start.
func (m *Manager) InitAligned(kept, missed []string) {
	for _, b := range kept {
		m.metrics.aligned.WithLabelValues(ScopeContainer, b)
	}
	for _, b := range missed {
		m.metrics.unaligned.WithLabelValues(ScopeContainer, b)
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.errors, m.duration, m.aligned, m.unaligned}
}

// Describe implements prometheus.Collector.
func (m *Manager) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.metrics.collectors() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *Manager) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.metrics.collectors() {
		c.Collect(ch)
	}
}
