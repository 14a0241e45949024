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

	"keelson/internal/pods/pod"
	"keelson/internal/resources/topology"
)

// Config holds what a Pool is built from. Fields are required unless they say
// otherwise.
type Config struct {
	Dir string // where plugins find the agent, and the agent their sockets
	// OnNode is called when the node has more or fewer devices, and OnPod when there
	// is news about the devices of a pod. They must not block.
	OnNode func()
	OnPod  func(types.UID)
	Events pod.Events
	// Booted is when the machine was started: what was given before is nobody's, but for
	// pods of which containers run. Those Running tells, which is asked then alone.
	Booted  time.Time
	Running func() (map[types.UID]bool, error)
	// Wait is how long after New pods wait for plugins that were registered with an earlier agent and have yet to
	// register with this one. OnWait is called when the plugins waited for are others; it must not block.
	Wait   time.Duration
	OnWait func()
	// Health has the health of devices shown with the pods that have them.
	Health bool
	// Nodes are the NUMA nodes of the machine.
	Nodes topology.Nodes
	// Listen makes the socket where plugins register, and Dial connects to one of
	// theirs; nil: in the file system.
	Listen func(path string) (net.Listener, error)
	Dial   func(ctx context.Context, path string) (net.Conn, error)
	Log    *slog.Logger
}

// Pool is the devices of the node. It is safe for concurrent use; only methods with
// a context may block.
type Pool struct {
	cfg     Config
	metrics metrics
	life    context.Context // of plugins followed and asked; ends with Run
	end     context.CancelFunc
	tasks   sync.WaitGroup
	dirty   chan struct{} // capacity 1: something is to be told of, or written

	writing sync.Mutex // held while the file is written; taken before mu

	mu        sync.Mutex
	serving   error // why plugins cannot register; nil: they can
	owned     bool  // the directory is this agent's
	resources map[string]*resource
	claims    map[types.UID]*claim
	lateness  lateness
	gone      map[string]bool // resources that the node had
	unsaved   bool            // the file is older than what is known
	untold    bool            // the node's devices are others than OnNode was last called for
}

// Device is one that a plugin offers.
type Device struct {
	Healthy bool
	Nodes   []int // the NUMA nodes it is at; empty: not said
}

// resource is what is known of one resource.
type resource struct {
	plugin  *plugin // the last that registered; nil: none since the start
	devices map[string]Device
	// stopped is when the plugin went, or this agent began to wait for it; zero: it
	// serves.
	stopped time.Time
	listed  bool // the plugin has told of its devices
}

func (r *resource) healthy(id string) bool { return r.stopped.IsZero() && r.devices[id].Healthy }

// claim is what one pod has been given.
type claim struct {
	turn chan struct{}                  // capacity 1: held by who asks plugins for the pod
	held map[string]map[string]*holding // by container and resource
}

// holding is what a container has of one resource.
type holding struct {
	ids   []string
	nodes map[string][]int // NUMA nodes of the devices when they were given
	near  topology.Nodes   // where they were to be; empty: anywhere
	// answer is what the plugin said; nil: it has not been asked yet.
	answer *deviceapi.ContainerAllocateResponse
}

// New reads what an earlier agent has given to whom. What cannot be used is put
// aside. Nothing is served before Run.
func New(cfg Config) *Pool {
	p := &Pool{cfg: cfg, metrics: newMetrics(), dirty: make(chan struct{}, 1),
		resources: map[string]*resource{}, claims: map[types.UID]*claim{}, gone: map[string]bool{}}
	p.life, p.end = context.WithCancel(context.Background())
	now := time.Now()
	if err := p.load(now); err != nil {
		cfg.Log.Error("cannot take up which devices pods have; running pods go on with theirs, which may be given away again", "err", err)
		cfg.Events.Node(v1.EventTypeWarning, eventUnusable, err.Error())
	}
	p.lateness = newLateness(p.resources, now, cfg.Wait)
	return p
}

// Run serves the socket where plugins register, and tells of their devices, until
// ctx ends. Containers keep what they have.
func (p *Pool) Run(ctx context.Context) error {
	defer p.keep() // what the last pods gave back
	defer p.tasks.Wait()
	defer p.end()
	p.tasks.Go(func() { p.serve(ctx) })
	for {
		expiry := p.expire(time.Now())
		p.tell()
		var due <-chan time.Time
		if !expiry.IsZero() {
			due = time.After(time.Until(expiry))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-due:
			continue
		case <-p.dirty:
		}
		p.tell()
		select { // what comes meanwhile is one piece of news
		case <-ctx.Done():
			return nil
		case <-time.After(pace):
		}
	}
}

// tell writes and tells what is new.
func (p *Pool) tell() {
	p.keep()
	p.mu.Lock()
	untold := p.untold
	p.untold = false
	p.mu.Unlock()
	if untold {
		p.cfg.OnNode()
	}
}

// keep writes what is new.
func (p *Pool) keep() {
	if err := p.save(); err != nil {
		p.cfg.Log.Error("cannot write down the devices of the node and who has them", "err", err)
	}
}

// changedLocked notes that the node has other devices now.
func (p *Pool) changedLocked() {
	p.unsaved, p.untold = true, true
	p.poke()
}

func (p *Pool) poke() {
	select {
	case p.dirty <- struct{}{}:
	default:
	}
}

// expire drops resources whose plugin has not come back, and ends the wait for plugins. It returns when to look
// again.
func (p *Pool) expire(now time.Time) (next time.Time) {
	next, ended := p.drop(now)
	if ended {
		p.cfg.OnWait()
	}
	return next
}

// drop removes what expire found; ended: the wait for plugins has just ended.
func (p *Pool) drop(now time.Time) (next time.Time, ended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next, ended = p.lateness.expireLocked(now)
	for name, r := range p.resources {
		if r.stopped.IsZero() {
			continue
		}
		if at := r.stopped.Add(stopGrace); now.Before(at) {
			if next.IsZero() || at.Before(next) {
				next = at
			}
			continue
		}
		p.cfg.Log.Info("the plugin of a resource has not come back: the node has none of it any more", "resource", name)
		delete(p.resources, name)
		p.gone[name] = true
		p.unsaved, p.untold = true, true
	}
	return next, ended
}

// Amounts are the devices of the node: how many there are, how many of them are
// well, and of which resources there are none any more.
func (p *Pool) Amounts() (there, well map[string]int, gone []string) {
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
	return there, well, slices.Sorted(maps.Keys(p.gone))
}

// Healthy says why plugins cannot register.
func (p *Pool) Healthy() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.serving
}

func (p *Pool) path(name string) string { return filepath.Join(p.cfg.Dir, name) }
