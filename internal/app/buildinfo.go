package app

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"keelson/internal/config"
	"keelson/internal/node/apiclient"
	"keelson/internal/node/panics"
)

// component registers what every component of a cluster tells of itself: what it
// was built from, which gates are on, the Go runtime, the process, its calls.
func component(r prometheus.Registerer, cfg *config.Config) {
	r.MustRegister(nodeName(cfg.NodeName),
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsAll)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo(cfg), gates(cfg.Gates),
		// Nothing is hidden or switched off: every metric that there is is shown.
		prometheus.NewCounter(prometheus.CounterOpts{Name: "disabled_metrics_total", Help: "Metrics that were switched off"}),
		prometheus.NewCounter(prometheus.CounterOpts{Name: "hidden_metrics_total", Help: "Metrics that are hidden because they are deprecated"}))
	r.MustRegister(apiclient.Metrics()...)
	r.MustRegister(panics.Metrics())
}

func buildInfo(cfg *config.Config) prometheus.Collector {
	b := cfg.Build()
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubernetes_build_info", Help: "What this program was built from, as labels", ConstLabels: prometheus.Labels{
		"major": b.Major, "minor": b.Minor, "git_version": b.GitVersion, "git_commit": b.GitCommit, "git_tree_state": b.GitTreeState,
		"build_date": b.BuildDate, "go_version": b.GoVersion, "compiler": b.Compiler, "platform": b.Platform}})
	g.Set(1)
	return g
}

func gates(all config.Gates) prometheus.Collector {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubernetes_feature_enabled", Help: "Whether a feature is on, with how mature it is"}, []string{"name", "stage"})
	for _, gate := range all.Sorted() {
		v := 0.0
		if gate.Enabled {
			v = 1
		}
		g.WithLabelValues(gate.Name, string(gate.Stage)).Set(v)
	}
	return g
}
