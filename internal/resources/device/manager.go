package device

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	deviceapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"keelson/internal/host/clock"
	"keelson/internal/pods/pod"
	"keelson/internal/resources/numa"
)

// Config holds the configuration of a Manager. All fields are required unless noted otherwise.
type Config struct {
	Dir string // of the registration socket and the plugins' sockets
	// OnNode is called when the devices of the node have changed, and OnPod when the health of a pod's devices has.
	// They must not block.
	OnNode func()
	OnPod  func(types.UID)
	Events pod.Events
	// Booted is when the machine was booted. Allocations from before it are dropped, except those of running pods,
	// which Running returns. It is called in that case only.
	Booted  time.Time
	Running func() (map[types.UID]bool, error)
	// PluginWait is how long after New pods wait for plugins that were registered with an earlier agent and have yet to
	// register with this one. OnPending is called when the set of these plugins changes. It must not block.
	PluginWait time.Duration
	OnPending  func()
	// Health enables the health of devices in the status of pods.
	Health bool
	// Nodes are the NUMA nodes of the machine.
	Nodes numa.Nodes
	// Listen makes the registration socket, and Dial connects to a plugin's socket. By default they use the file
	// system.
	Listen func(path string) (net.Listener, error)
	Dial   func(ctx context.Context, path string) (net.Conn, error)
	Log    *slog.Logger
}

// Manager owns the devices of the node and their allocation. It is safe for concurrent use. Only methods with a context
// may block.
type Manager struct {
	cfg     Config
	metrics metrics
	life    context.Context // of calls to plugins; ends with Run
	end     context.CancelFunc
	tasks   sync.WaitGroup
	wakeup  chan struct{} // capacity 1: something has to be announced or written

	writing sync.Mutex // held while the checkpoint is written; taken before mu

	mu          sync.Mutex
	serving     error // of the registration server; nil: plugins can register
	owned       bool  // this agent owns the directory
	resources   map[string]*resource
	allocated   map[types.UID]*podDevices
	pending     pendingPlugins
	removed     map[string]bool // resources that were removed from the node
	unsaved     bool            // the checkpoint is out of date
	unannounced bool            // the devices of the node have changed since the last call of OnNode
}

// Device is a device that a plugin lists.
type Device struct {
	Healthy bool
	Nodes   []int // its NUMA nodes; empty: not known
}

// resource is the state of one resource.
type resource struct {
	plugin  *plugin // the one that registered last; nil: none since the start
	devices map[string]Device
	// stopped is when the plugin stopped, or when this agent started waiting for it. Zero: it is serving.
	stopped time.Time
	listed  bool // the plugin has sent a list
}

func (r *resource) healthy(id string) bool { return r.stopped.IsZero() && r.devices[id].Healthy }

// podDevices is the devices of one pod.
type podDevices struct {
	turn        chan struct{}                     // capacity 1: held during calls to plugins for the pod
	byContainer map[string]map[string]*allocation // by container and resource
}

// allocation is the devices of one resource that are allocated to a container.
type allocation struct {
	ids   []string
	nodes map[string][]int // NUMA nodes of the devices when they were allocated
	near  numa.Nodes       // preferred NUMA nodes; empty: any
	// answer is the plugin's answer to Allocate. Nil: it has not been called yet.
	answer *deviceapi.ContainerAllocateResponse
}

// New restores the checkpoint. One that cannot be used is set aside. Nothing is served before Run.
func New(cfg Config) *Manager {
	p := &Manager{
		cfg:       cfg,
		metrics:   newMetrics(),
		wakeup:    make(chan struct{}, 1),
		resources: map[string]*resource{},
		allocated: map[types.UID]*podDevices{},
		removed:   map[string]bool{},
	}
	p.life, p.end = context.WithCancel(context.Background())
	now := time.Now()
	if err := p.load(now); err != nil {
		cfg.Log.Error("failed to restore device allocations; devices of running pods may be allocated again",
			"err", err)
		cfg.Events.Node(v1.EventTypeWarning, eventUnusable, err.Error())
	}
	p.pending = newPendingPlugins(p.resources, now, cfg.PluginWait)
	return p
}

// Run serves the registration socket and announces changes of devices until ctx ends. Allocations are kept.
func (p *Manager) Run(ctx context.Context) error {
	defer p.saveOrLog() // after the last release
	defer p.tasks.Wait()
	defer p.end()
	p.tasks.Go(func() { p.serveRegistration(ctx) })
	for {
		expiry := p.expire(time.Now())
		p.announce()
		var due <-chan time.Time
		if !expiry.IsZero() {
			due = time.After(time.Until(expiry))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-due:
			continue
		case <-p.wakeup:
		}
		p.announce()
		// Changes during the pause are announced together.
		if !clock.Sleep(ctx, minAnnouncePeriod) {
			return nil
		}
	}
}

// announce writes the checkpoint, and announces changes of the node's devices.
func (p *Manager) announce() {
	p.saveOrLog()
	p.mu.Lock()
	changed := p.unannounced
	p.unannounced = false
	p.mu.Unlock()
	if changed {
		p.cfg.OnNode()
	}
}

// saveOrLog writes the checkpoint.
func (p *Manager) saveOrLog() {
	if err := p.save(); err != nil {
		p.cfg.Log.Error("failed to write device manager checkpoint", "err", err)
	}
}

// markChangedLocked records that the devices of the node have changed.
func (p *Manager) markChangedLocked() {
	p.unsaved, p.unannounced = true, true
	p.trigger()
}

func (p *Manager) trigger() {
	select {
	case p.wakeup <- struct{}{}:
	default:
	}
}

// expire removes resources whose plugin has not registered again, and ends the wait for plugins at its deadline. It
// returns when to call it again.
func (p *Manager) expire(now time.Time) (next time.Time) {
	next, ended := p.removeExpired(now)
	if ended {
		p.cfg.OnPending()
	}
	return next
}

// removeExpired is the part of expire under the lock. It reports whether the wait for plugins has just ended.
func (p *Manager) removeExpired(now time.Time) (next time.Time, ended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next, ended = p.pending.expireLocked(now)
	for name, r := range p.resources {
		if r.stopped.IsZero() {
			continue
		}
		if at := r.stopped.Add(endpointStopGracePeriod); now.Before(at) {
			next = clock.Earlier(next, at)
			continue
		}
		p.cfg.Log.Info("removed resource, its device plugin has not registered again", "resourceName", name)
		delete(p.resources, name)
		p.removed[name] = true
		p.unsaved, p.unannounced = true, true
	}
	return next, ended
}

// Capacity returns the number of devices of each resource, how many of them are healthy, and the resources that were
// removed from the node.
func (p *Manager) Capacity() (there, well map[string]int, gone []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	there, well = map[string]int{}, map[string]int{}
	for name, r := range p.resources {
		there[name], well[name] = len(r.devices), 0
		for id := range r.devices {
			if r.healthy(id) {
				well[name]++
			}
		}
	}
	return there, well, slices.Sorted(maps.Keys(p.removed))
}

// Healthy returns the error of the registration server, if plugins cannot register.
func (p *Manager) Healthy() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.serving
}

func (p *Manager) path(name string) string { return filepath.Join(p.cfg.Dir, name) }
