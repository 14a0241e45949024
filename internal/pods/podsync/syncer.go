package podsync

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/internal/pods/status"
)

// Config holds what a Syncer is built from. Every field is required
// unless its comment says otherwise.
type Config struct {
	Desired    Desired
	Observed   Observed
	Containers Containers
	Images     Images
	Volumes    Volumes
	Claims     Claims
	Objects    Objects
	Cgroups    Cgroups
	Probes     Probes
	Status     Status
	Allocation Allocation
	Resources  Resources
	Backoff    podplan.BackoffLimits // of containers that crash
	RestartAll bool                  // containers may have all of their pod restarted
	KeepEnded  int                   // instances of each container, to look at; see [podplan.Input]
	// Leaving, if not nil, reports whether the machine was already shutting down when this
	// agent started, and still is. No container is started then. When this changes, all
	// pods must be woken.
	Leaving func() bool
	// NetworkReady reports whether the runtime can give pods a network.
	NetworkReady func() error
	// HostIPs are the node's addresses, primary family first; nil until known.
	HostIPs func() []string
	// NodeIP is the first address of --node-ip, if there is one. Pods show an address of its family first, by
	// default IPv4.
	NodeIP string
	// AddressMismatch says that these are not what the agent itself would have
	// taken, and why that matters; empty: they are.
	AddressMismatch func() string
	Events          pod.Events
	Dirs            Dirs
	// OnNameFree is called when a static pod's full name has become free; must
	// not block.
	OnNameFree func()
	// TurnPatience is how long a worker may be in one turn before something is
	// wrong.
	TurnPatience time.Duration
	Tracer       trace.Tracer // nil: nothing is traced
	Log          *slog.Logger
	Now          func() time.Time
}

// Syncer runs one worker for each pod that a source or the runtime knows.
type Syncer struct {
	cfg     Config
	metrics *metrics
	checked atomic.Pointer[checkup]

	mu      sync.Mutex
	ctx     context.Context // of Run; nil before
	workers map[types.UID]*worker
	// holders are the pods that run, or may run, under each full name; only the
	// first may, the others wait for their turn in order of arrival.
	holders map[string][]types.UID
	group   sync.WaitGroup
}

// New makes a Syncer. Nothing happens before Run.
func New(cfg Config) *Syncer {
	return &Syncer{cfg: cfg, metrics: newMetrics(), workers: map[types.UID]*worker{}, holders: map[string][]types.UID{}}
}

