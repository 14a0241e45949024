package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/resources/machine"
	"keelson/internal/runtime/cri"
)

// nodeAPI is the node object at the API server.
type nodeAPI interface {
	Get(ctx context.Context, name string) (*v1.Node, error)
	Create(ctx context.Context, n *v1.Node) (*v1.Node, error)
	Patch(ctx context.Context, name string, patch []byte) (*v1.Node, error)
	PatchStatus(ctx context.Context, name string, patch []byte) (*v1.Node, error)
	// ListWatch is a source of this one node.
	ListWatch(name string) *cache.ListWatch
}

// leaseAPI is the leases at the API server.
type leaseAPI interface {
	Get(ctx context.Context, namespace, name string) (*coordinationv1.Lease, error)
	Create(ctx context.Context, namespace string, l *coordinationv1.Lease) (*coordinationv1.Lease, error)
	Update(ctx context.Context, namespace, name string, l *coordinationv1.Lease) (*coordinationv1.Lease, error)
}

// runtimeClient is what the node tells and asks the container runtime.
type runtimeClient interface {
	Status(ctx context.Context) (cri.Status, error)
	Version(ctx context.Context, req *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error)
	ListImages(ctx context.Context, req *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error)
	UpdateRuntimeConfig(ctx context.Context, req *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error)
}

// API is the way to the API server.
type API struct {
	Nodes  nodeAPI
	Leases leaseAPI
	// CloseConnections drops connections that look alive and answer nothing.
	CloseConnections func()
}

// Check is a part of the agent without which the node is not ready. The message
// reads "<Name> is not healthy: <error>".
type Check struct {
	Name    string
	Healthy func() error
}

// Config holds what a Node is built from. Fields are required unless they say
// otherwise.
type Config struct {
	Identity Identity
	API      *API // nil: standalone
	Runtime  runtimeClient
	Events   pod.Events
	Log      *slog.Logger

	Machine     machine.Info
	RootFS      fs.FS        // the machine's files; see machine.Host
	RootDir     string       // the agent's, for ephemeral storage
	Storage     bool         // ephemeral storage is accounted for
	NodeIPs     []netip.Addr // as configured; optional
	MaxPods     int64
	PodsPerCore int64           // optional
	Reserved    v1.ResourceList // for the system and for Kubernetes, in sum; optional
	// Kept is what must be left of the node's capacity before pods are ended for
	// it. Optional.
	Kept func(capacity v1.ResourceList) v1.ResourceList
	// Pressures are those that the node is under. Optional.
	Pressures func(context.Context) []v1.NodeConditionType

	Version   string
	Port      int32
	MaxImages int
	// DeclaredFeatures are what the node can do of what schedulers ask after. Optional.
	DeclaredFeatures func(cri.Status) []string
	CgroupV1         bool // the machine has cgroup v1: say that it is on its way out

	UpdateEvery   time.Duration // how often the status is computed
	ReportEvery   time.Duration // how often it is sent without news
	LeaseDuration time.Duration
	Register      bool // create the node if it is not there
	// NoDeviceRecord says that no earlier agent has recorded devices of plugins on this disk.
	NoDeviceRecord bool

	PodCIDR string   // of a standalone node; optional
	Startup *Startup // optional

	Checks []Check // optional
	// Problems are reasons not to be ready in the words of other parts, such as
	// "node is shutting down". Optional.
	Problems     func() []error
	Devices      func() Devices               // optional
	VolumesInUse func() []v1.UniqueVolumeName // optional
	// Enforce limits all pods together to what they may have. It is tried again
	// until it works. Optional.
	Enforce func() error
	// AllPods names the cgroup of all pods, one element for each level.
	AllPods []string
	// OnChange is called when the node object changed; what it is now, Node tells.
	// It must not block. Optional.
	OnChange func()
	// OnNetwork is called when the runtime's network has become ready or has
	// ceased to be; NetworkReady tells which. It must not block. Optional.
	OnNetwork func()
	// OnAddresses is called when HostIPs are others than before. It must not block.
	// Optional.
	OnAddresses func()
	// Lookup resolves the node's name. Optional: without, the name is not looked
	// up.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
}

// Node is the machine as the API server sees it.
type Node struct {
	cfg        Config
	registered chan struct{}
	heardOf    chan struct{} // closed when the API server is known to have the node
	answered   chan struct{} // closed when the runtime first answered
	up         chan struct{} // closed when it first said that it is well
	computed   chan struct{} // closed when the status is first known
	poke       chan struct{} // wakes the status loop; capacity 1

	mu          sync.Mutex
	started     time.Time
	capacity    v1.ResourceList
	allocatable v1.ResourceList
	found       []netip.Addr  // addresses, of the machine or as configured
	told        []netip.Addr  // to OnAddresses, by HostIPs
	known       *v1.Node      // as last heard from the API server; nil before
	status      v1.NodeStatus // as last computed
	turned      []string      // events of that status
	health      Health
	wasReady    bool // since the start

	// Of the status loop alone:
	gather gatherer
	cidr   string // pod addresses last told to the runtime
}

// New makes a Node. What the machine has is known from then on; nothing is
// started.
func New(cfg Config) (*Node, error) {
	n := &Node{
		cfg:        cfg,
		registered: make(chan struct{}),
		heardOf:    make(chan struct{}),
		answered:   make(chan struct{}),
		up:         make(chan struct{}),
		computed:   make(chan struct{}),
		poke:       make(chan struct{}, 1),
	}
	in := CapacityInput{Machine: cfg.Machine, MaxPods: cfg.MaxPods, PodsPerCore: cfg.PodsPerCore}
	if cfg.Storage {
		st, err := machine.ReadFilesystem(cfg.RootDir)
		if err != nil {
			return nil, fmt.Errorf("measure ephemeral storage: %w", err)
		}
		in.Storage = &st
	}
	n.capacity = Capacity(in)
	if err := n.checkReserved(); err != nil {
		return nil, err
	}
	n.allocatable = n.forPods()
	n.gather = gatherer{cfg: &n.cfg, late: n.Poke}
	return n, nil
}

