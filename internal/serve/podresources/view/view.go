package view

import (
	"log/slog"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/desired"
	"keelson/internal/pods/pod"
	"keelson/internal/resources/cpu"
	"keelson/internal/resources/device"
	"keelson/internal/resources/dra"
	"keelson/internal/resources/memory"
	"keelson/internal/serve/podresources"
)

// View shows what the managers of resources have allocated.
type View struct {
	Desired   *desired.Store
	Devices   *device.Manager
	CPUs      *cpu.Manager
	Memory    *memory.Manager
	Claims    *dra.Manager
	StaticCPU bool // the policy of the CPU manager is static
	Log       *slog.Logger
}

// All returns the pods of all sources.
func (v View) All() (pods []*v1.Pod) {
	for _, d := range v.Desired.All() {
		pods = append(pods, d.Spec)
	}
	return pods
}

// Pod returns a pod of a source that is not terminal.
func (v View) Pod(namespace, name string) (*v1.Pod, bool) {
	d, ok := v.Desired.ByName(namespace, name)
	if !ok || pod.IsTerminal(d.Spec) {
		return nil, false
	}
	return d.Spec, true
}

// Container returns what is allocated exclusively to a container.
func (v View) Container(uid types.UID, container string) podresources.Resources {
	given := podresources.Resources{
		Devices: shownDevices(v.Devices.Devices(uid, container)),
		Memory:  shownMemory(v.Memory.Of(uid, container)),
	}
	if cpus, own := v.CPUs.CPUs(uid, container); own {
		given.CPUs = cpus.List()
	}
	if p, _, known := v.Desired.Get(uid); known {
		given.Claims = v.claims(p, container)
	}
	return given
}

// claims returns the container's devices from its pod's claims; none before the claims are prepared.
func (v View) claims(p *v1.Pod, container string) (out []podresources.Claim) {
	_, c, ok := pod.Find(p, container)
	if !ok {
		return nil
	}
	held, err := v.Claims.ContainerClaims(p, c)
	if err != nil {
		v.Log.Debug("container lacks a prepared claim",
			"pod", p.Namespace+"/"+p.Name, "containerName", container, "err", err)
	}
	for _, h := range held {
		one := podresources.Claim{Namespace: h.Namespace, Name: h.Name}
		for _, d := range h.Devices {
			one.Devices = append(one.Devices, podresources.ClaimDevice{
				Driver: d.Driver,
				Pool:   d.Pool,
				Name:   d.Name,
				Share:  d.Share,
				CDI:    d.CDI,
			})
		}
		out = append(out, one)
	}
	return out
}

// Node returns what is allocatable to containers.
func (v View) Node() podresources.Resources {
	given := podresources.Resources{
		Devices: shownDevices(v.Devices.Allocatable()),
		Memory:  shownMemory(v.Memory.Allocatable()),
	}
	none := func(m podresources.Memory) bool { return m.Bytes == 0 } // huge pages that the machine does not have
	given.Memory = slices.DeleteFunc(given.Memory, none)
	if v.StaticCPU {
		given.CPUs = v.CPUs.Allocatable().List()
	}
	return given
}

func shownDevices(held []device.AllocatedDevice) (out []podresources.Device) {
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
