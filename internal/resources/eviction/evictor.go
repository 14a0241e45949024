package eviction

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/node/panics"
	"keelson/internal/pods/pod"
)

const (
	// period is the longest time between two looks.
	period = 10 * time.Second
	// patience is how long a pod that was ended is waited for before the next one.
	patience = 30 * time.Second
	// shunFor is how long a pod is not a candidate after a panic at it.
	shunFor = 5 * time.Minute
	// firstLook is how long those who ask for pressures wait for the first look.
	firstLook = 3 * time.Second
)

// Source measures. All of it is safe for concurrent use.
type Source interface {
	// Disks tells which file systems are one. It fails until the runtime has told.
	Disks(context.Context) (Disks, error)
	// Observe measures what is left; what cannot be measured is left out. Asked for
	// memory alone it touches no file system that holds data.
	Observe(context.Context, []Signal) Observations
	// Use tells what pods use.
	Use(context.Context, Depth) (map[types.UID]Use, error)
}

// Depth is how much is measured of what pods use.
type Depth int

// The depths.
const (
	MemoryNow   Depth = iota // memory alone; no file system is touched
	DisksLately              // all, and of volumes what they held lately
	DisksNow                 // all, volumes too
)

// Order is how a pod has to end.
type Order struct {
	Grace time.Duration
	// AtOnce leaves the pod no time to react at all.
	AtOnce  bool
	Message string
	// Disrupts says that the pod ends for the sake of others, and not by its own
	// fault.
	Disrupts bool
}

// events tells what happens where users look for it.
type events interface {
	Node(eventType, reason, message string)
	Annotated(p *v1.Pod, annotations map[string]string, eventType, reason, message string)
}

// Config holds what an Evictor is built from. Fields are required unless their
// comment says otherwise.
type Config struct {
	Thresholds []Threshold // see [Parse]
	// Hold is how long a pressure is shown after it was last there.
	Hold time.Duration
	// MaxPodGrace is the longest period of grace of a pod that a soft threshold ends.
	MaxPodGrace time.Duration
	// Limits has pods ended that keep more on the node's disk than they may.
	Limits bool
	Source Source
	// After are all closed when it is known what runs; before that nothing is done
	// but looking.
	After []<-chan struct{}
	// Pods are those that take up the node, with what they were granted.
	Pods func() []*v1.Pod
	// Evict ends a pod. The channel is closed when nothing of it is left that takes
	// up the node.
	Evict func(types.UID, Order) (released <-chan struct{})
	// RemoveEnded removes containers that have ended and are of no more use,
	// RemoveImages images that nobody uses. They return when that is done.
	RemoveEnded, RemoveImages func(context.Context) error
	// OnChange is called when the pressures have changed; it must not block.
	OnChange func()
	Events   events
	Registry prometheus.Registerer // nil: nothing is counted
	Log      *slog.Logger
	Now      func() time.Time
}

// Evictor ends pods when the node runs out of something.
type Evictor struct {
	cfg     Config
	metrics *metrics
	looked  chan struct{} // closed when both loops have looked once

	mu      sync.Mutex
	leaving map[types.UID]bool // evicted here, and not yet removed
	// shunned are pods that caused a panic, and until when they are no candidates.
	shunned  map[types.UID]time.Time
	lanes    [2][]v1.NodeConditionType
	first    [2]bool
	short    bool // memory is below a threshold that has to be acted on
	reported map[string]bool
}

// The loops.
const (
	memoryLane = iota
	diskLane
)

// New makes an Evictor; nothing is measured before Run.
func New(cfg Config) (*Evictor, error) {
	m, err := newMetrics(cfg.Registry)
	e := &Evictor{
		cfg:      cfg,
		metrics:  m,
		looked:   make(chan struct{}),
		leaving:  map[types.UID]bool{},
		shunned:  map[types.UID]time.Time{},
		reported: map[string]bool{},
	}
	return e, err
}

// Run looks until ctx ends.
func (e *Evictor) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { e.watchMemory(ctx); return nil })
	g.Go(func() error { e.watchDisks(ctx); return nil })
	return g.Wait()
}

// Pressures are those that the node is under, as far as they are known.
func (e *Evictor) Pressures() []v1.NodeConditionType {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pressuresLocked()
}

// Known is Pressures once both loops have looked. It does not wait for long.
func (e *Evictor) Known(ctx context.Context) []v1.NodeConditionType {
	late := time.NewTimer(firstLook)
	defer late.Stop()
	select {
	case <-e.looked:
	case <-ctx.Done():
	case <-late.C:
	}
	return e.Pressures()
}

func (e *Evictor) pressuresLocked() []v1.NodeConditionType {
	return slices.Compact(slices.Concat(e.lanes[memoryLane], e.lanes[diskLane]))
}

// show publishes what a loop has found.
func (e *Evictor) show(lane int, found []v1.NodeConditionType) {
	e.mu.Lock()
	before := e.pressuresLocked()
	e.lanes[lane] = found
	now := e.pressuresLocked()
	if !e.first[lane] {
		e.first[lane] = true
		if e.first[memoryLane] && e.first[diskLane] {
			close(e.looked)
		}
	}
	e.mu.Unlock()
	if !slices.Equal(before, now) {
		e.cfg.Log.Info("pressures on the node changed", "before", before, "now", now)
		e.cfg.OnChange()
	}
}

// mayAct reports whether it is known what runs.
func (e *Evictor) mayAct() bool {
	for _, after := range e.cfg.After {
		select {
		case <-after:
		default:
			return false
		}
	}
	return true
}

