package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	"keelson/internal/pods/admission"
	"keelson/internal/pods/pod"
	"keelson/internal/resources/cpu"
	"keelson/internal/resources/machine"
	"keelson/internal/resources/resource"
	"keelson/internal/resources/topology"
)

// host is the machine as its files describe it.
func (a *agent) host() fs.FS {
	if a.links.Machine != nil {
		return a.links.Machine
	}
	return machine.Host()
}

// buildResources builds those who hand out what only one container can have.
func (a *agent) buildResources(ctx context.Context) error {
	k := &a.cfg.Kubelet
	layout, err := machine.ReadLayout(a.host(), a.machine)
	if err != nil {
		return err
	}
	rules, err := a.topologyRules(layout)
	if err != nil {
		return err
	}
	if err := a.buildCPUs(ctx, layout, rules.Policy); err != nil {
		return err
	}
	if err := a.buildMemory(ctx, layout); err != nil {
		return err
	}
	providers := []resource.Provider{a.devices, a.cpus, a.memory}
	a.resources = resource.New(resource.Config{Rules: rules, Scope: k.TopologyManagerScope, Providers: providers, Log: a.log, Now: time.Now})
	if k.CPUManagerPolicy == cpu.PolicyStatic {
		a.resources.ShowAligned([]string{cpu.BoundaryCore, cpu.BoundaryCache}, []string{cpu.BoundaryCore})
	}
	a.metrics.MustRegister(a.resources, a.cpus, a.memory)
	return nil
}

// buildCPUs builds who hands out CPUs, and who keeps running containers to them.
func (a *agent) buildCPUs(ctx context.Context, layout machine.Layout, policy topology.Policy) error {
	k, gates := &a.cfg.Kubelet, a.cfg.Gates
	options, err := cpu.ParseOptions(k.CPUManagerPolicy, k.CPUManagerPolicyOptions,
		cpu.Stages{Beta: gates.Enabled("CPUManagerPolicyBetaOptions"), Alpha: gates.Enabled("CPUManagerPolicyAlphaOptions")})
	if err != nil {
		return fmt.Errorf("new %s policy error: %w", k.CPUManagerPolicy, err)
	}
	named, err := cpuset.Parse(k.ReservedSystemCPUs)
	if err != nil {
		return fmt.Errorf("read reservedSystemCPUs: %w", err)
	}
	if online := onlineCPUs(layout); !named.IsSubsetOf(online) {
		return fmt.Errorf("reserved-cpus: %s is not a subset of online-cpus: %s", named, online)
	}
	reserved, known := a.reserved[v1.ResourceCPU]
	if !known && k.CPUManagerPolicy == cpu.PolicyStatic {
		return errors.New("[cpumanager] unable to determine reserved CPU resources for static policy")
	}
	a.cpus, err = cpu.New(cpu.Config{
		Dir: a.cfg.Flags.RootDir, Policy: k.CPUManagerPolicy, Options: options, Machine: layout,
		ReservedCPUs: named, Reserved: reserved.MilliValue(), SingleNode: policy == topology.SingleNUMANode,
		Whose:    a.whose(ctx),
		Running:  func() ([]cpu.Kept, error) { return a.keptToCPUs(ctx) },
		Aligned:  func(boundary string, ok bool) { a.resources.CountAligned(boundary, ok) },
		OnChange: a.moveContainers, Unusable: a.unusable, Log: a.log,
	})
	if err != nil {
		return err
	}
	if k.CPUManagerPolicy != cpu.PolicyStatic {
		return nil
	}
	a.mover = cpu.NewMover(cpu.MoverConfig{
		Pool: a.cpus, Running: a.runningContainers, Period: k.CPUManagerReconcilePeriod.Duration, Log: a.log,
		Update: func(ctx context.Context, id string, cpus cpuset.CPUSet) error {
			return a.runner.KeepToCPUs(ctx, id, cpus.String())
		},
	})
	return nil
}

func onlineCPUs(l machine.Layout) cpuset.CPUSet {
	var ids []int
	for _, c := range l.CPUs {
		ids = append(ids, c.ID)
	}
	return cpuset.New(ids...)
}

