package resource

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	requests, errors prometheus.Counter
	duration         prometheus.Histogram
	aligned, askew   *prometheus.CounterVec
}

func newMetrics() metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	vector := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"scope", "boundary"})
	}
	return metrics{
		requests: counter(metricRequests, "Pods whose resources were to be placed on the machine"),
		errors:   counter(metricErrors, "Pods whose resources could not be placed or reserved"),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{Name: metricDuration, Help: "Milliseconds that it took to place a pod's resources",
			Buckets: prometheus.ExponentialBuckets(.05, 2, 15)}),
		aligned: vector(metricAligned, "Containers and pods whose resources are aligned as was promised"),
		askew:   vector(metricAskew, "Containers and pods whose resources could not be aligned as was promised"),
	}
}

// CountAligned counts a container whose resources are aligned to a boundary, or are
// not though they should be.
func (m *Manager) CountAligned(boundary string, ok bool) {
	if ok {
		m.metrics.aligned.WithLabelValues(ScopeContainer, boundary).Inc()
	} else {
		m.metrics.askew.WithLabelValues(ScopeContainer, boundary).Inc()
	}
}

// ShowAligned has counts shown that nobody has counted yet, of containers that keep to
// a boundary and of those that do not: with the static policy upstream shows them
// from the first.
func (m *Manager) ShowAligned(kept, missed []string) {
	for _, b := range kept {
		m.metrics.aligned.WithLabelValues(ScopeContainer, b)
	}
	for _, b := range missed {
		m.metrics.askew.WithLabelValues(ScopeContainer, b)
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.errors, m.duration, m.aligned, m.askew}
}

// Describe makes the Manager a collector of its metrics.
func (m *Manager) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.metrics.all() {
		c.Describe(ch)
	}
}

// Collect tells them.
func (m *Manager) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.metrics.all() {
		c.Collect(ch)
	}
}
