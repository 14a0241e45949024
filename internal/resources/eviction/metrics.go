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
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: metricEvictions,
			Help: "Cumulative number of pod evictions by eviction signal",
		}, label),
		statsAge: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    metricStatsAge,
			Help:    "Time between when stats are collected, and when pod is evicted based on those stats by eviction signal",
			Buckets: prometheus.DefBuckets,
		}, label),
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

func (m *metrics) countEviction(s Signal) { m.evictions.WithLabelValues(string(s)).Inc() }

func (m *metrics) observeStatsAge(s Signal, d time.Duration) {
	m.statsAge.WithLabelValues(string(s)).Observe(d.Seconds())
}
