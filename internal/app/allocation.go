package app

import (
	"errors"
	"os"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	featuretypes "k8s.io/component-helpers/nodedeclaredfeatures/types"

	"keelson/internal/pods/admission"
	"keelson/internal/pods/allocation"
	"keelson/internal/pods/pod"
	"keelson/internal/runtime/cri"
)

// buildAllocation builds who judges pods, and who keeps what they were granted.
func (a *agent) buildAllocation() {
	k, gates := &a.cfg.Kubelet, a.cfg.Gates
	a.rules = admission.Rules{AllowedUnsafeSysctls: k.AllowedUnsafeSysctls, PodLevelResources: gates.Enabled("PodLevelResources"), AppArmor: appArmorHost(), Managers: a.reserveFor}
	if v, err := utilversion.ParseGeneric(a.machine.Kernel); err != nil {
		a.log.Warn("cannot read kernel version: sysctls that need a minimum version count as unsafe",
			"release", a.machine.Kernel, "err", err)
	} else {
		a.rules.Kernel = v
	}
	if gates.Enabled("NodeDeclaredFeatures") {
		a.rules.Version = a.semantic()
	}
	inPlace := gates.Enabled("InPlacePodVerticalScaling")
	a.allocation = allocation.New(allocation.Config{
		Dir: a.cfg.Flags.RootDir, Judge: a.admit, SecondLook: a.secondLook, MakeRoom: a.makeRoom,
		Release: a.resources.Release, TakeOver: a.takeOver,
		Evict: func(uid types.UID, grace time.Duration, reason, message, disruption string) {
			a.syncer.Preempt(uid, grace, reason, message, disruption)
		},
		Arrivals: a.arrivals,
		Unheard:  a.unheard,
		Vacate: func() {
			if a.desired.Ready() { // else the pod may belong to a source that has not synced yet
				a.resources.Prune(a.takesUp)
			}
		},
		Rules: allocation.Rules{
			InPlace:        inPlace,
			InitContainers: inPlace && gates.Enabled("InPlacePodVerticalScalingInitContainers"),
			PodLevel:       inPlace && gates.Enabled("InPlacePodLevelResourcesVerticalScaling"),
			StaticCPU:      k.CPUManagerPolicy == "static" && !gates.Enabled("InPlacePodVerticalScalingExclusiveCPUs"),
			StaticMemory:   k.MemoryManagerPolicy == "Static" && !gates.Enabled("InPlacePodVerticalScalingExclusiveMemory"),
			MaySwap:        func(p *v1.Pod, c *v1.Container) bool { return a.runner.MaySwap(p, c) },
		},
		Events: a.events, OnChange: a.wake, Log: a.log, Now: time.Now,
	})
	a.metrics.MustRegister(a.allocation)
}

// takesUp reports whether a pod may have something of the node: it is wanted, or it runs.
func (a *agent) takesUp(uid types.UID) bool {
	_, _, known := a.desired.Get(uid)
	return known || a.unheard(uid)
}

// unheard reports whether a pod of which no source has told takes up the node. Once
// all have spoken it is an orphan, of which only what still runs does.
func (a *agent) unheard(uid types.UID) bool {
	if _, _, known := a.desired.Get(uid); known {
		return false
	}
	if !a.desired.Ready() {
		return a.runs(uid)
	}
	have, read := a.observed.Get(uid)
	return !read || have.Live()
}

// runs reports whether the runtime holds anything of the pod; what could not be
// read yet counts.
func (a *agent) runs(uid types.UID) bool {
	have, read := a.observed.Get(uid)
	return !read || !have.Empty()
}

// arrivals are the pods that could be judged now: those that run, and those whose
// turn it is.
func (a *agent) arrivals(skip func(types.UID) bool) []allocation.Arrival {
	var out []allocation.Arrival
	for _, uid := range a.desired.UIDs() {
		if skip(uid) {
			continue
		}
		p, _, known := a.desired.Get(uid)
		if !known || pod.IsTerminal(p) && !pod.IsStatic(p) {
			continue
		}
		if running := a.runs(uid); running || admission.Admissible(p) && a.syncer.MayClaim(p) {
			out = append(out, allocation.Arrival{Pod: p, Running: running})
		}
	}
	return out
}

// makeRoom names who has to end so that a critical pod can run.
func (a *agent) makeRoom(p *v1.Pod, others []*v1.Pod, r *allocation.Rejection) ([]*v1.Pod, error) {
	if !strings.HasPrefix(r.Reason, admission.ReasonOutOf) {
		return nil, nil
	}
	return a.rules.Preempt(a.admissionInput(a.node.Node(), p, others))
}

// semantic is the agent's version for comparisons; nil if it cannot be compared.
func (a *agent) semantic() *utilversion.Version {
	v, err := utilversion.ParseSemantic(a.cfg.Version)
	if err != nil {
		a.log.Warn("cannot compare features by the version of this agent", "version", a.cfg.Version, "err", err)
		return nil
	}
	return v
}

// declaredFeatures are those that the node shows for schedulers to see.
func (a *agent) declaredFeatures(runtime cri.Status) []string {
	v := a.semantic()
	if v == nil || !a.cfg.Gates.Enabled("NodeDeclaredFeatures") {
		return nil
	}
	return nodedeclaredfeatures.DefaultFramework.DiscoverNodeFeatures(&featuretypes.NodeConfiguration{FeatureGates: a.cfg.Gates, Version: v,
		RuntimeFeatures: featuretypes.RuntimeFeatures{UserNamespacesHostNetwork: runtime.UserNamespacesHostNetwork}})
}

// appArmorHost says why the host cannot enforce AppArmor profiles; nil if it can.
func appArmorHost() error {
	on, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	if err != nil || !strings.HasPrefix(string(on), "Y") {
		return errors.New("AppArmor is not enabled on the host")
	}
	return nil
}
