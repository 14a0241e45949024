package app

import (
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/node/podresources"
	"keelson/internal/pods/pod"
	"keelson/internal/resources/cpu"
	"keelson/internal/resources/device"
)

// buildPodResources builds what tells programs of the node who has which devices and
// CPUs for himself.
func (a *agent) buildPodResources() {
	cfg := podresources.Config{Socket: filepath.Join(a.cfg.Flags.RootDir, podresources.Socket), Log: a.log,
		Pods: a.holders, Pod: a.holder,
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
	var pods []*v1.Pod
	if a.cfg.Gates.Enabled("KubeletPodResourcesListUseActivePods") {
		for _, p := range a.allocation.Account() {
			if p.Name != "" { // its source has spoken
				pods = append(pods, p)
			}
		}
		return pods
	}
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
	g := podresources.Given{Devices: shownDevices(a.devices.Held(uid, container))}
	if cpus, own := a.cpus.Of(uid, container); own {
		g.CPUs = cpus.List()
	}
	return g
}

// giveable is what containers can have for themselves.
func (a *agent) giveable() podresources.Given {
	g := podresources.Given{Devices: shownDevices(a.devices.All())}
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
