package observed

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"keelson/internal/pods/pod"
)

// metrics are those that are not computed from the cache at a scrape.
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
		relist: histogram(metricRelist,
			"Duration in seconds of listing the sandboxes and containers of the container runtime (relist)"),
		interval: histogram(metricInterval, "Interval in seconds between two relists of the container runtime"),
		podRead: histogram(metricPodRead,
			"Duration in seconds of reading the state of one pod from the container runtime"),
		latency: histogram(metricLatency,
			"Latency in seconds from the creation of a CRI event to its arrival at the kubelet"),
		dropped: counter(metricDropped,
			"Cumulative number of CRI events that were dropped because too many of one pod were queued; the pod is read "+
				"instead"),
		broken: counter(metricBroken, "Cumulative number of CRI event streams that broke or could not be opened"),
	}
}

var (
	descRunningPods       = prometheus.NewDesc(metricRunningPods, "Number of pods that have a ready sandbox", nil, nil)
	descRunningContainers = prometheus.NewDesc(metricRunningContainers,
		"Number of containers in the container runtime, by state",
		[]string{"container_state"}, nil)
	descLastSeen = prometheus.NewDesc(metricLastSeen,
		"Timestamp in seconds of the last successful relist of the container runtime", nil, nil)
	descStood = prometheus.NewDesc(metricStood,
		"Cumulative number of CRI event streams that were established and used", nil, nil)
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

// Collect counts the observed sandboxes and containers.
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

// tally counts the cache's content for a scrape.
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
