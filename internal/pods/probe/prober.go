package probe

import (
	"container/heap"
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/host/clock"
	"keelson/internal/pods/panics"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
)

// Executor runs a command in a container. An error means that it could not be run;
// timedOut, that it exceeded its timeout.
type Executor interface {
	Exec(
		ctx context.Context, containerID string, command []string, timeout time.Duration,
	) (output []byte, code int32, timedOut bool, err error)
}

// Config holds what a Prober is built from. Every field is required.
type Config struct {
	Exec     Executor
	Events   pod.Events
	OnChange func(types.UID) // a result changed; must not block
	// Workers is how many runs may be in progress within their first slotTimeout. A run that
	// takes longer continues without a worker, so a container that hangs does not delay other
	// probes.
	Workers int
	Version string // major.minor of the agent, for user agents
	Log     *slog.Logger
	Now     func() time.Time
}

// Prober runs the probes of all pods on the node.
type Prober struct {
	cfg     Config
	web     *http.Transport
	started time.Time // when the agent started; containers that ran before have no initial delay

	mu      sync.Mutex
	metrics metrics
	pods    map[types.UID]map[string]*target // by container ID
	due     schedule
	busy    []*run        // runs that have a worker, the oldest first
	wake    chan struct{} // capacity 1
}

// run is one run of a probe.
type run struct {
	check *check
	began time.Time
}

// target is one container instance under probe.
type target struct {
	uid         types.UID
	pod         *v1.Pod
	ips         []string
	container   pod.Container
	spec        *v1.Container
	startup     *check
	liveness    *check
	readiness   *check
	restored    bool // the stored status was found
	terminating bool
}

// check is one probe of one container instance.
type check struct {
	target   *target
	kind     string
	probe    *v1.Probe
	settings settings
	counter  counter
	known    bool // a threshold was reached; before that ok is the initial value
	ok       bool
	settled  bool
	running  bool
	at       time.Time
	index    int // in the schedule; -1 when not in it

	tick  time.Time     // when the last run that counts was due
	eager bool          // the next run is one between two ticks
	pause time.Duration // before a run between two ticks
}

// New makes a Prober. Nothing is probed before Run.
func New(cfg Config) *Prober {
	return &Prober{
		cfg:     cfg,
		web:     probeTransport,
		started: cfg.Now(),
		metrics: newMetrics(),
		pods:    map[types.UID]map[string]*target{},
		wake:    make(chan struct{}, 1),
	}
}

// Sync updates the containers of the pod. Probes of containers that are removed or
// not running are stopped; those of new ones are started. While the pod terminates,
// regular containers are probed for readiness only. Sidecars keep all their probes;
// failures are recorded in events, but no sidecar is restarted for them.
func (p *Prober) Sync(v podplan.View, podIPs []string, terminating bool) {
	spec, have := v.Pod, v.Have
	p.mu.Lock()
	defer p.mu.Unlock()
	targets := p.pods[spec.UID]
	keep := map[string]bool{}
	_, anew := v.Trigger() // all containers are restarted
	for kind, c := range pod.Containers(spec) {
		if kind == pod.Init || kind == pod.Ephemeral ||
			c.StartupProbe == nil && c.LivenessProbe == nil && c.ReadinessProbe == nil {
			continue
		}
		seen, ok := have.Latest(c.Name)
		if ok && seen.State == pod.StateExited && !anew && !v.ShouldRestart(kind, c, seen) {
			p.metrics.forgetContainer(spec.UID, c.Name)
		}
		if !ok || seen.State != pod.StateRunning {
			continue
		}
		keep[seen.ID] = true
		t := targets[seen.ID]
		if t == nil {
			t = p.add(spec, c, seen)
			if targets == nil {
				targets = map[string]*target{}
				p.pods[spec.UID] = targets
			}
			targets[seen.ID] = t
		} else if !t.restored {
			p.restore(t, spec)
		}
		t.pod, t.ips = spec, podIPs
		if terminating && !t.terminating {
			t.terminating = true
			if kind != pod.Sidecar {
				p.drop(t.startup)
				p.drop(t.liveness)
			}
		}
	}
	for id, t := range targets {
		if !keep[id] {
			p.dropAll(t)
			delete(targets, id)
		}
	}
	if len(targets) == 0 {
		delete(p.pods, spec.UID)
		if terminating {
			p.metrics.forget(spec.UID)
		}
	}
	p.wakeLocked()
}