// topologyRules are how the node places what containers ask for.
func (a *agent) topologyRules(layout machine.Layout) (topology.Rules, error) {
	k := &a.cfg.Kubelet
	rules := topology.Rules{Policy: topology.Policy(k.TopologyManagerPolicy)}
	if rules.Policy == topology.None {
		return rules, nil
	}
	options, err := topology.ParseOptions(k.TopologyManagerPolicyOptions)
	if err != nil {
		return rules, err
	}
	unknown := func(n machine.Node) bool { return len(n.Distances) == 0 }
	if options.Closest && slices.ContainsFunc(layout.Nodes, unknown) {
		return rules, errors.New("cannot discover NUMA topology: error getting NUMA distances from cadvisor")
	}
	if n := len(layout.Nodes); n > options.MostNodes {
		return rules, fmt.Errorf("unsupported on machines with more than %d NUMA Nodes", options.MostNodes)
	}
	distance := map[[2]int]int{}
	for _, from := range layout.Nodes {
		rules.Nodes |= topology.NodesOf(from.ID)
		for i, to := range layout.Nodes {
			if i < len(from.Distances) {
				distance[[2]int{from.ID, to.ID}] = from.Distances[i]
			}
		}
	}
	if options.Closest {
		rules.Distance = func(a, b int) int { return distance[[2]int{a, b}] }
	}
	return rules, nil
}

// whose finds out which container of which pod has one of the runtime's IDs. All are
// listed when the first is asked for.
func (a *agent) whose(ctx context.Context) cpu.Whose {
	var all map[string]*runtimeapi.Container
	return func(id string) (types.UID, string, bool) {
		if all == nil {
			all = map[string]*runtimeapi.Container{}
			resp, err := a.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
			if err != nil {
				a.log.Warn("cannot tell whose CPUs a state of old names", "err", err)
			}
			for _, c := range resp.GetContainers() {
				all[c.Id] = c
			}
		}
		c, known := all[id]
		return types.UID(c.GetLabels()[pod.LabelPodUID]), c.GetLabels()[pod.LabelContainerName], known
	}
}

// runningContainers are those that the runtime was last seen to run.
func (a *agent) runningContainers() []cpu.Running {
	var out []cpu.Running
	for _, uid := range a.observed.UIDs() {
		have, _ := a.observed.Get(uid)
		for _, c := range have.Containers {
			if c.State == pod.StateRunning {
				out = append(out, cpu.Running{UID: uid, Container: c.Name, ID: c.ID})
			}
		}
	}
	return out
}

// moveContainers has running containers kept to the CPUs that they may be on.
func (a *agent) moveContainers() {
	if a.mover != nil {
		a.mover.Poke()
	}
}

// unlimitedCPUs reports whether the container's CPUs are its own, so that a quota
// would only stall it.
func (a *agent) unlimitedCPUs(p *v1.Pod, c *v1.Container) bool {
	_, own := a.cpus.Of(p.UID, c.Name)
	return own && a.cfg.Gates.Enabled("DisableCPUQuotaWithExclusiveCPUs")
}

// hasOwnCPUs reports whether any container of the pod has CPUs of its own, as
// unlimitedCPUs does.
func (a *agent) hasOwnCPUs(p *v1.Pod) bool {
	for kind, c := range pod.Containers(p) {
		if kind != pod.Ephemeral && a.unlimitedCPUs(p, c) {
			return true
		}
	}
	return false
}

// reserveFor has what the pod asks for reserved, or says why it cannot be had.
func (a *agent) reserveFor(p *v1.Pod) *admission.Rejection {
	if no := a.resources.Admit(p); no != nil {
		return &admission.Rejection{Reason: no.Reason, Message: no.Message}
	}
	return nil
}

// takeOver has what a pod asks for reserved that runs already. One that has ended
// or is to end needs nothing new.
func (a *agent) takeOver(p *v1.Pod) {
	if have, read := a.observed.Get(p.UID); read && have.Live() && admission.Admissible(p) {
		a.resources.TakeOver(p)
	}
}
