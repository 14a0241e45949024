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

	"keelson/internal/host/machine"
	"keelson/internal/pods/pod"
	"keelson/internal/runtime/cri"
)

// nodeAPI is the API for nodes.
type nodeAPI interface {
	Get(ctx context.Context, name string) (*v1.Node, error)
	Create(ctx context.Context, n *v1.Node) (*v1.Node, error)
	Patch(ctx context.Context, name string, patch []byte) (*v1.Node, error)
	PatchStatus(ctx context.Context, name string, patch []byte) (*v1.Node, error)
	// ListWatch returns a source for the node.
	ListWatch(name string) *cache.ListWatch
}

// leaseAPI is the API for leases.
type leaseAPI interface {
	Get(ctx context.Context, namespace, name string) (*coordinationv1.Lease, error)
	Create(ctx context.Context, namespace string, l *coordinationv1.Lease) (*coordinationv1.Lease, error)
	Update(ctx context.Context, namespace, name string, l *coordinationv1.Lease) (*coordinationv1.Lease, error)
}

// runtimeClient is the part of the container runtime's API that the node uses.
type runtimeClient interface {
	Status(ctx context.Context) (cri.Status, error)
	Version(ctx context.Context, req *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error)
	ListImages(ctx context.Context, req *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error)
	UpdateRuntimeConfig(
		ctx context.Context, req *runtimeapi.UpdateRuntimeConfigRequest,
	) (*runtimeapi.UpdateRuntimeConfigResponse, error)
}

// API is the API server.
type API struct {
	Nodes  nodeAPI
	Leases leaseAPI
	// CloseConnections closes all connections, because broken ones may still look open.
	CloseConnections func()
}

// Check is a health check of the agent. If it fails, the node is not ready, with the message "<Name> is not healthy:
// <error>".
type Check struct {
	Name    string
	Healthy func() error
}

// Config holds the configuration of a Node. All fields are required unless noted otherwise.
type Config struct {
	Identity Identity
	API      *API // nil: standalone
	Runtime  runtimeClient
	Events   pod.Events
	Log      *slog.Logger

	Size
	Reported
	Intervals
	Notified

	Register bool // create the node if it does not exist
	// NoDeviceRecord is set if there is no device manager checkpoint of an earlier agent.
	NoDeviceRecord bool
	Startup        *Startup // optional

	// Pressures returns the pressure conditions. Optional.
	Pressures func(context.Context) []v1.NodeConditionType
	Checks    []Check // optional
	// Problems returns errors of other parts that make the node not ready, such as "node is shutting down". Optional.
	Problems func() []error
	// Enforce sets the node allocatable limits of all pods. It is retried until it succeeds. Optional.
	Enforce func(capacity v1.ResourceList) error
	// AllPods is the name of the cgroup of all pods, one element per level.
	AllPods []string
	// Lookup resolves the node's name. Optional: without it the name is not resolved.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
}

// Size is what the node's capacity and allocatable resources follow from.
type Size struct {
	Machine     machine.Info
	RootFS      fs.FS  // the machine's files; see machine.Host
	RootDir     string // the agent's, for ephemeral storage
	Storage     bool   // ephemeral storage is accounted for
	MaxPods     int64
	PodsPerCore int64           // optional
	Reserved    v1.ResourceList // systemReserved and kubeReserved; optional
	// EvictionThresholds returns the hard eviction thresholds as amounts of the capacity. Optional.
	EvictionThresholds func(capacity v1.ResourceList) v1.ResourceList
}

// Reported is what else the node's specification and status show.
type Reported struct {
	NodeIPs   []netip.Addr // as configured; optional
	Version   string
	Port      int32
	MaxImages int
	CgroupV1  bool   // the machine has cgroup v1, which is deprecated
	PodCIDR   string // of a standalone node; optional
	// DeclaredFeatures returns the declared features of the node. Optional.
	DeclaredFeatures func(cri.Status) []string
	Devices          func() Devices               // optional
	VolumesInUse     func() []v1.UniqueVolumeName // optional
}

// Intervals are the times of the node's status and lease.
type Intervals struct {
	UpdateEvery   time.Duration // how often the status is computed
	ReportEvery   time.Duration // how often it is sent without changes
	LeaseDuration time.Duration
}

// Notified are called when something of the node has changed. They must not block. Each is optional.
type Notified struct {
	OnChange    func() // the node object
	OnNetwork   func() // the runtime's network condition, see NetworkReady
	OnAddresses func() // HostIPs
}

// Node is the Node object of this machine.
type Node struct {
	cfg        Config
	registered chan struct{}
	nodeExists chan struct{} // closed when the API server is known to have the node
	answered   chan struct{} // closed after the runtime's first response
	up         chan struct{} // closed when the runtime is ready for the first time
	computed   chan struct{} // closed when the status was computed
	wake       chan struct{} // wakes the status loop; capacity 1

	mu          sync.Mutex
	started     time.Time
	capacity    v1.ResourceList
	allocatable v1.ResourceList
	found       []netip.Addr  // addresses, of the machine or as configured
	notified    []netip.Addr  // HostIPs at the last call of OnAddresses
	known       *v1.Node      // the node object of the API server; nil: not known yet
	status      v1.NodeStatus // the last computed one
	turned      []string      // events of that status
	health      Health
	wasReady    bool // since the start

	// Only used by the status loop:
	collect collector
	cidr    string // pod CIDR that the runtime was configured with
}

