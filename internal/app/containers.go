package app

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"keelson/internal/config/settings"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/podsync/handlers"
	"keelson/internal/pods/probe"
	"keelson/internal/pods/status"
	"keelson/internal/resources/cpu"
	"keelson/internal/runtime/container"
	"keelson/internal/runtime/rotate"
	"keelson/internal/storage/volume"
)

// probeWorkers bounds probes under way at once; most of them wait.
const probeWorkers = 256

// containers act on the containers of pods.
type containers struct {
	runner  *container.Runner
	rotator *rotate.Rotator
	prober  *probe.Prober
	mover   *cpu.Reconciler // nil: all containers may use all CPUs
}

func newContainers(
	g *ground, h *host, r *runtimes, s *apiserver, n *nodes, m *managers, o *objects, v *volume.Manager,
	able handlers.Handlers,
) (*containers, error) {
	c := &containers{}
	var err error
	if c.runner, err = newRunner(g, h, r, s, n, m, o, v, able); err != nil {
		return nil, err
	}
	if c.rotator, err = newRotator(g, r); err != nil {
		return nil, err
	}
	c.prober = probe.New(probe.Config{
		Exec:     probe.NewRuntimeExecutor(r.client),
		Events:   s.events,
		OnChange: g.workers.Wake,
		Workers:  probeWorkers,
		Version:  settings.Version(g.cfg),
		Log:      g.log,
		Now:      time.Now,
	})
	if g.cfg.Kubelet.CPUManagerPolicy == cpu.PolicyStatic {
		runner := c.runner
		c.mover = cpu.NewReconciler(cpu.ReconcilerConfig{
			Pool:    m.cpus,
			Running: func() []cpu.Running { return cpu.RunningIn(r.observed) },
			Update: func(ctx context.Context, id string, cpus cpuset.CPUSet) error {
				return runner.SetCPUs(ctx, id, cpus.String())
			},
			Period: g.cfg.Kubelet.CPUManagerReconcilePeriod.Duration,
			Log:    g.log,
		})
	}
	return c, nil
}

// newRunner creates the runner, which starts and stops containers.
func newRunner(
	g *ground, h *host, r *runtimes, s *apiserver, n *nodes, m *managers, o *objects, v *volume.Manager,
	able handlers.Handlers,
) (*container.Runner, error) {
	cfg := settings.Containers(g.cfg)
	cfg.Runtime, cfg.Events, cfg.Registry = r.client, s.events, g.metrics
	cfg.Node = func() container.NodeFacts {
		return container.NodeFacts{
			Name:        g.cfg.NodeName,
			HostIPs:     n.HostIPTexts(),
			Addresses:   n.Addresses(),
			Allocatable: n.Allocatable(),
			Memory:      int64(h.machine.Memory),
			Swap:        int64(h.machine.Swap),
		}
	}
	cfg.Kernel = container.ReadKernel(g.links.labels() != nil, h.machine.PageSizes())
	cfg.DNS.ClusterDNS = container.ParseClusterDNS(g.cfg.Kubelet.ClusterDNS, g.log)
	cfg.VolumeGroups, cfg.CgroupParent = v.Groups, r.cgroupParent
	cfg.UserNamespace, cfg.RuntimeHandler = able.UserNamespace, s.classes.Handler
	cfg.ExclusiveCPUs, cfg.Processors = m.quotaExempt.Container, g.links.Processors
	cfg.Log, cfg.Now = g.log, time.Now
	if s.client != nil {
		cfg.Objects, cfg.Services = o.store, s.services
	}
	return container.New(cfg)
}

// newRotator creates the rotator of container logs, and registers the metric of their size.
func newRotator(g *ground, r *runtimes) (*rotate.Rotator, error) {
	running := func() []rotate.Log { return rotate.Running(r.observed) }
	g.metrics.MustRegister(rotate.NewUsage(g.cfg.Kubelet.PodLogsDir, running))
	cfg, err := settings.Rotation(&g.cfg.Kubelet)
	if err != nil {
		return nil, err
	}
	cfg.Runtime, cfg.Running, cfg.Known = r.client, running, r.observed.Synced()
	cfg.Log, cfg.Now = g.log, time.Now
	return rotate.New(cfg), nil
}

// probes converts probe results for statuses.
type probes struct{ *probe.Prober }

func (p probes) Result(spec *v1.Pod, c pod.Container) status.Probe {
	r := p.Prober.Result(spec, c)
	return status.Probe{
		Started:        r.Started,
		Ready:          r.Ready,
		StartupFailed:  r.StartupFailed,
		LivenessFailed: r.LivenessFailed,
	}
}
