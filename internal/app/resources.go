package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"keelson/internal/api/client"
	"keelson/internal/api/node"
	"keelson/internal/config/settings"
	"keelson/internal/host/machine"
	"keelson/internal/resources/cpu"
	"keelson/internal/resources/device"
	"keelson/internal/resources/dra"
	"keelson/internal/resources/memory"
	"keelson/internal/resources/numa"
	"keelson/internal/resources/topology"
	"keelson/internal/resources/userns"
)

// managers allocate what only one container or pod can have: CPUs, memory of NUMA nodes, devices, claimed devices, user
// IDs.
type managers struct {
	users        *userns.Allocator
	devices      *device.Manager
	claims       *dra.Manager
	claimDrivers *dra.Drivers
	claimHealth  *dra.Health // nil: the gate is off
	cpus         *cpu.Manager
	memory       *memory.Manager
	topology     *topology.Manager
	quotaExempt  cpu.QuotaExempt
}

func newManagers(ctx context.Context, g *ground, h *host, r *runtimes, s *apiserver, n *nodes) (*managers, error) {
	m := &managers{}
	var err error
	if m.users, err = newUsers(ctx, g, r); err != nil {
		return nil, err
	}
	layout, err := machine.ReadLayout(g.machineFiles(), h.machine)
	if err != nil {
		return nil, err
	}
	m.devices = newDevices(ctx, g, h, r, s, n, layout)
	m.addClaims(g, s)
	k := &g.cfg.Kubelet
	rules, err := settings.Topology(k, layout)
	if err != nil {
		return nil, err
	}
	if m.cpus, err = newCPUs(ctx, g, h, r, layout, rules.Policy); err != nil {
		return nil, err
	}
	if m.memory, err = newMemory(ctx, g, h, r, n, layout); err != nil {
		return nil, err
	}
	m.topology = topology.New(topology.Config{
		Rules:     rules,
		Scope:     k.TopologyManagerScope,
		Providers: []topology.Provider{m.devices, m.cpus, m.memory},
		Log:       g.log,
		Now:       time.Now,
	})
	m.quotaExempt = cpu.QuotaExempt{Manager: m.cpus, Off: !g.Enabled("DisableCPUQuotaWithExclusiveCPUs")}
	m.cpus.OnAligned(m.topology.CountAligned)
	if k.CPUManagerPolicy == cpu.PolicyStatic {
		m.topology.InitAligned([]string{cpu.BoundaryCore, cpu.BoundaryCache}, []string{cpu.BoundaryCore})
	}
	g.metrics.MustRegister(m.topology, m.cpus, m.memory)
	return m, nil
}

// newUsers creates the allocator of user IDs for pods with a user namespace.
func newUsers(ctx context.Context, g *ground, r *runtimes) (*userns.Allocator, error) {
	perPod := settings.UserIDs(&g.cfg.Kubelet)
	ids, err := userns.NodeIDs(ctx, perPod, int(g.cfg.Kubelet.MaxPods))
	if err != nil {
		return nil, err
	}
	return userns.New(userns.Config{
		PodsDir: g.path("pods"),
		IDs:     ids,
		PerPod:  perPod,
		Recover: func(uid types.UID) (userns.Range, bool) {
			first, count, found := r.running.UserNamespace(ctx, uid)
			return userns.Range{First: first, Count: count}, found
		},
		OnCorrupt: g.badFiles.Report,
		Log:       g.log,
	})
}

// newDevices creates the device manager.
func newDevices(
	ctx context.Context, g *ground, h *host, r *runtimes, s *apiserver, n *nodes, layout machine.Layout,
) *device.Manager {
	var numaNodes numa.Nodes
	for _, n := range layout.Nodes {
		numaNodes |= numa.NodesOf(n.ID)
	}
	cfg := device.Config{
		Dir:        h.plugins,
		Nodes:      numaNodes,
		Booted:     machine.BootedAt(),
		Running:    func() (map[types.UID]bool, error) { return r.running.Pods(ctx) },
		Events:     s.events,
		Log:        g.log,
		Health:     g.Enabled("ResourceHealthStatus"),
		OnNode:     n.Wake,
		OnPod:      g.workers.Devices,
		PluginWait: g.cfg.Own.DevicePluginRegistrationTimeout,
		OnPending:  g.workers.WakeAll,
	}
	if s := g.links.Sockets; s != nil {
		cfg.Listen, cfg.Dial = s.Listen, s.Dial
	}
	d := device.New(cfg)
	g.metrics.MustRegister(d)
	return d
}

