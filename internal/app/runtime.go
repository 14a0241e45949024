package app

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/config/settings"
	"keelson/internal/host/cgroup"
	"keelson/internal/pods/observed"
	"keelson/internal/runtime/cri"
	"keelson/internal/runtime/cri/inventory"
)

// runtimes is the container runtime, the cache of what it runs, and the cgroups of pods.
type runtimes struct {
	client   *cri.Client
	identity cri.Identity
	cgroups  *cgroup.Tree // nil: no cgroups per pod
	observed *observed.Cache
	running  inventory.Reader
}

// newRuntimes connects to the container runtime and waits until it answers.
func newRuntimes(ctx context.Context, g *ground, h *host) (*runtimes, error) {
	cfg := settings.Runtime(g.cfg)
	cfg.Observe, cfg.Log = cri.NewMetrics(g.metrics), g.log
	if g.spans != nil {
		cfg.Wrap = g.spans.Calls
	}
	runtime, err := g.links.dialRuntime(cfg)
	if err != nil {
		return nil, err
	}
	r := &runtimes{client: runtime, running: inventory.Reader{Runtime: runtime, Log: g.log}}
	if r.identity, err = runtime.Handshake(ctx); err != nil {
		return nil, err
	}
	g.log.Info("connected to container runtime", "runtime", r.identity.Name, "version", r.identity.Version)
	if r.identity.LacksRuntimeConfig {
		g.metrics.MustRegister(cri.NewUnsupportedMetric())
		g.log.Warn("the container runtime does not report its cgroup driver, so cgroupDriver of the configuration is "+
			"used; a coming release does not support this runtime",
			"cgroupDriver", g.cfg.Kubelet.CgroupDriver, "release", cri.UnsupportedFrom)
	}
	r.observed = observed.New(observed.Config{
		Runtime:  runtime,
		OnChange: g.workers.Observed,
		Log:      g.log,
		Now:      time.Now,
	})
	g.metrics.MustRegister(r.observed)
	if *g.cfg.Kubelet.CgroupsPerQOS {
		r.cgroups, err = newCgroups(g, h, r.identity)
	}
	return r, err
}

// newCgroups creates the cgroup tree of pods.
func newCgroups(g *ground, h *host, runtime cri.Identity) (*cgroup.Tree, error) {
	groups, err := cgroup.Detect()
	if err != nil {
		return nil, err
	}
	if lack := groups.MissingFeature(); lack != "" {
		g.log.Warn("the kernel is too old for cgroup v2", "lacks", lack)
	}
	cfg := settings.Cgroups(&g.cfg.Kubelet, runtime.CgroupDriver, h.machine)
	cfg.Hierarchies, cfg.Observe = groups, cgroup.NewMetrics(g.metrics)
	tree, err := cgroup.New(cfg)
	if err != nil {
		return nil, err
	}
	return tree, tree.CheckRoot() // no pod could run without it
}

// cgroupParent is the cgroup of a pod; empty without cgroups per pod.
func (r *runtimes) cgroupParent(p *v1.Pod) string {
	if r.cgroups == nil {
		return ""
	}
	return r.cgroups.Parent(p)
}