// Run wakes every known pod once and then serves wake-ups until ctx ends. It
// returns when all workers have ended; running pods are left as they are.
func (s *Syncer) Run(ctx context.Context) error {
	s.mu.Lock()
	s.ctx = ctx
	s.mu.Unlock()
	s.WakeAll()
	defer s.group.Wait()
	tick := time.NewTicker(s.cfg.TurnPatience / checkups)
	defer tick.Stop()
	for {
		s.check()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Wake has the pod looked at. It never blocks.
func (s *Syncer) Wake(uid types.UID) { s.wake(uid, false) }

// Force notes that the pod's object was removed from the API server while the pod was
// being deleted: the pod has no grace period left.
func (s *Syncer) Force(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w, ok := s.workers[uid]; ok {
		w.forced.Store(true)
	}
}

// Adopt has pods looked after of which only traces on the node tell, such as a
// directory or a cgroup: unless a source knows them, all of it is released.
func (s *Syncer) Adopt(uids []types.UID) {
	for _, uid := range uids {
		s.wake(uid, true)
	}
}

func (s *Syncer) wake(uid types.UID, adopt bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx == nil || s.ctx.Err() != nil {
		return
	}
	w, ok := s.workers[uid]
	if !ok {
		w = newWorker(s, uid)
		w.adopted = adopt
		s.workers[uid] = w
		ctx := s.ctx
		s.group.Go(func() { w.run(ctx) })
	}
	w.poke()
}

// WakeAll has every pod looked at that a source, the runtime or a worker knows.
func (s *Syncer) WakeAll() {
	uids := map[types.UID]bool{}
	for _, uid := range s.cfg.Desired.UIDs() {
		uids[uid] = true
	}
	for _, uid := range s.cfg.Observed.UIDs() {
		uids[uid] = true
	}
	s.mu.Lock()
	for uid := range s.workers {
		uids[uid] = true
	}
	s.mu.Unlock()
	for uid := range uids {
		s.Wake(uid)
	}
}

// Knows reports whether a worker looks after the pod; what belongs to a pod that
// nobody knows may be cleaned away.
func (s *Syncer) Knows(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.workers[uid]
	return ok
}

// Evict ends the pod for the node's sake. It returns at once; a pod that is going
// already keeps its first reason. The channel is closed when nothing of it takes up
// the node any more.
func (s *Syncer) Evict(uid types.UID, e Eviction) (released <-chan struct{}) {
	s.mu.Lock()
	w, ok := s.workers[uid]
	s.mu.Unlock()
	if !ok {
		return closed() // it has ended meanwhile
	}
	o := status.Override{Reason: pod.ReasonEvicted, Message: e.Message, Lenient: true}
	if e.Disrupts {
		o.Disruption = v1.PodReasonTerminationByKubelet
	}
	w.expel(End{Grace: e.Grace, AtOnce: e.AtOnce, Override: o, Why: "evicted"})
	return w.released
}

// SendAway ends the pod because its node goes: with the given status reason and
// message, unless it has done its work by then. A pod that is going already only has
// less time. The channel is closed when all that the pod held is released.
func (s *Syncer) SendAway(uid types.UID, grace time.Duration, reason, message string) <-chan struct{} {
	s.Wake(uid) // a pod of an agent before this one may have no worker yet
	s.mu.Lock()
	w, ok := s.workers[uid]
	s.mu.Unlock()
	if !ok { // nothing was left to look after, or the agent ends
		return closed()
	}
	// Nothing of it is written down: the same pod may run when the machine is back.
	now := s.cfg.Now()
	w.putOut(now, End{Deadline: now.Add(grace), Why: "the node shuts down", Override: status.Override{
		Phase: v1.PodFailed, Reason: reason, Message: message, Disruption: v1.PodReasonTerminationByKubelet, Lenient: true}})
	w.poke()
	return w.released
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// leave drops a worker that has nothing left to do, unless it was woken
// meanwhile. A pod that its source holds again gets a new worker.
func (s *Syncer) leave(w *worker) bool {
	s.mu.Lock()
	if len(w.wake) > 0 {
		s.mu.Unlock()
		return false
	}
	delete(s.workers, w.uid)
	s.mu.Unlock()
	if spec, _, again := s.cfg.Desired.Get(w.uid); again {
		s.metrics.restarted.WithLabelValues(staticLabel(spec)).Inc()
		s.Wake(w.uid)
	}
	return true
}

// Preempt ends the pod so that another one can run. It has its own grace period.
func (s *Syncer) Preempt(uid types.UID, grace time.Duration, reason, message, disruption string) {
	s.Wake(uid) // it may have been judged with others before it had a worker, and is waited for
	s.mu.Lock()
	w, ok := s.workers[uid]
	s.mu.Unlock()
	if ok {
		w.expel(End{Grace: grace, Why: "preempted",
			Override: status.Override{Reason: reason, Message: message, Disruption: v1.PodReasonTerminationByKubelet, DisruptionMessage: disruption, Lenient: true}})
	}
}

// MayClaim reports whether the pod could run now as far as its full name goes.
func (s *Syncer) MayClaim(p *v1.Pod) bool {
	if !pod.IsStatic(p) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	line := s.holders[pod.FullName(p)]
	return len(line) == 0 || line[0] == p.UID
}

// claim asks for the full name and reports whether the pod may run under it.
func (s *Syncer) claim(name string, uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := s.holders[name]
	for i, u := range line {
		if u == uid {
			return i == 0
		}
	}
	s.holders[name] = append(line, uid)
	return len(line) == 0
}

// Holds reports whether a static pod of the full name is there or still ending.
func (s *Syncer) Holds(fullName string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.holders[fullName]) > 0
}

// HoldsOlder reports whether another static pod than this one is there or still
// ending under the full name.
func (s *Syncer) HoldsOlder(fullName string, than types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.holders[fullName], func(uid types.UID) bool { return uid != than })
}

// release gives the full name to the next in line and wakes it.
func (s *Syncer) release(name string, uid types.UID) {
	s.mu.Lock()
	line := s.holders[name]
	for i, u := range line {
		if u == uid {
			line = append(line[:i:i], line[i+1:]...)
			break
		}
	}
	var next types.UID
	if len(line) == 0 {
		delete(s.holders, name)
	} else {
		s.holders[name] = line
		next = line[0]
	}
	s.mu.Unlock()
	if next != "" {
		s.Wake(next)
	}
	s.cfg.OnNameFree()
}