// addClaims adds the manager that prepares resource claims with DRA drivers.
func (m *managers) addClaims(g *ground, s *apiserver) {
	drivers := dra.DriversConfig{Log: g.log}
	if s := g.links.Sockets; s != nil {
		drivers.Dial = s.Dial
	}
	if g.Enabled("ResourceHealthStatus") {
		m.claimHealth = dra.NewHealth(dra.HealthConfig{Path: g.path(dra.HealthFile), Log: g.log})
		if err := m.claimHealth.Load(); err != nil {
			g.log.Warn("failed to load health of claimed devices", "err", err)
			g.badFiles.Report(err)
		}
		drivers.Health = m.claimHealth
	}
	store := dra.Config{
		Path:     g.path(dra.StateFile),
		Health:   m.claimHealth,
		Events:   s.events,
		OnChange: g.workers.Wake,
		Log:      g.log,
	}
	if s.client != nil {
		drivers.Slices = client.OneNode{Client: s.client, Name: g.cfg.NodeName}
		store.API = dra.NewAPI(s.client)
	}
	m.claimDrivers = dra.NewDrivers(drivers)
	store.Drivers = m.claimDrivers
	m.claims = dra.New(store)
	m.claimDrivers.OnDriver(m.claims.DriverReady)
	if m.claimHealth != nil {
		m.claimHealth.OnChange(m.claims.HealthChanged)
	}
	if err := m.claims.Load(); err != nil {
		g.log.Warn("failed to load prepared claims", "err", err)
		g.badFiles.Report(err)
	}
	g.metrics.MustRegister(m.claims)
}

// newCPUs creates the CPU manager.
func newCPUs(
	ctx context.Context, g *ground, h *host, r *runtimes, layout machine.Layout, policy topology.Policy,
) (*cpu.Manager, error) {
	k := &g.cfg.Kubelet
	options, err := cpu.ParseOptions(k.CPUManagerPolicy, k.CPUManagerPolicyOptions, settings.CPUGates(g.cfg))
	if err != nil {
		return nil, fmt.Errorf("new %s policy error: %w", k.CPUManagerPolicy, err)
	}
	named, err := cpuset.Parse(k.ReservedSystemCPUs)
	if err != nil {
		return nil, fmt.Errorf("read reservedSystemCPUs: %w", err)
	}
	if online := layout.OnlineCPUs(); !named.IsSubsetOf(online) {
		return nil, fmt.Errorf("reserved-cpus: %s is not a subset of online-cpus: %s", named, online)
	}
	reserved, known := h.reserved[v1.ResourceCPU]
	if !known && k.CPUManagerPolicy == cpu.PolicyStatic {
		return nil, errors.New("[cpumanager] unable to determine reserved CPU resources for static policy")
	}
	return cpu.New(cpu.Config{
		Dir:           g.cfg.Flags.RootDir,
		Policy:        k.CPUManagerPolicy,
		Options:       options,
		Machine:       layout,
		ReservedCPUs:  named,
		Reserved:      reserved.MilliValue(),
		SingleNode:    policy == topology.SingleNUMANode,
		FindContainer: r.running.Owners(ctx),
		Running: func() ([]cpu.Pinned, error) {
			running, err := r.running.Containers(ctx)
			if err != nil {
				return nil, err
			}
			return cpu.PinnedOf(running)
		},
		OnChange:  g.workers.MoveContainers,
		OnCorrupt: g.badFiles.Report,
		Log:       g.log,
	})
}

// newMemory creates the memory manager.
func newMemory(
	ctx context.Context, g *ground, h *host, r *runtimes, n *nodes, layout machine.Layout,
) (*memory.Manager, error) {
	cfg := settings.Memory(g.cfg, h.machine, layout)
	cfg.NodeReserved = n.keep.With(h.reserved, n.Capacity())
	cfg.Running = func() ([]memory.Pinned, error) {
		running, err := r.running.Containers(ctx)
		if err != nil {
			return nil, err
		}
		return memory.PinnedOf(running)
	}
	cfg.OnCorrupt, cfg.Log = g.badFiles.Report, g.log
	return memory.New(cfg)
}

// nodeDevices are the devices that the Node shows.
func (m *managers) nodeDevices() node.Devices { return node.DevicesOf(m.devices.Capacity()) }
