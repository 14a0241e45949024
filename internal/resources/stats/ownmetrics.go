package stats

import "github.com/prometheus/client_golang/prometheus"

// Metrics returns the metrics about how the Collector measures.
func (c *Collector) Metrics(cgroupV2 bool) []prometheus.Collector {
	provider := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubelet_metrics_provider",
		Help: "1 for the provider of pod and container stats: cadvisor (cgroups) or cri",
	}, []string{"provider"})
	provider.WithLabelValues(c.Provider()).Set(1)
	version := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubelet_cgroup_version",
		Help: "cgroup version on the hosts.",
	})
	version.Set(1)
	if cgroupV2 {
		version.Set(2)
	}
	return []prometheus.Collector{provider, version}
}
