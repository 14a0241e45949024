package app

import (
	"context"
	"maps"
	"net"

	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/node/node"
	"keelson/internal/resources/device"
	"keelson/internal/resources/machine"
	"keelson/internal/resources/topology"
)

// buildDevices builds who gives devices of plugins to containers.
func (a *agent) buildDevices(ctx context.Context) error {
	dir, err := devicePluginDir(a.cfg.Flags.RootDir)
	if err != nil {
		return err
	}
	layout, err := machine.ReadLayout(a.host(), a.machine)
	if err != nil {
		return err
	}
	var nodes topology.Nodes
	for _, n := range layout.Nodes {
		nodes |= topology.NodesOf(n.ID)
	}
	cfg := device.Config{Dir: dir, Nodes: nodes, Booted: bootTime(), Running: func() (map[types.UID]bool, error) { return a.podsThatRun(ctx) }, Events: a.events, Log: a.log,
		Health: a.cfg.Gates.Enabled("ResourceHealthStatus"), OnNode: a.node.Poke, OnPod: a.devicesChanged,
		Wait: a.cfg.Own.DevicePluginRegistrationTimeout, OnWait: func() { a.syncer.WakeAll() }}
	if s := a.links.Sockets; s != nil {
		cfg.Listen, cfg.Dial = s.Listen, s.Dial
	}
	a.devices = device.New(cfg)
	a.metrics.MustRegister(a.devices)
	return nil
}

// devicesRecorded reports whether an earlier agent has recorded devices of plugins on this disk.
func (a *agent) devicesRecorded() (bool, error) {
	dir, err := devicePluginDir(a.cfg.Flags.RootDir)
	if err != nil {
		return false, err
	}
	return device.Recorded(dir)
}

// devicesChanged has a pod looked at whose devices are better or worse than they were.
// One that nobody looks after may be long gone: of that its traces tell, which are
// looked for once all pods are known.
func (a *agent) devicesChanged(uid types.UID) {
	if a.syncer.Knows(uid) {
		a.wake(uid)
	}
}

// nodeDevices are the devices that the node shows.
func (a *agent) nodeDevices() node.Devices {
	there, well, gone := a.devices.Amounts()
	d := node.Devices{Capacity: amounts(there), Allocatable: amounts(well)}
	for _, name := range gone {
		d.Gone = append(d.Gone, v1.ResourceName(name))
	}
	return d
}

func amounts(of map[string]int) v1.ResourceList {
	list := v1.ResourceList{}
	for name, n := range of {
		list[v1.ResourceName(name)] = *apiresource.NewQuantity(int64(n), apiresource.DecimalSI)
	}
	return list
}

// withDevices is what pods can have with the devices that are healthy at this moment, which the node shows later, and
// with the extended resources of which the node shows none, unless a device plugin offers them: no pod can have these.
func (a *agent) withDevices(allocatable v1.ResourceList, shown v1.ResourceList) v1.ResourceList {
	_, well, _ := a.devices.Amounts()
	maps.Copy(allocatable, amounts(well))
	for name, q := range shown {
		if _, known := allocatable[name]; !known && q.IsZero() {
			allocatable[name] = q
		}
	}
	return allocatable
}

// Sockets are where programs of the node and the agent find each other.
type Sockets struct {
	Listen func(path string) (net.Listener, error)
	Dial   func(ctx context.Context, path string) (net.Conn, error)
}
