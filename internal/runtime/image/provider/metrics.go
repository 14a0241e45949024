package provider

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the metrics of plugin runs.
type metrics struct {
	seconds *prometheus.HistogramVec
	errors  *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) (metrics, error) {
	label := []string{"plugin_name"}
	m := metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: "kubelet",
			Name:      "credential_provider_plugin_duration",
			Help:      "Duration in seconds of credential provider plugin runs",
			Buckets:   prometheus.DefBuckets,
		}, label),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: "kubelet",
			Name:      "credential_provider_plugin_errors_total",
			Help:      "Cumulative number of failed credential provider plugin runs",
		}, label),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.seconds, m.errors} {
		if err := r.Register(c); err != nil {
			return m, fmt.Errorf("register credential provider metrics: %w", err)
		}
	}
	return m, nil
}

func (m metrics) ran(name string, took time.Duration, err error) {
	m.seconds.WithLabelValues(name).Observe(took.Seconds())
	if err != nil {
		m.errors.WithLabelValues(name).Inc()
	}
}
