package app

import (
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/node/podresources"
	"keelson/internal/pods/pod"
	"keelson/internal/resources/cpu"
	"keelson/internal/resources/device"
	"keelson/internal/resources/memory"
)

// buildPodResources builds what tells programs of the node who has which devices,
// CPUs and memory for himself.
func (a *agent) buildPodResources() {
	cfg := podresources.Config{Socket: filepath.Join(a.cfg.Flags.RootDir, podresources.Socket), Log: a.log,
		Pods: a.holders, All: a.allPods, Pod: a.holder,
		Container: a.givenTo, Node: a.giveable}
	if s := a.links.Sockets; s != nil {
		cfg.Listen = s.Listen
	}
	a.podResources = podresources.New(cfg)
	a.metrics.MustRegister(a.podResources)
}

// holders are the pods that are told of: those that take up the node or, where the
// gate is off, all that it knows.
func (a *agent) holders() []*v1.Pod {
	if a.cfg.Gates.Enabled("KubeletPodResourcesListUseActivePods") {
		return a.allocation.Account()
	}
	return a.allPods()
}

func (a *agent) allPods() (pods []*v1.Pod) {
	for _, d := range a.desired.All() {
		pods = append(pods, d.Spec)
	}
	return pods
}

func (a *agent) holder(namespace, name string) (*v1.Pod, bool) {
	d, ok := a.desired.ByName(namespace, name)
	if !ok || pod.IsTerminal(d.Spec) {
		return nil, false
	}
	return d.Spec, true
}

// givenTo is what a container has for itself.
func (a *agent) givenTo(uid types.UID, container string) podresources.Given {
	g := podresources.Given{Devices: shownDevices(a.devices.Held(uid, container)), Memory: shownMemory(a.memory.Of(uid, container))}
	if cpus, own := a.cpus.Of(uid, container); own {
		g.CPUs = cpus.List()
	}
	if p, _, known := a.desired.Get(uid); known {
		g.Claims = a.claimsOf(p, container)
	}
	return g
}

// claimsOf is what the container has of its pod's claims; nothing before they are
// prepared.
func (a *agent) claimsOf(p *v1.Pod, container string) (out []podresources.Claim) {
	_, c, ok := pod.Find(p, container)
	if !ok {
		return nil
	}
	held, err := a.claims.Held(p, c)
	if err != nil {
		a.log.Debug("a container does not have its claims", "pod", p.Namespace+"/"+p.Name, "container", container, "err", err)
	}
	for _, h := range held {
		one := podresources.Claim{Namespace: h.Namespace, Name: h.Name}
		for _, d := range h.Devices {
			one.Devices = append(one.Devices, podresources.ClaimDevice{Driver: d.Driver, Pool: d.Pool, Name: d.Name, Share: d.Share, CDI: d.CDI})
		}
		out = append(out, one)
	}
	return out
}

// giveable is what containers can have for themselves.
func (a *agent) giveable() podresources.Given {
	g := podresources.Given{Devices: shownDevices(a.devices.All()), Memory: shownMemory(a.memory.Allocatable())}
	g.Memory = slices.DeleteFunc(g.Memory, func(m podresources.Memory) bool { return m.Bytes == 0 }) // huge pages that there are none of
	if a.cfg.Kubelet.CPUManagerPolicy == cpu.PolicyStatic {
		g.CPUs = a.cpus.Allocatable().List()
	}
	return g
}

func shownDevices(held []device.Held) (out []podresources.Device) {
	for _, h := range held {
		out = append(out, podresources.Device{Resource: h.Resource, ID: h.ID, Nodes: h.Nodes})
	}
	return out
}

func shownMemory(held []memory.Held) (out []podresources.Memory) {
	for _, h := range held {
		out = append(out, podresources.Memory{Type: string(h.Kind), Bytes: h.Bytes, Nodes: h.Nodes})
	}
	return out
}
