package cpu

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/cpuset"

	"keelson/internal/resources/machine"
)

// Boundaries that options promise to keep to, as the metric names them.
const (
	BoundaryCore  = "physical_cpu"
	BoundaryCache = "uncore_cache"
)

type metrics struct {
	requests, errors  prometheus.Counter
	shared, exclusive prometheus.Gauge
	perNode           *prometheus.GaugeVec
}

func newMetrics() metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	return metrics{
		requests:  counter(metricRequests, "Containers that were to have CPUs of their own"),
		errors:    counter(metricErrors, "Containers that could not have the CPUs that they were to have"),
		shared:    gauge(metricShared, "CPUs that are shared, in thousandths"),
		exclusive: gauge(metricExclusive, "CPUs that a container has for itself"),
		perNode: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: metricPerNode, Help: "CPUs of each NUMA node that a container has for itself"},
			[]string{"numa_node"}),
	}
}

// measure tells how many CPUs are whose.
func (p *Pool) measure() {
	if p.cfg.Policy != PolicyStatic {
		return
	}
	own := p.exclusive()
	p.metrics.exclusive.Set(float64(own.Size()))
	p.metrics.shared.Set(float64(1000 * p.shared.Difference(p.reserved).Size()))
	for _, id := range p.layout.ids(node) {
		on := p.layout.filter(own, func(c machine.CPU) bool { return c.Node == id })
		p.metrics.perNode.WithLabelValues(strconv.Itoa(id)).Set(float64(on.Size()))
	}
}

// countAligned tells how well a container's CPUs keep to what the options promise.
func (p *Pool) countAligned(set cpuset.CPUSet) {
	if p.cfg.Options.FullCores {
		p.cfg.Aligned(BoundaryCore, p.layout.cores(set).Equals(set))
	}
	if p.cfg.Options.ByCache {
		fewest := (set.Size() + p.layout.perCache() - 1) / p.layout.perCache()
		p.cfg.Aligned(BoundaryCache, len(p.layout.parts(set.List(), cache)) == fewest)
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.errors, m.shared, m.exclusive, m.perNode}
}

// Describe makes the Pool a collector of its metrics.
func (p *Pool) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range p.metrics.collectors() {
		c.Describe(ch)
	}
}

// Collect tells them.
func (p *Pool) Collect(ch chan<- prometheus.Metric) {
	for _, c := range p.metrics.collectors() {
		c.Collect(ch)
	}
}
