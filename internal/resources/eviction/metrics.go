package eviction

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	evictions *prometheus.CounterVec
	statsAge  *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	label := []string{"eviction_signal"}
	m := &metrics{
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricEvictions, Help: "Pods that were ended because the node ran out of something, or because they were over a limit of local storage"}, label),
		statsAge:  prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: metricStatsAge, Help: "How old the measurement was by which a pod was chosen", Buckets: prometheus.DefBuckets}, label),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.evictions, m.statsAge} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register eviction metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) evicted(s Signal) { m.evictions.WithLabelValues(string(s)).Inc() }

func (m *metrics) age(s Signal, d time.Duration) {
	m.statsAge.WithLabelValues(string(s)).Observe(d.Seconds())
}
