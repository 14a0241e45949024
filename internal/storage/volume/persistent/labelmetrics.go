package persistent

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
)

// Problems with labels: a container's label is invalid, the containers of a pod need different
// labels, or the volume has another one.
const (
	labelContainer = "container"
	labelPod       = "pod_context_mismatch"
	labelVolume    = "volume_context_mismatch"
)

var labelHelp = map[string]string{
	labelContainer: "Number of failures to construct the SELinux label of a container",
	labelPod:       "Number of times containers of a pod required different SELinux labels for the same volume",
	labelVolume:    "Number of times a pod required another SELinux label than the volume is mounted with",
}

// labelMetrics count volumes by their labels. A problem that keeps a pod from starting is an error,
// counted at each attempt. One that would only do so if all volumes were mounted with labels is a
// warning.
type labelMetrics struct {
	errors, warnings map[string]*prometheus.GaugeVec
	admitted         *prometheus.GaugeVec
}

func newLabelMetrics() *labelMetrics {
	mode, both := []string{"access_mode"}, []string{"volume_plugin", "access_mode"}
	gauge := func(name, help string, labels []string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "volume_manager_selinux_" + name + "_total",
			Help: help,
		},
			labels)
	}
	m := &labelMetrics{
		errors:   map[string]*prometheus.GaugeVec{},
		warnings: map[string]*prometheus.GaugeVec{},
		admitted: gauge("volumes_admitted", "Number of volumes mounted with an SELinux label",
			both),
	}
	for what, labels := range map[string][]string{labelContainer: mode, labelPod: mode, labelVolume: both} {
		m.errors[what] = gauge(what+"_errors", labelHelp[what]+"; the pod cannot start", labels)
		m.warnings[what] = gauge(what+"_warnings",
			labelHelp[what]+"; the pod could not start if all volumes were mounted with SELinux labels", labels)
	}
	return m
}

func (m *labelMetrics) all() []prometheus.Collector {
	out := []prometheus.Collector{m.admitted}
	for what, v := range m.errors {
		out = append(out, v, m.warnings[what])
	}
	return out
}

// Describe implements [prometheus.Collector].
func (v *Volumes) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range v.labelled.all() {
		c.Describe(ch)
	}
}

// Collect implements [prometheus.Collector].
func (v *Volumes) Collect(ch chan<- prometheus.Metric) {
	for _, c := range v.labelled.all() {
		c.Collect(ch)
	}
}

// of returns the counters of one volume.
func (m *labelMetrics) of(plugin Plugin, s Spec) *labelCounts {
	c := &labelCounts{m: m, plugin: plugin.Name(), mode: modeName(s)}
	if s.PV.Spec.CSI != nil {
		c.plugin += "/" + s.PV.Spec.CSI.Driver
	}
	return c
}

// labelCounts are the counters of one volume. Nil counts nothing.
type labelCounts struct {
	m            *labelMetrics
	plugin, mode string
}

func (c *labelCounts) admitted() {
	if c != nil {
		c.m.admitted.WithLabelValues(c.plugin, c.mode).Inc()
	}
}

// failed counts a problem, as an error if the pod has to wait.
func (c *labelCounts) failed(what string, waits bool) {
	if c == nil {
		return
	}
	g := c.m.warnings[what]
	if waits {
		g = c.m.errors[what]
	}
	if what == labelVolume {
		g.WithLabelValues(c.plugin, c.mode).Inc()
		return
	}
	g.WithLabelValues(c.mode).Inc()
}

// modeName returns the abbreviation of the broadest access mode.
func modeName(s Spec) string {
	for _, m := range []struct {
		mode v1.PersistentVolumeAccessMode
		name string
	}{{v1.ReadWriteMany, "RWX"}, {v1.ReadOnlyMany, "ROX"}, {v1.ReadWriteOnce, "RWO"}, {v1.ReadWriteOncePod, "RWOP"}} {
		if slices.Contains(s.PV.Spec.AccessModes, m.mode) {
			return m.name
		}
	}
	return ""
}
