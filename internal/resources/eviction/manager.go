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

	"keelson/internal/pods/panics"
	"keelson/internal/pods/pod"
)

const (
	// monitoringInterval is the maximum interval between two checks.
	monitoringInterval = 10 * time.Second
	// evictionWait is how long the manager waits for an evicted pod before it chooses another one.
	evictionWait = 30 * time.Second
	// excludePeriod is how long a pod is excluded after a panic while it was processed.
	excludePeriod = 5 * time.Minute
	// firstCheckTimeout is how long Known waits for the first check.
	firstCheckTimeout = 3 * time.Second
)

// Source provides measurements. It is safe for concurrent use.
type Source interface {
	// Disks reports which file systems are separate. It fails until the runtime has reported its own.
	Disks(context.Context) (Disks, error)
	// Observe measures the signals. Signals that cannot be measured are left out. For memory signals only, no file
	// system with data is accessed.
	Observe(context.Context, []Signal) Observations
	// Use returns the usage of pods.
	Use(context.Context, Depth) (map[types.UID]Use, error)
}

// Depth is how much of the usage of pods is measured.
type Depth int

// The depths.
const (
	MemoryNow   Depth = iota // memory only; no file system is accessed
	DisksLately              // all, with the last measurement of volumes
	DisksNow                 // all, with a new measurement of volumes
)

// Order is a request to evict a pod.
type Order struct {
	Grace time.Duration
	// Immediate kills the pod without any grace period.
	Immediate bool
	Message   string
	// Disrupts marks the pod as a disruption target: it is evicted for a node-level signal.
	Disrupts bool
}

// events records events.
type events interface {
	Node(eventType, reason, message string)
	Annotated(p *v1.Pod, annotations map[string]string, eventType, reason, message string)
}

// Config holds the configuration of a Manager. All fields are required unless noted otherwise.
type Config struct {
	Thresholds []Threshold // of [Parse]
	// PressureTransition is evictionPressureTransitionPeriod: how long a pressure condition remains after it was last
	// observed.
	PressureTransition time.Duration
	// MaxPodGrace is evictionMaxPodGracePeriod, for soft thresholds.
	MaxPodGrace time.Duration
	// Limits enables evictions of pods that exceed a limit of local storage.
	Limits bool
	Source Source
	// Synced are closed when all running pods are known. Before that, thresholds are checked and nothing is evicted.
	Synced []<-chan struct{}
	// Pods returns the pods that use resources of the node, with their allocated resources.
	Pods func() []*v1.Pod
	// Evict evicts a pod. The channel is closed when its resources are released.
	Evict func(types.UID, Order) (released <-chan struct{})
	// RemoveDeadContainers removes dead containers, and RemoveUnusedImages unused images. They return when that is
	// done.
	RemoveDeadContainers, RemoveUnusedImages func(context.Context) error
	// OnChange is called when the pressure conditions have changed. It must not block.
	OnChange func()
	Events   events
	Registry prometheus.Registerer // nil: no metrics
	Log      *slog.Logger
	Now      func() time.Time
}

// Manager evicts pods when the node runs low on a resource.
type Manager struct {
	cfg     Config
	metrics *metrics
	synced  chan struct{} // closed after the first check of both loops

	mu       sync.Mutex
	evicting map[types.UID]bool // evictions in progress
	// excluded are pods that caused a panic, with the end of their exclusion.
	excluded  map[types.UID]time.Time
	pressures [2][]v1.NodeConditionType
	checked   [2]bool
	short     bool // a memory threshold has to be acted on
	reported  map[string]bool
}

// The loops.
const (
	memoryLoop = iota
	diskLoop
)

// New returns a Manager. Nothing is measured before Run.
func New(cfg Config) (*Manager, error) {
	m, err := newMetrics(cfg.Registry)
	e := &Manager{
		cfg:      cfg,
		metrics:  m,
		synced:   make(chan struct{}),
		evicting: map[types.UID]bool{},
		excluded: map[types.UID]time.Time{},
		reported: map[string]bool{},
	}
	return e, err
}

// Run monitors the node until ctx ends.
func (e *Manager) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { e.monitorMemory(ctx); return nil })
	g.Go(func() error { e.monitorDisks(ctx); return nil })
	return g.Wait()
}

// Pressures returns the current pressure conditions.
func (e *Manager) Pressures() []v1.NodeConditionType {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pressuresLocked()
}

// Known returns the pressure conditions after the first check of both loops. It waits for that for a limited time.
func (e *Manager) Known(ctx context.Context) []v1.NodeConditionType {
	late := time.NewTimer(firstCheckTimeout)
	defer late.Stop()
	select {
	case <-e.synced:
	case <-ctx.Done():
	case <-late.C:
	}
	return e.Pressures()
}

func (e *Manager) pressuresLocked() []v1.NodeConditionType {
	return slices.Compact(slices.Concat(e.pressures[memoryLoop], e.pressures[diskLoop]))
}

// publish publishes the pressure conditions of a loop.
func (e *Manager) publish(lane int, found []v1.NodeConditionType) {
	e.mu.Lock()
	before := e.pressuresLocked()
	e.pressures[lane] = found
	now := e.pressuresLocked()
	if !e.checked[lane] {
		e.checked[lane] = true
		if e.checked[memoryLoop] && e.checked[diskLoop] {
			close(e.synced)
		}
	}
	e.mu.Unlock()
	if !slices.Equal(before, now) {
		e.cfg.Log.Info("pressure conditions of the node changed", "before", before, "after", now)
		e.cfg.OnChange()
	}
}

// canEvict reports whether all running pods are known.
func (e *Manager) canEvict() bool {
	for _, after := range e.cfg.Synced {
		select {
		case <-after:
		default:
			return false
		}
	}
	return true
}

