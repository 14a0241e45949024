package cpu

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/cpuset"

	"keelson/internal/host/machine"
)

// Alignment boundaries, as named by the metrics.
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
		requests:  counter(metricRequests, "Number of container allocations that required exclusive CPUs"),
		errors:    counter(metricErrors, "Number of container allocations that required exclusive CPUs and failed"),
		shared:    gauge(metricShared, "Size of the shared CPU pool, without the reserved CPUs, in millicores"),
		exclusive: gauge(metricExclusive, "Number of CPUs that are allocated exclusively to containers"),
		perNode: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: metricPerNode,
			Help: "Number of exclusively allocated CPUs by NUMA node",
		},
			[]string{"numa_node"}),
	}
}

// updateMetrics sets the gauges from the assignments.
func (p *Manager) updateMetrics() {
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

// OnAligned sets [Config.CountAligned]. It is called before the first container is allocated CPUs.
func (p *Manager) OnAligned(f func(boundary string, ok bool)) { p.cfg.CountAligned = f }

// countAligned counts whether the container's CPUs are aligned to the boundaries that the options require.
func (p *Manager) countAligned(set cpuset.CPUSet) {
	if p.cfg.Options.FullCores {
		p.cfg.CountAligned(BoundaryCore, p.layout.cores(set).Equals(set))
	}
	if p.cfg.Options.ByCache {
		fewest := (set.Size() + p.layout.perCache() - 1) / p.layout.perCache()
		p.cfg.CountAligned(BoundaryCache, len(p.layout.parts(set.List(), cache)) == fewest)
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.errors, m.shared, m.exclusive, m.perNode}
}

// Describe implements prometheus.Collector.
func (p *Manager) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range p.metrics.collectors() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (p *Manager) Collect(ch chan<- prometheus.Metric) {
	for _, c := range p.metrics.collectors() {
		c.Collect(ch)
	}
}