// candidates are the pods that may be ended, by what they use.
func (e *Evictor) candidates(uses map[types.UID]Use) []Candidate {
	e.mu.Lock()
	leaving := maps.Clone(e.leaving)
	e.mu.Unlock()
	pods := e.cfg.Pods()
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.Copy(leaving, e.leaving) // one that left in between may be among the pods yet
	for uid, until := range e.shunned {
		if e.cfg.Now().Before(until) {
			leaving[uid] = true
		}
	}
	return Candidates(pods, uses, leaving)
}

// relieve evicts a pod for one of the thresholds that are met, and waits for that. It
// reports whether there was one.
func (e *Evictor) relieve(ctx context.Context, m Met, met []Met, d Disks, atOnce bool) bool {
	depth := DisksNow
	if m.Signal.memory() {
		depth = MemoryNow
	}
	uses, err := e.cfg.Source.Use(ctx, depth)
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		e.complain("use", "cannot tell what pods use, so none is ended", err)
		return false
	}
	e.complain("use", "", nil)
	now := e.cfg.Now()
	for _, each := range met {
		e.metrics.age(each.Signal, now.Sub(each.At))
	}
	var sound []Candidate
	e.each(e.candidates(uses), func(c Candidate) {
		Choose(m, []Candidate{c}, d, now)
		sound = append(sound, c)
	})
	c, found := Choose(m, sound, d, now)
	if !found {
		e.complain("nobody", "the node is short of something, and there is no pod that can be ended for it", errShort{m})
		return false
	}
	e.complain("nobody", "", nil)
	message, notes := explain(m, c)
	order := Order{Grace: Grace(m, c.Pod, e.cfg.MaxPodGrace), AtOnce: atOnce, Message: message, Disrupts: true}
	if atOnce {
		order.Grace = 0
	}
	if released, err := e.end(c.Pod, m.Signal, notes, order); err == nil {
		e.await(ctx, []leaver{{c.Pod, released}})
	}
	return true
}

// each calls judge with each of the pods. If judge panics for a pod, that pod is skipped.
func (e *Evictor) each(from []Candidate, judge func(Candidate)) {
	for _, c := range from {
		err := e.contain(func() error {
			judge(c)
			return nil
		})
		if err != nil {
			e.shun(c.Pod)
		}
	}
}

// shun removes a pod from the candidates for shunFor, after a panic at it.
func (e *Evictor) shun(p *v1.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.leaving, p.UID)
	e.shunned[p.UID] = e.cfg.Now().Add(shunFor)
}

func (e *Evictor) contain(f func() error) error { return panics.Try(e.cfg.Log, "eviction", f) }

// end evicts one pod and records it. After a panic the pod is no candidate for shunFor.
func (e *Evictor) end(p *v1.Pod, s Signal, notes map[string]string, o Order) (released <-chan struct{}, err error) {
	e.mu.Lock()
	e.leaving[p.UID] = true
	e.mu.Unlock()
	err = e.contain(func() error {
		released = e.order(p, s, notes, o)
		return nil
	})
	if err != nil {
		e.cfg.Log.Error("cannot evict pod", "pod", p.Namespace+"/"+p.Name, "uid", p.UID, "signal", s, "err", err)
		e.shun(p)
	}
	return released, err
}

func (e *Evictor) order(p *v1.Pod, s Signal, notes map[string]string, o Order) <-chan struct{} {
	released := e.cfg.Evict(p.UID, o) // first of all: what follows can wait
	e.cfg.Log.Info("pod is evicted", "pod", p.Namespace+"/"+p.Name, "uid", p.UID, "signal", s, "grace", o.Grace, "atOnce", o.AtOnce, "message", o.Message)
	e.cfg.Events.Annotated(p, notes, v1.EventTypeWarning, pod.ReasonEvicted, o.Message)
	e.metrics.evicted(s)
	return released
}

// leaver is a pod on its way out.
type leaver struct {
	pod      *v1.Pod
	released <-chan struct{}
}

// await waits until the pods are gone, for a while. One that takes longer is not
// chosen again: it may not be able to end, and others are.
func (e *Evictor) await(ctx context.Context, pods []leaver) {
	late := time.NewTimer(patience)
	defer late.Stop()
	for _, l := range pods {
		select {
		case <-l.released:
			e.mu.Lock()
			delete(e.leaving, l.pod.UID)
			e.mu.Unlock()
			continue
		case <-ctx.Done():
			return
		case <-late.C:
			late.Reset(0)
			e.cfg.Log.Warn("evicted pod is still there", "pod", l.pod.Namespace+"/"+l.pod.Name, "uid", l.pod.UID, "after", patience)
		}
	}
}

// sweep forgets pods that take up the node no more.
func (e *Evictor) sweep() {
	e.mu.Lock()
	leaving := slices.AppendSeq(slices.Collect(maps.Keys(e.leaving)), maps.Keys(e.shunned))
	e.mu.Unlock()
	if len(leaving) == 0 {
		return
	}
	there := map[types.UID]bool{}
	for _, p := range e.cfg.Pods() {
		there[p.UID] = true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, uid := range leaving {
		if !there[uid] {
			delete(e.leaving, uid)
			delete(e.shunned, uid)
		}
	}
}

// complain logs what keeps it from its work when that begins.
func (e *Evictor) complain(what, message string, err error) {
	e.mu.Lock()
	before := e.reported[what]
	e.reported[what] = err != nil
	e.mu.Unlock()
	if err != nil && !before {
		e.cfg.Log.Warn(message, "err", err)
	}
}

// errShort tells what too little is left of.
type errShort struct{ Met }

func (e errShort) Error() string {
	return string(e.Signal) + " is below its threshold"
}
