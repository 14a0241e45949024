package record

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics count the checks and the files.
type metrics struct {
	checks           *prometheus.CounterVec
	intents, records prometheus.Gauge
	memory           []prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) (metrics, error) {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Subsystem: "kubelet_imagemanager", Name: name, Help: help})
	}
	m := metrics{
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: "kubelet_imagemanager",
			Name:      "image_mustpull_checks_total",
			Help:      "Cumulative number of checks whether a pod may use an image that is present, by result",
		}, []string{"result"}),
		intents: gauge("ondisk_pullintents", "Number of image pull intents on disk"),
		records: gauge("ondisk_pulledrecords", "Number of image pull records on disk"),
		// Dashboards use these metrics to detect a full cache. Here everything is in memory without
		// a bound, so they stay at zero.
		memory: []prometheus.Gauge{
			gauge("inmemory_pullintents_usage_percent",
				"Usage of the in-memory cache for image pull intents in percent; always 0, since the cache is unbounded"),
			gauge("inmemory_pulledrecords_usage_percent",
				"Usage of the in-memory cache for image pull records in percent; always 0, since the cache is unbounded"),
		},
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.checks, m.intents, m.records, m.memory[0], m.memory[1]} {
		if err := r.Register(c); err != nil {
			return m, fmt.Errorf("register metrics of pull records: %w", err)
		}
	}
	return m, nil
}
