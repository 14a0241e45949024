package app

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/resources/cgroup"
	"keelson/internal/resources/machine"
	"keelson/internal/resources/stats"
)

// buildStats builds what tells how much node and pods use.
func (a *agent) buildStats() {
	k := &a.cfg.Kubelet
	c := stats.Config{NodeName: a.cfg.NodeName, Machine: a.machine, Host: machine.Host(), Runtime: a.runtime, Pods: a.podsInRuntime,
		FromRuntime: a.cfg.Gates.Enabled("PodAndContainerStatsFromCRI"), RootDir: a.cfg.Flags.RootDir, PodLogsDir: k.PodLogsDir, Log: a.log,
		System: map[string]string{"kubelet": k.KubeletCgroups, "runtime": a.cfg.Flags.RuntimeCgroups, "misc": k.SystemCgroups}}
	groups, err := cgroup.Detect()
	if err != nil {
		a.log.Warn("cannot find control groups; usage of the node is told without them", "err", err)
		groups = cgroup.Hierarchies{}
	}
	c.Groups = groups
	c.Volumes, c.RefreshVolumes = a.volumeFigures, a.volumes.Refresh
	if a.cgroups != nil {
		c.Tree = a.cgroups
	}
	if c.System["kubelet"] == "" {
		c.System["kubelet"] = groups.Own()
	}
	a.stats = stats.New(c)
	provider := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubelet_metrics_provider", Help: "Where usage of pods and containers is read: control groups, or the runtime"}, []string{"provider"})
	provider.WithLabelValues(a.stats.Provider()).Set(1)
	version := prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_cgroup_version", Help: "Version of control groups on this machine"})
	version.Set(1)
	if groups.V2() {
		version.Set(2)
	}
	a.metrics.MustRegister(provider, version)
}

// volumeFigures are what the pod's volumes were last seen to hold.
func (a *agent) volumeFigures(uid types.UID) []stats.Volume {
	have := a.volumes.Stats(uid)
	out := make([]stats.Volume, len(have))
	for i, f := range have {
		out[i] = stats.Volume{Name: f.Volume, Claim: f.Claim, At: f.At, Ephemeral: f.Local,
			Capacity: f.Capacity, Available: f.Available, Used: f.Used, Inodes: f.Inodes, InodesFree: f.InodesFree, InodesUsed: f.InodesUsed}
		if f.Health != nil {
			out[i].Abnormal = &f.Health.Abnormal
		}
	}
	return out
}

// podsInRuntime are the pods that the runtime holds something of.
func (a *agent) podsInRuntime() []stats.Pod {
	var out []stats.Pod
	for _, uid := range a.observed.UIDs() {
		have, ok := a.observed.Get(uid)
		if !ok {
			continue
		}
		spec, _, _ := a.desired.Get(uid)
		out = append(out, stats.Pod{Spec: spec, Have: have})
	}
	return out
}
