package podresources

import "github.com/prometheus/client_golang/prometheus"

// metrics count calls, by the version of the service.
type metrics struct {
	calls, list, get, allocatable, getFails *prometheus.CounterVec
	listFails, allocatableFails             *prometheus.CounterVec // without series, because these calls cannot fail
}

func newMetrics() metrics {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: name,
			Help: help + " Broken down by server api version.",
		}, []string{labelVersion})
	}
	return metrics{
		calls: counter(metricCalls, "Cumulative number of requests to the PodResource endpoint."),
		list:  counter(metricList, "Number of requests to the PodResource List endpoint."),
		get:   counter(metricGet, "Number of requests to the PodResource Get endpoint."),
		allocatable: counter(metricAllocatable,
			"Number of requests to the PodResource GetAllocatableResources endpoint."),
		listFails: counter(metricListFails,
			"Number of requests to the PodResource List endpoint which returned error."),
		getFails: counter(metricGetFails, "Number of requests to the PodResource Get endpoint which returned error."),
		allocatableFails: counter(metricAllocatableFails,
			"Number of requests to the PodResource GetAllocatableResources endpoint which returned error."),
	}
}

func (m metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.calls, m.list, m.get, m.allocatable, m.listFails, m.getFails, m.allocatableFails}
}

// Describe implements prometheus.Collector.
func (s *Server) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range s.metrics.collectors() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (s *Server) Collect(ch chan<- prometheus.Metric) {
	for _, c := range s.metrics.collectors() {
		c.Collect(ch)
	}
}