// add begins the probes of a container. For one that ran before the agent started, the
// results are restored from the stored status, so that a restart of the agent does not
// change the pod's conditions. One of a static pod without a stored status counts as
// started, as it does for upstream.
func (p *Prober) add(spec *v1.Pod, c *v1.Container, seen pod.Container) *target {
	t := &target{uid: spec.UID, pod: spec, container: seen, spec: c}
	before := seen.StartedAt.Before(p.started)
	_, known := storedStatus(spec, seen)
	make := func(kind string, probe *v1.Probe, initial bool) *check {
		if probe == nil {
			return nil
		}
		k := &check{target: t, kind: kind, probe: probe, settings: settingsOf(probe), ok: initial, index: -1}
		lead := k.settings.delay
		if kind == kindLiveness && lead == 0 {
			lead = k.settings.period // a failure restarts the container, so it has one period to start
		}
		// The start time is of the wall clock, which may be set back: from here on the monotonic
		// clock is used, and no wait is longer than configured.
		now := p.cfg.Now()
		k.at = now.Add(min(seen.StartedAt.Add(lead).Sub(now), lead))
		if before && k.at.Before(now) {
			// After a restart of the agent, probes are spread over their period.
			k.at = now
			if known {
				k.at = now.Add(rand.N(k.settings.period))
			}
		}
		return k
	}
	t.startup = make(kindStartup, c.StartupProbe, false)
	t.liveness = make(kindLiveness, c.LivenessProbe, true)
	t.readiness = make(kindReadiness, c.ReadinessProbe, false)
	p.restore(t, spec)
	if before && !known && pod.IsStatic(spec) {
		// The status of a static pod is that of its mirror pod, which may arrive late or never,
		// and a running container must not be restarted because its startup probe fails now.
		t.presumeStarted()
	}
	if !t.open() {
		p.push(t.startup)
	} else {
		p.push(t.liveness)
		p.push(t.readiness)
	}
	return t
}

// presumeStarted marks the startup probe as succeeded.
func (t *target) presumeStarted() {
	if t.startup != nil {
		t.startup.known, t.startup.ok, t.startup.settled = true, true, true
	}
}

// restore restores the results of a container that ran before the agent started from its
// stored status, as far as its probes have no result yet. For a static pod that needs the
// mirror pod.
func (p *Prober) restore(t *target, spec *v1.Pod) {
	if !t.container.StartedAt.Before(p.started) {
		return
	}
	var stored v1.ContainerStatus
	if stored, t.restored = storedStatus(spec, t.container); !t.restored {
		return
	}
	if r := t.readiness; r != nil && !r.known {
		r.ok = stored.Ready
	}
	if s := t.startup; s != nil && !s.known && stored.Started != nil && *stored.Started {
		p.drop(s)
		s.known, s.ok = true, true
		p.push(t.liveness)
		p.push(t.readiness)
	}
}

// storedStatus returns the stored status of this container instance.
func storedStatus(spec *v1.Pod, seen pod.Container) (v1.ContainerStatus, bool) {
	for _, list := range [][]v1.ContainerStatus{spec.Status.InitContainerStatuses, spec.Status.ContainerStatuses} {
		for _, s := range list {
			if s.Name == seen.Name && len(s.ContainerID) > len(seen.ID) &&
				s.ContainerID[len(s.ContainerID)-len(seen.ID):] == seen.ID {
				return s, true
			}
		}
	}
	return v1.ContainerStatus{}, false
}

// open reports whether liveness and readiness may be probed.
func (t *target) open() bool { return t.startup == nil || t.startup.known && t.startup.ok }

// Result is the probe result of one container. Without a probe it is success.
type Result struct {
	Started        bool
	Ready          bool
	StartupFailed  bool
	LivenessFailed bool
}

// Result returns the probe result of the container instance.
func (p *Prober) Result(spec *v1.Pod, c pod.Container) Result {
	if c.State != pod.StateRunning {
		return Result{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.pods[spec.UID][c.ID]
	if t == nil {
		_, s, ok := pod.Find(spec, c.Name)
		started := !ok || s.StartupProbe == nil
		return Result{Started: started, Ready: started && (!ok || s.ReadinessProbe == nil)}
	}
	started := t.open()
	return Result{
		Started:        started,
		Ready:          started && (t.readiness == nil || t.readiness.ok),
		StartupFailed:  t.startup != nil && t.startup.known && !t.startup.ok && !t.terminating,
		LivenessFailed: t.liveness != nil && t.liveness.known && !t.liveness.ok && !t.terminating,
	}
}

// Forget ends all probes of the pod.
func (p *Prober) Forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.pods[uid] {
		p.dropAll(t)
	}
	delete(p.pods, uid)
	p.metrics.forget(uid)
}

// Run probes until ctx ends.
func (p *Prober) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next := p.launch(ctx, &group)
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(max(next.Sub(p.cfg.Now()), 0))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		case <-timer.C:
		}
	}
}

// slotTimeout is how long a run keeps its worker. Most take a few milliseconds.
const slotTimeout = 200 * time.Millisecond

