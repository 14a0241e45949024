package config

import "github.com/prometheus/client_golang/prometheus"

// Metrics returns the metrics about the build and the feature gates.
func (c *Config) Metrics() []prometheus.Collector {
	return []prometheus.Collector{c.buildInfo(), c.Gates.metrics()}
}

func (c *Config) buildInfo() prometheus.Collector {
	b := c.Build()
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubernetes_build_info",
		Help: "A metric with a constant '1' value labeled by what the program was built from",
		ConstLabels: prometheus.Labels{
			"major":          b.Major,
			"minor":          b.Minor,
			"git_version":    b.GitVersion,
			"git_commit":     b.GitCommit,
			"git_tree_state": b.GitTreeState,
			"build_date":     b.BuildDate,
			"go_version":     b.GoVersion,
			"compiler":       b.Compiler,
			"platform":       b.Platform,
		},
	})
	g.Set(1)
	return g
}

func (g Gates) metrics() prometheus.Collector {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubernetes_feature_enabled",
		Help: "Whether a feature gate is enabled, by name and stage",
	}, []string{"name", "stage"})
	for _, gate := range g.Sorted() {
		enabled := 0.0
		if gate.Enabled {
			enabled = 1
		}
		v.WithLabelValues(gate.Name, string(gate.Stage)).Set(enabled)
	}
	return v
}