// kept returns the hard eviction thresholds as amounts of the capacity.
func (n *Node) kept() v1.ResourceList {
	if n.cfg.Kept == nil {
		return nil
	}
	return n.cfg.Kept(n.capacity)
}

// forPods is what pods can have of the capacity.
func (n *Node) forPods() v1.ResourceList {
	return Allocatable(n.capacity, n.cfg.Reserved, n.kept())
}

// checkReserved refuses reservations that exceed the machine: no pod could ever run.
func (n *Node) checkReserved() error {
	kept := n.kept()
	for _, name := range slices.Sorted(maps.Keys(n.capacity)) {
		have, sum := n.capacity[name], n.cfg.Reserved[name]
		sum.Add(kept[name])
		if sum.Cmp(have) > 0 {
			return fmt.Errorf("reserve %s: systemReserved, kubeReserved and evictionHard come to %s, and the machine has %s",
				name, sum.String(), have.String())
		}
	}
	return nil
}

// Run shows the node until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	n.mu.Lock()
	n.started = time.Now()
	n.mu.Unlock()
	n.cfg.Events.Node(v1.EventTypeNormal, EventStarting, "Starting kubelet.")
	if n.cfg.CgroupV1 {
		n.cfg.Events.Node(v1.EventTypeWarning, EventCgroupV1, messageCgroupV1)
	}
	g, ctx := errgroup.WithContext(ctx)
	start := func(loop func(context.Context)) {
		g.Go(func() error { loop(ctx); return nil })
	}
	start(n.watchHealth)
	start(n.keepStatus)
	if n.cfg.Enforce != nil {
		start(n.enforce)
	}
	if n.cfg.API == nil {
		n.cfg.Log.Info("standalone: the node is not shown to any API server", "node", n.cfg.Identity.Name)
	} else {
		start(n.register)
		start(n.watch)
		start(n.renewLease)
	}
	return g.Wait()
}

// Registered is closed when the API server has the node; standalone, when its
// status is known here.
func (n *Node) Registered() <-chan struct{} { return n.registered }

// Node is the node object as last heard from the API server, or the one made here
// while there is none. Callers do not change it.
func (n *Node) Node() *v1.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known != nil {
		return n.known
	}
	own := n.cfg.Identity.object()
	own.Status = *n.status.DeepCopy()
	return own
}

// Capacity is what the machine has.
func (n *Node) Capacity() v1.ResourceList {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.capacity.DeepCopy()
}

// Allocatable is what pods can have: the machine's, and what device plugins and
// others added to it.
func (n *Node) Allocatable() v1.ResourceList {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.allocatable.DeepCopy()
}

// NetworkReady is nil while the runtime can give pods a network, by its last
// answer, and otherwise says why not.
func (n *Node) NetworkReady() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.health.Seen.IsZero() {
		return errors.New("container runtime status check may not have completed yet")
	}
	if c := n.health.Status.Network; !c.OK {
		return fmt.Errorf("container runtime network not ready: %s", describe(runtimeapi.NetworkReady, c))
	}
	return nil
}

// Runtime is what the runtime last said of its health and abilities.
func (n *Node) Runtime() cri.Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.health.Status
}

// Ready reports whether the node is ready by the status last computed, and why
// not.
func (n *Node) Ready() (ready bool, message string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := condition(n.status, v1.NodeReady)
	return c.Status == v1.ConditionTrue, c.Message
}

// Poke has the status computed now; it is sent if there is news.
func (n *Node) Poke() {
	select {
	case n.poke <- struct{}{}:
	default: // one waiting poke says all there is to say
	}
}

// learn takes a version of the node from the API server, unless a newer one is
// known.
func (n *Node) learn(node *v1.Node) {
	n.mu.Lock()
	if n.known != nil && n.known.UID == node.UID && older(node, n.known) {
		n.mu.Unlock()
		return
	}
	before := n.known
	n.known = node
	if before == nil {
		close(n.heardOf)
	}
	n.mu.Unlock()
	if condition(node.Status, v1.NodeReady).Status == v1.ConditionTrue {
		n.cfg.Startup.isReady(time.Now())
	}
	n.compare(before, node)
	n.tellAddresses()
	if n.cfg.OnChange != nil {
		n.cfg.OnChange()
	}
}

// compare tells what somebody else changed on the node.
func (n *Node) compare(before, now *v1.Node) {
	if before == nil {
		if now.Spec.PodCIDR != "" {
			n.Poke()
		}
		before = &v1.Node{Spec: v1.NodeSpec{PodCIDRs: now.Spec.PodCIDRs}} // a node is assumed to be schedulable
	}
	if before.Spec.Unschedulable != now.Spec.Unschedulable {
		reason := EventSchedulable
		if now.Spec.Unschedulable {
			reason = EventNotSchedulable
		}
		n.tell(reason)
	}
	if !slices.Equal(before.Spec.PodCIDRs, now.Spec.PodCIDRs) {
		n.Poke()
	}
}

// tell records that the node turned.
func (n *Node) tell(reason string) {
	n.cfg.Events.Node(v1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", n.cfg.Identity.Name, reason))
}

func (n *Node) current() *v1.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.known
}

func condition(st v1.NodeStatus, kind v1.NodeConditionType) v1.NodeCondition {
	for _, c := range st.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return v1.NodeCondition{}
}