// launch starts every probe that is due while there are workers. It returns when the next one can be started; zero if
// none is scheduled.
func (p *Prober) launch(ctx context.Context, group *sync.WaitGroup) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.due) > 0 {
		k, now := p.due[0], p.cfg.Now()
		if k.at.After(now) {
			return k.at
		}
		if len(p.busy) >= p.cfg.Workers {
			if free := p.busy[0].began.Add(slotTimeout); free.After(now) {
				return free
			}
			p.busy = p.busy[1:] // the run continues without a worker
		}
		heap.Pop(&p.due)
		k.running = true
		ask, r := p.prepare(k), &run{k, now}
		p.busy = append(p.busy, r)
		group.Go(func() {
			start := time.Now()
			var o outcome
			var output string
			if err := panics.Try(p.cfg.Log, "probes", func() error { o, output = ask(ctx); return nil }); err != nil {
				o, output = errored, err.Error()
			}
			p.finish(ctx, r, o, output, time.Since(start))
		})
	}
	return time.Time{}
}

// finish records an outcome and schedules the next run.
func (p *Prober) finish(ctx context.Context, r *run, o outcome, output string, took time.Duration) {
	if ctx.Err() != nil {
		return
	}
	k := r.check
	t := k.target
	p.mu.Lock()
	k.running = false
	if i := slices.Index(p.busy, r); i >= 0 {
		p.busy = slices.Delete(p.busy, i, i+1)
	}
	live := p.pods[t.uid][t.container.ID] == t && !k.settled
	changed := false
	if live {
		p.metrics.ran(t.pod, k, o, took)
		if live = k.counts(o); live {
			changed = p.note(k, o)
		}
		if !k.settled {
			k.schedule(o, p.cfg.Now())
			p.push(k)
		}
	}
	spec := t.pod
	p.wakeLocked()
	p.mu.Unlock()
	if live {
		p.report(spec, k, o, output)
	}
	if changed {
		p.cfg.OnChange(t.uid)
	}
}

// firstPause is the time between the first run of a probe and the run after it, while the
// container does not respond yet.
const firstPause = 50 * time.Millisecond

// counts reports whether thresholds count the outcome of a run: a failure between two
// ticks, while the container starts, does not count.
func (k *check) counts(o outcome) bool { return !k.eager || o == success || o == warning }

// schedule sets the time of the next run: the next tick of the period, or before it, after a doubling pause, while a
// container that has just started does not respond yet. Most begin to listen shortly after their start and would
// otherwise be ready a whole period later.
func (k *check) schedule(o outcome, now time.Time) {
	if !k.eager {
		k.tick = k.at
	}
	next := clock.Later(k.tick.Add(k.settings.period), now)
	if o == failure && !k.known && k.probe.Exec == nil && k.kind != kindLiveness {
		k.pause = max(2*k.pause, firstPause)
		if soon := now.Add(k.pause); soon.Before(next) {
			k.at, k.eager = soon, true
			return
		}
	}
	k.at, k.eager = next, false
}

// note counts an outcome and reports whether the result changed.
func (p *Prober) note(k *check, o outcome) bool {
	ok, decided := k.counter.observe(o, k.settings)
	if !decided {
		return false
	}
	changed := !k.known || k.ok != ok
	k.known, k.ok = true, ok
	t := k.target
	switch {
	case k == t.startup:
		k.settled = true
		if ok {
			// The first success makes the readiness probe due at once.
			now := p.cfg.Now()
			for _, gated := range []*check{t.liveness, t.readiness} {
				if gated != nil {
					gated.at = clock.Later(gated.at, now)
					p.push(gated)
				}
			}
		}
	case k == t.liveness && !ok:
		k.settled = true
	}
	return changed
}

func (p *Prober) wakeLocked() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *Prober) push(k *check) {
	if k != nil && k.index < 0 && !k.running && !k.settled {
		heap.Push(&p.due, k)
	}
}

func (p *Prober) drop(k *check) {
	if k == nil {
		return
	}
	k.settled = true
	if k.index >= 0 {
		heap.Remove(&p.due, k.index)
	}
}

func (p *Prober) dropAll(t *target) {
	p.drop(t.startup)
	p.drop(t.liveness)
	p.drop(t.readiness)
}

// schedule is a heap of checks, the earliest first.
type schedule []*check

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].at.Before(s[j].at) }
func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}
func (s *schedule) Push(x any) {
	k := x.(*check)
	k.index = len(*s)
	*s = append(*s, k)
}
func (s *schedule) Pop() any {
	old := *s
	k := old[len(old)-1]
	old[len(old)-1] = nil
	*s = old[:len(old)-1]
	k.index = -1
	return k
}