// candidates returns the pods that may be evicted, with their usage.
func (e *Manager) candidates(uses map[types.UID]Use) []Candidate {
	e.mu.Lock()
	leaving := maps.Clone(e.evicting)
	e.mu.Unlock()
	pods := e.cfg.Pods()
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.Copy(leaving, e.evicting) // an eviction may have started since
	for uid, until := range e.excluded {
		if e.cfg.Now().Before(until) {
			leaving[uid] = true
		}
	}
	return Candidates(pods, uses, leaving)
}

// evictForThreshold evicts one pod for one of the thresholds that are met, and waits until it is released. It reports
// whether a pod was evicted.
func (e *Manager) evictForThreshold(ctx context.Context, m Met, met []Met, d Disks, atOnce bool) bool {
	depth := DisksNow
	if m.Signal.memory() {
		depth = MemoryNow
	}
	uses, err := e.cfg.Source.Use(ctx, depth)
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		e.logOnce("use", "failed to get usage of pods; no pod is evicted", err)
		return false
	}
	e.logOnce("use", "", nil)
	now := e.cfg.Now()
	for _, each := range met {
		e.metrics.observeStatsAge(each.Signal, now.Sub(each.At))
	}
	var sound []Candidate
	e.forEach(e.candidates(uses), func(c Candidate) {
		Choose(m, []Candidate{c}, d, now)
		sound = append(sound, c)
	})
	c, found := Choose(m, sound, d, now)
	if !found {
		e.logOnce("candidates", "eviction threshold is met, but no pod can be evicted", errShort{m})
		return false
	}
	e.logOnce("candidates", "", nil)
	message, notes := evictionMessage(m, c)
	order := Order{Grace: Grace(m, c.Pod, e.cfg.MaxPodGrace), Immediate: atOnce, Message: message, Disrupts: true}
	if atOnce {
		order.Grace = 0
	}
	if released, err := e.evict(c.Pod, m.Signal, notes, order); err == nil {
		e.awaitReleased(ctx, []evictedPod{{c.Pod, released}})
	}
	return true
}

// forEach calls judge for each pod. A pod for which judge panics is skipped and excluded.
func (e *Manager) forEach(from []Candidate, judge func(Candidate)) {
	for _, c := range from {
		err := e.guard(func() error {
			judge(c)
			return nil
		})
		if err != nil {
			e.exclude(c.Pod)
		}
	}
}

// exclude excludes a pod from eviction for a while, after a panic while it was processed.
func (e *Manager) exclude(p *v1.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.evicting, p.UID)
	e.excluded[p.UID] = e.cfg.Now().Add(excludePeriod)
}

func (e *Manager) guard(f func() error) error { return panics.Try(e.cfg.Log, "eviction", f) }

// evict evicts one pod and records it. The pod is excluded if that panics.
func (e *Manager) evict(p *v1.Pod, s Signal, notes map[string]string, o Order) (released <-chan struct{}, err error) {
	e.mu.Lock()
	e.evicting[p.UID] = true
	e.mu.Unlock()
	err = e.guard(func() error {
		released = e.doEvict(p, s, notes, o)
		return nil
	})
	if err != nil {
		e.cfg.Log.Error("failed to evict pod",
			"pod", p.Namespace+"/"+p.Name, "podUID", p.UID, "signal", s, "err", err)
		e.exclude(p)
	}
	return released, err
}

func (e *Manager) doEvict(p *v1.Pod, s Signal, notes map[string]string, o Order) <-chan struct{} {
	released := e.cfg.Evict(p.UID, o) // first, because the rest is not urgent
	e.cfg.Log.Info("evicting pod", "pod", p.Namespace+"/"+p.Name, "podUID", p.UID, "signal", s,
		"gracePeriod", o.Grace, "immediate", o.Immediate, "message", o.Message)
	e.cfg.Events.Annotated(p, notes, v1.EventTypeWarning, pod.ReasonEvicted, o.Message)
	e.metrics.countEviction(s)
	return released
}

// evictedPod is an evicted pod.
type evictedPod struct {
	pod      *v1.Pod
	released <-chan struct{}
}

// awaitReleased waits for a limited time until the pods are released. A pod that takes longer is not chosen again,
// because it may not be able to terminate.
func (e *Manager) awaitReleased(ctx context.Context, pods []evictedPod) {
	late := time.NewTimer(evictionWait)
	defer late.Stop()
	for _, l := range pods {
		select {
		case <-l.released:
			e.mu.Lock()
			delete(e.evicting, l.pod.UID)
			e.mu.Unlock()
			continue
		case <-ctx.Done():
			return
		case <-late.C:
			late.Reset(0)
			e.cfg.Log.Warn("timed out waiting for evicted pod to terminate",
				"pod", l.pod.Namespace+"/"+l.pod.Name, "podUID", l.pod.UID, "timeout", evictionWait)
		}
	}
}

// forgetReleased removes the state of pods that no longer use resources of the node.
func (e *Manager) forgetReleased() {
	e.mu.Lock()
	leaving := slices.AppendSeq(slices.Collect(maps.Keys(e.evicting)), maps.Keys(e.excluded))
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
			delete(e.evicting, uid)
			delete(e.excluded, uid)
		}
	}
}

// logOnce logs the first of several consecutive failures.
func (e *Manager) logOnce(what, message string, err error) {
	e.mu.Lock()
	before := e.reported[what]
	e.reported[what] = err != nil
	e.mu.Unlock()
	if err != nil && !before {
		e.cfg.Log.Warn(message, "err", err)
	}
}

// errShort names the signal of a threshold.
type errShort struct{ Met }

func (e errShort) Error() string {
	return string(e.Signal) + " is below its threshold"
}
