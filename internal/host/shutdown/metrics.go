package shutdown

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	descStart = prometheus.NewDesc(metricStart, "Last graceful shutdown start time since unix epoch in seconds", nil,
		nil)
	descEnd = prometheus.NewDesc(metricEnd, "Last graceful shutdown end time since unix epoch in seconds", nil, nil)
)

// Describe implements prometheus.Collector.
func (w *Watcher) Describe(ch chan<- *prometheus.Desc) {
	ch <- descStart
	ch <- descEnd
}

// Collect implements prometheus.Collector.
func (w *Watcher) Collect(ch chan<- prometheus.Metric) {
	w.mu.Lock()
	s := w.state
	w.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(descStart, prometheus.GaugeValue, seconds(s.StartTime))
	ch <- prometheus.MustNewConstMetric(descEnd, prometheus.GaugeValue, seconds(s.EndTime))
}

// seconds returns zero for the zero time.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix())
}
