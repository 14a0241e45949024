package app

import (
	"keelson/internal/resources/cpu"
	"keelson/internal/serve/podresources"
	"keelson/internal/serve/podresources/view"
	"keelson/internal/serve/podsapi"
	"keelson/internal/serve/server/backend"
)

// newPodsAPI creates the server that shows pods to programs of the node; nil if the gate is off.
func newPodsAPI(g *ground, p *pods) *podsapi.Server {
	if !g.Enabled("PodsAPI") {
		return nil
	}
	shown := backend.Pods{Desired: p.desired, Statuses: p.statuses}
	s := podsapi.New(podsapi.Config{
		Socket: g.path(podsapi.Socket),
		Pods:   shown.Pods,
		Pod:    shown.ByUID,
		Log:    g.log,
	})
	g.metrics.MustRegister(s)
	return s
}

// newPodResources creates the server that shows programs of the node which devices, exclusive CPUs and memory each
// container has.
func newPodResources(g *ground, m *managers, p *pods) *podresources.Server {
	v := view.View{
		Desired:   p.desired,
		Devices:   m.devices,
		CPUs:      m.cpus,
		Memory:    m.memory,
		Claims:    m.claims,
		StaticCPU: g.cfg.Kubelet.CPUManagerPolicy == cpu.PolicyStatic,
		Log:       g.log,
	}
	cfg := podresources.Config{
		Socket:    g.path(podresources.Socket),
		Pods:      v.All,
		All:       v.All,
		Pod:       v.Pod,
		Container: v.Container,
		Node:      v.Node,
		Log:       g.log,
	}
	if g.Enabled("KubeletPodResourcesListUseActivePods") {
		cfg.Pods = p.allocation.Account
	}
	if s := g.links.Sockets; s != nil {
		cfg.Listen = s.Listen
	}
	s := podresources.New(cfg)
	g.metrics.MustRegister(s)
	return s
}
