package observed

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"keelson/internal/pods/pod"
)

// metrics are what cannot be told from the cache at the moment of a scrape.
type metrics struct {
	relist   prometheus.Histogram
	interval prometheus.Histogram
	podRead  prometheus.Histogram
	latency  prometheus.Histogram
	dropped  prometheus.Counter
	broken   prometheus.Counter
}

func newMetrics() metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help})
	}
	return metrics{
		relist:   histogram(metricRelist, "Seconds that listing the container runtime took"),
		interval: histogram(metricInterval, "Seconds between lists of the container runtime"),
		podRead:  histogram(metricPodRead, "Seconds that reading one pod from the container runtime took"),
		latency:  histogram(metricLatency, "Seconds from an event of the container runtime to its arrival"),
		dropped:  counter(metricDropped, "Events that were not looked at one by one because there were too many of a pod"),
		broken:   counter(metricBroken, "Event streams of the container runtime that broke or could not be opened"),
	}
}

var (
	descRunningPods       = prometheus.NewDesc(metricRunningPods, "Pods that have a ready sandbox", nil, nil)
	descRunningContainers = prometheus.NewDesc(metricRunningContainers, "Containers that the runtime holds, by state", []string{"container_state"}, nil)
	descLastSeen          = prometheus.NewDesc(metricLastSeen, "When the container runtime was last listed, in seconds since the epoch", nil, nil)
	descStood             = prometheus.NewDesc(metricStood, "Event streams of the container runtime that could be relied on", nil, nil)
)

// Describe makes the Cache a collector of its metrics.
func (c *Cache) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descRunningPods, descRunningContainers, descLastSeen, descStood} {
		ch <- d
	}
	for _, m := range c.metrics.collectors() {
		m.Describe(ch)
	}
}

// Collect counts what the runtime was seen to hold.
func (c *Cache) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	t := c.tally(time.Now())
	gauge(descRunningPods, float64(t.pods))
	for state, n := range t.containers {
		gauge(descRunningContainers, float64(n), pod.State(state).String())
	}
	gauge(descLastSeen, t.listed)
	ch <- prometheus.MustNewConstMetric(descStood, prometheus.CounterValue, float64(t.streams))
	for _, m := range c.metrics.collectors() {
		m.Collect(ch)
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.relist, m.interval, m.podRead, m.latency, m.dropped, m.broken}
}

// tally is what a scrape counts.
type tally struct {
	pods       int
	containers [pod.StateExited + 1]int // by state
	listed     float64
	streams    int
}

func (c *Cache) tally(now time.Time) tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := tally{streams: c.streams}
	if !c.stream.IsZero() && now.Sub(c.stream) >= steady {
		t.streams++
	}
	if !c.listed.IsZero() {
		t.listed = float64(c.listed.UnixNano()) / float64(time.Second)
	}
	for _, e := range c.pods {
		if _, ok := e.have.ReadySandbox(); ok {
			t.pods++
		}
		for _, ctr := range e.have.Containers {
			t.containers[ctr.State]++
		}
	}
	return t
}