// New returns a Node. It reads the capacity of the machine.
func New(cfg Config) (*Node, error) {
	n := &Node{
		cfg:        cfg,
		registered: make(chan struct{}),
		nodeExists: make(chan struct{}),
		answered:   make(chan struct{}),
		up:         make(chan struct{}),
		computed:   make(chan struct{}),
		wake:       make(chan struct{}, 1),
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
	n.allocatable = n.computeAllocatable()
	n.collect = collector{cfg: &n.cfg, late: n.Wake}
	return n, nil
}

// Others are parts that are built from the Node and that its status contains.
type Others struct {
	Pressures    func(context.Context) []v1.NodeConditionType
	Problems     func() []error
	Devices      func() Devices
	VolumesInUse func() []v1.UniqueVolumeName
	OnChange     func()
}

// Connect sets these parts; the fields are those of [Config]. It is called once, before Run.
func (n *Node) Connect(o Others) {
	n.cfg.Pressures, n.cfg.Problems = o.Pressures, o.Problems
	n.cfg.Devices, n.cfg.VolumesInUse = o.Devices, o.VolumesInUse
	n.cfg.OnChange = o.OnChange
}

// evictionThresholds returns the hard eviction thresholds as amounts of the capacity.
func (n *Node) evictionThresholds() v1.ResourceList {
	if n.cfg.EvictionThresholds == nil {
		return nil
	}
	return n.cfg.EvictionThresholds(n.capacity)
}

// computeAllocatable returns what is allocatable to pods.
func (n *Node) computeAllocatable() v1.ResourceList {
	return Allocatable(n.capacity, n.cfg.Reserved, n.evictionThresholds())
}

// checkReserved returns an error if more is reserved than the machine has.
func (n *Node) checkReserved() error {
	kept := n.evictionThresholds()
	for _, name := range slices.Sorted(maps.Keys(n.capacity)) {
		have, sum := n.capacity[name], n.cfg.Reserved[name]
		sum.Add(kept[name])
		if sum.Cmp(have) > 0 {
			return fmt.Errorf(
				"reserve %s: systemReserved, kubeReserved and evictionHard come to %s, and the machine has %s",
				name, sum.String(), have.String())
		}
	}
	return nil
}

// Run registers the node and updates it until ctx ends.
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
	start(n.updateStatusLoop)
	if n.cfg.Enforce != nil {
		start(n.enforce)
	}
	if n.cfg.API == nil {
		n.cfg.Log.Info("running standalone, the node is not registered", "node", n.cfg.Identity.Name)
	} else {
		start(n.register)
		start(n.watch)
		start(n.renewLease)
	}
	return g.Wait()
}

// Registered is closed when the node is registered, or without an API server when its status was computed.
func (n *Node) Registered() <-chan struct{} { return n.registered }

// Node returns the node object of the API server, or a local one while there is none. It must not be modified.
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

// Labels returns the labels of the Node at the API server. It waits until the node is registered: before that they are
// those of the flags.
func (n *Node) Labels(ctx context.Context) (map[string]string, error) {
	select {
	case <-n.Registered():
		return n.Node().Labels, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Capacity returns the capacity of the machine.
func (n *Node) Capacity() v1.ResourceList {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.capacity.DeepCopy()
}

// Allocatable returns what is allocatable to pods, including extended resources.
func (n *Node) Allocatable() v1.ResourceList {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.allocatable.DeepCopy()
}

// NetworkReady returns nil if the network is ready by the runtime's last status, and otherwise the reason.
func (n *Node) NetworkReady() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.health.LastResponse.IsZero() {
		return errors.New("container runtime status check may not have completed yet")
	}
	if c := n.health.Status.Network; !c.OK {
		return fmt.Errorf("container runtime network not ready: %s", describe(runtimeapi.NetworkReady, c))
	}
	return nil
}

// Runtime returns the runtime's last status.
func (n *Node) Runtime() cri.Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.health.Status
}

// Ready reports whether the node is ready by its last status, and the message of the condition.
func (n *Node) Ready() (ready bool, message string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := condition(n.status, v1.NodeReady)
	return c.Status == v1.ConditionTrue, c.Message
}

// Wake wakes the status loop. The status is sent if it has changed.
func (n *Node) Wake() {
	select {
	case n.wake <- struct{}{}:
	default: // one pending wake-up is enough
	}
}

// setNode updates the copy of the node object, unless it is newer.
func (n *Node) setNode(node *v1.Node) {
	n.mu.Lock()
	if n.known != nil && n.known.UID == node.UID && older(node, n.known) {
		n.mu.Unlock()
		return
	}
	before := n.known
	n.known = node
	if before == nil {
		close(n.nodeExists)
	}
	n.mu.Unlock()
	if condition(node.Status, v1.NodeReady).Status == v1.ConditionTrue {
		n.cfg.Startup.isReady(time.Now())
	}
	n.compare(before, node)
	n.notifyAddresses()
	if n.cfg.OnChange != nil {
		n.cfg.OnChange()
	}
}

// compare reacts to changes of the node object by others.
func (n *Node) compare(before, now *v1.Node) {
	if before == nil {
		if now.Spec.PodCIDR != "" {
			n.Wake()
		}
		before = &v1.Node{Spec: v1.NodeSpec{PodCIDRs: now.Spec.PodCIDRs}} // a node is assumed to be schedulable
	}
	if before.Spec.Unschedulable != now.Spec.Unschedulable {
		reason := EventSchedulable
		if now.Spec.Unschedulable {
			reason = EventNotSchedulable
		}
		n.recordEvent(reason)
	}
	if !slices.Equal(before.Spec.PodCIDRs, now.Spec.PodCIDRs) {
		n.Wake()
	}
}

// recordEvent records an event about a change of the node's status.
func (n *Node) recordEvent(reason string) {
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
