package record

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what checks count, and how many files there are.
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
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: "kubelet_imagemanager", Name: "image_mustpull_checks_total",
			Help: "Checks whether a pod may use an image that is there, by the answer"}, []string{"result"}),
		intents: gauge("ondisk_pullintents", "Intents to pull an image on the disk"),
		records: gauge("ondisk_pulledrecords", "Records of pulled images on the disk"),
		// Dashboards watch for a cache that is full and reads the disk instead. Here
		// everything is in memory, without a bound: these stay at zero.
		memory: []prometheus.Gauge{
			gauge("inmemory_pullintents_usage_percent", "How full the room in memory for intents to pull is; there is no bound to it"),
			gauge("inmemory_pulledrecords_usage_percent", "How full the room in memory for records of pulled images is; there is no bound to it"),
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
