package app

import (
	"context"
	"net"
	"net/netip"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/api/node"
	"keelson/internal/config/settings"
	"keelson/internal/host/cgroup"
	"keelson/internal/pods/admission"
	"keelson/internal/resources/device"
	"keelson/internal/resources/eviction"
	"keelson/internal/runtime/cri"
)

// nodes is the Node object, and the resources that are not available to pods.
type nodes struct {
	*node.Node
	thresholds []eviction.Threshold
	keep       eviction.Keep      // not available to pods, so that nothing has to be evicted
	features   admission.Features // that the node declares for schedulers; none if the gate is off
}

// newNode creates the node, and limits the cgroups above the pods.
func newNode(g *ground, h *host, r *runtimes, s *apiserver) (*nodes, error) {
	thresholds, ignored, err := eviction.Parse(settings.Thresholds(g.cfg))
	if err != nil {
		return nil, err
	}
	for _, s := range ignored {
		g.log.Error("ignored eviction threshold: it is that of the file system of the writable layers", "signal", s)
	}
	n := &nodes{
		thresholds: thresholds,
		keep:       eviction.Keep{Thresholds: thresholds, Off: g.cfg.Flags.IgnoreEviction},
	}
	if g.Enabled("NodeDeclaredFeatures") {
		n.features = admission.NewFeatures(g.cfg.Version, g.cfg.Gates, g.log)
	}
	recorded, err := device.HasCheckpoint(h.plugins)
	if err != nil {
		return nil, err
	}
	cfg := settings.Node(g.cfg, h.machine)
	cfg.Runtime, cfg.Events, cfg.Log = r.client, s.events, g.log
	cfg.RootFS, cfg.Startup = g.machineFiles(), g.startup
	cfg.Reserved, cfg.EvictionThresholds = h.reserved, n.keep.Of
	cfg.Checks = []node.Check{{Name: "PLEG", Healthy: r.observed.Healthy}}
	cfg.DeclaredFeatures, cfg.NoDeviceRecord = n.declaredBy, !recorded
	cfg.OnNetwork, cfg.OnAddresses = g.workers.WakeAll, g.workers.WakeAll
	cfg.Lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	}
	// Also without cgroups per pod, since containers have cgroups then, too.
	if groups, err := cgroup.Detect(); err == nil {
		cfg.CgroupV1 = !groups.V2()
	}
	if s.client != nil {
		cfg.API = &node.API{Nodes: s.client.Nodes, Leases: s.client.Leases, CloseConnections: s.client.CloseConnections}
	}
	if r.cgroups == nil {
		n.Node, err = node.New(cfg)
		return n, err
	}
	limit := settings.AllPods(&g.cfg.Kubelet, h.machine, h.reserved)
	enforce := func(capacity v1.ResourceList) error { return r.cgroups.EnsureRoot(limit(capacity)) }
	cfg.Enforce, cfg.AllPods = enforce, r.cgroups.AllPods()
	if n.Node, err = node.New(cfg); err != nil {
		return nil, err
	}
	tree := r.cgroups
	// Before the first pod, whose cgroup is below. If it fails, the node reports that and tries again.
	if err := enforce(n.Capacity()); err != nil {
		g.log.Warn("failed to ensure cgroups above the pods", "err", err)
	}
	for _, r := range settings.Enforced(&g.cfg.Kubelet) {
		if err := r.Enforce(tree, s.events); err != nil {
			return nil, err
		}
	}
	return n, nil
}

func (n *nodes) declaredBy(s cri.Status) []string {
	return n.features.Declared(s.UserNamespacesHostNetwork)
}

// declared are the features that the node declares, according to the last report of the runtime.
func (n *nodes) declared() []string { return n.declaredBy(n.Runtime()) }

// status is the status of the Node object.
func (n *nodes) status() v1.NodeStatus { return n.Node.Node().Status }
