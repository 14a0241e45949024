package podsync

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/explain"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/internal/pods/status"
)

// worker looks after one pod. Its turn runs on one goroutine; its tasks run on
// others and share with it what mu guards.
type worker struct {
	s    *Syncer
	uid  types.UID
	log  *slog.Logger
	wake chan struct{} // capacity 1: one waiting poke says all there is to say
	ask  chan chan<- explain.Pod

	turning atomic.Pointer[time.Time] // since when it is in a turn; nil: it is not

	discard atomic.Bool // what is left of the pod in the runtime is not wanted any more
	forced  atomic.Bool // see Syncer.Force
	// released is closed when nothing of the pod takes up the node, emptied when
	// the runtime holds nothing of it either.
	released, emptied      chan struct{}
	releaseOnce, emptyOnce sync.Once

	// Only the turn touches these.
	spec         *v1.Pod // the last specification seen; kept when the source forgets the pod
	mirror       *v1.Pod // of a static pod; nil while the API server has none
	known        bool    // a source holds the pod now
	vanished     bool    // no source held it once; it is not taken up again by this worker
	namesake     string  // full name of a static pod that only the runtime knows
	adopted      bool    // nobody knows it, and traces on the node tell of it: all of them are removed
	takenUp      bool    // what was left half done was looked at
	endRead      bool    // whether an earlier agent has put the pod out was read
	ended        bool    // it has
	restartsRead bool    // what an earlier agent noted of restarts was read
	rejected     bool
	late         pod.Late // the device plugins that it waits for
	admitted     bool
	podIPs       []string
	mismatch     string    // of the node's addresses, as it was last said of this pod
	started      time.Time // when the pod's life on this node began; status.startTime
	images       map[string]imageFact
	renewed      map[string]int       // containers that a restart of all made begin anew, and as which attempt
	held         map[string]time.Time // containers whose back-off was announced, and until when
	resized      *v1.Pod              // whose resources were last to be put in force
	desired      *v1.Pod              // as its source has it; spec differs by what was granted
	networkSaid  bool
	volumeErr    string
	story        story
	times        times
	turnPause    time.Duration // after a turn that panicked
	heldUntil    time.Time     // no turn before that

	noting sync.Mutex     // held while restarts are written down; taken before mu
	anew   map[string]int // of renewed, what is written down

	mu         sync.Mutex
	going      *podplan.Going
	goingWhy   string
	goingSince time.Time
	grace      time.Duration // the shortest period asked for since the pod is going
	outBy      time.Time     // when an expelled pod should be gone; zero: it is not waited for
	override   *status.Override
	verdict    *End         // passed, and not in force yet
	verdictAt  time.Time    // when it was passed
	noted      bool         // it is written down, or cannot be
	denied     *pod.Refusal // what was reserved cannot be had after all
	tasks      map[string]*task
	retries    map[string]retry
	waiting    map[string]status.Waiting // failed starts, by container name
	// startFailed is when a start failed last, until what came of it was seen.
	startFailed time.Time
	backoff     map[string]podplan.Backoff
	ran         map[string]int  // the latest attempt of each container that was started
	announced   map[string]bool // containers that know that they will be stopped, by ID
	reduced     bool            // its cgroup is worth the least
	cgroupGone  bool
	place       place // as metrics show it
	dirsGone    bool
	atOnce      bool                 // containers are killed without SIGTERM
	recalled    map[string]bool      // containers that were stopped in order to be restarted, by ID
	replaced    map[string]time.Time // see [podplan.Input]
	boxes       map[string]bool      // sandboxes that were stopped, by ID
	sized       *v1.Pod              // whose resources the pod's cgroup is known to have; nil: not known
	uprooted    string               // the sandbox whose containers run although the pod's cgroup was removed
}

type imageFact struct {
	attempt int
	asked   time.Time // when this attempt was first asked for
	// failures is how often the container had failed to start when the image was
	// asked for last. After another failure it is asked for again: it may be gone.
	failures int
	result   ImageResult
}

func newWorker(s *Syncer, uid types.UID) *worker {
	return &worker{
		s: s, uid: uid, wake: make(chan struct{}, 1), ask: make(chan chan<- explain.Pod), released: make(chan struct{}), emptied: make(chan struct{}), story: newStory(), times: times{arrived: s.cfg.Now()},
		log:     s.cfg.Log.With("uid", uid),
		images:  map[string]imageFact{},
		renewed: map[string]int{},
		held:    map[string]time.Time{},
		tasks:   map[string]*task{},
		retries: map[string]retry{},
		waiting: map[string]status.Waiting{},
		backoff: map[string]podplan.Backoff{},

		ran:       map[string]int{},
		replaced:  map[string]time.Time{},
		boxes:     map[string]bool{},
		announced: map[string]bool{},
	}
}

func (w *worker) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *worker) run(ctx context.Context) {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case answer := <-w.ask:
			answer <- w.safeExplain()
			continue
		case <-w.wake:
		case <-timer.C:
		}
		began := w.s.cfg.Now()
		w.turning.Store(&began)
		traced, end := w.trace(ctx)
		next, gone := w.safeTurn(traced, &tasks)
		end()
		w.turning.Store(nil)
		if gone && w.s.leave(w) {
			w.noteProgress(true, true)
			return
		}
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(max(next.Sub(w.s.cfg.Now()), 0))
		}
	}
}

// turn looks at the pod once and starts what is to be done. It tells when to
// look again if nothing happens first, and whether nothing is left to look after.
func (w *worker) turn(ctx context.Context, tasks *sync.WaitGroup) (next time.Time, gone bool) {
	cfg := &w.s.cfg
	now := cfg.Now()
	select {
	case <-cfg.Observed.Synced():
	default:
		return time.Time{}, false // what runs is not known yet
	}
	spec, mirror, known := cfg.Desired.Get(w.uid)
	known = known && !w.cameBack(spec)
	switch {
	case w.vanished:
		// A pod that comes back has to wait for its first life to end.
		known = false
	case known:
		w.desired = spec
		w.learn(cfg.Allocation.Consider(spec))
		w.mirror = mirror
	case !w.unknown():
		return time.Time{}, false // its source may not have spoken yet
	}
	w.known = known
	w.vanished = !known
	// What is under way is asked before what there is: a task that ends in between
	// counts as under way, and its end wakes the worker again. The other way round
	// its effect would be missing, and it would be started twice.
	busy := w.underWay()
	have, read := cfg.Observed.Get(w.uid)
	if !read {
		// The runtime has something of the pod that could not be read yet. To act
		// as if there were nothing would be to start it twice.
		return time.Time{}, false
	}
	have.UID = w.uid
	w.takeUpRestarts(have)
	have = w.markUprooted(w.markRecalled(have))
	w.keepStopped(have)
	w.adopted = w.adopted || w.spec == nil && !have.Empty()
	if w.spec == nil && have.Source() != pod.SourceAPI {
		w.namesake = have.FullName()
	}
	switch {
	case w.spec == nil && have.Empty() && !w.adopted:
		return time.Time{}, true // a late word of a pod that is gone
	case w.spec != nil && !w.claimTurn(have):
		if !known {
			w.forget()
		}
		return time.Time{}, !known
	case w.spec != nil:
		w.begin(now, have)
	}
	w.takeUp(have)
	carry := w.carryOut(ctx, tasks, now)
	if w.spec != nil {
		w.spec = podplan.Renew(w.spec, have, w.renewed)
		w.forgetAnew()
	}
	next, waits := w.judge(ctx, tasks, now, have)
	next = earlier(next, carry)
	w.callOffStarts()
	if waits {
		if w.story.held.IsZero() {
			w.story.held = now
		}
		w.publish(have, busy, false)
		return next, false
	}
	w.story.held = time.Time{}
	in := w.input(now, have, busy)
	gap := w.gap(have, busy)
	in.Resize = gap.restarts()
	in.Resizing = gap.holds
	plan := podplan.Decide(in)
	if w.askImages(&plan) {
		in.Images = w.imageFacts()
		plan = podplan.Decide(in)
		w.askImages(&plan)
	}
	w.announce(now, plan)
	w.do(ctx, tasks, plan, have)
	w.resize(ctx, tasks, gap)
	w.dropRetries(now, plan)
	finished := plan.Stopped && w.windUp(ctx, tasks, have)
	w.noteProgress(finished, have.Empty())
	w.publish(have, busy, finished)
	w.measure(now, have, plan.Stopped)
	next = earlier(next, w.lingers(now, plan.Stopped))
	w.tell(now, plan, have, earlier(next, earlier(plan.Wake, w.nextRetry(now))))
	if finished && w.leaveNothing(ctx, tasks, have) {
		w.forget()
		return time.Time{}, true
	}
	return earlier(next, earlier(plan.Wake, w.nextRetry(now))), false
}

// cameBack reports whether a static pod was removed since it was last synced, and added
// again with the same UID. That counts as a new pod, which waits for this one to end.
func (w *worker) cameBack(spec *v1.Pod) bool {
	return w.desired != nil && pod.IsStatic(spec) &&
		spec.Annotations[pod.AnnotationConfigSeen] != w.desired.Annotations[pod.AnnotationConfigSeen]
}

// learn takes up the specification.
func (w *worker) learn(spec *v1.Pod) {
	if w.spec == nil {
		w.log = w.log.With("pod", spec.Namespace+"/"+spec.Name)
	}
	if !w.s.cfg.RestartAll {
		spec = podplan.WithoutRestartAll(spec)
	}
	w.spec = spec
}

// begin fixes when the pod's life on this node began, once: what the stored status
// says, else the oldest trace in the runtime, else now.
func (w *worker) begin(now time.Time, have pod.Runtime) {
	switch {
	case !w.started.IsZero():
	case w.spec.Status.StartTime != nil && !pod.IsStatic(w.spec):
		w.started = w.spec.Status.StartTime.Time
	case len(have.Sandboxes) > 0:
		w.started = have.Sandboxes[len(have.Sandboxes)-1].CreatedAt
	default:
		w.started = now
	}
}

// takeUp completes what was left half done for containers that run: by an agent
// before this one, or by a start whose answer got lost with the runtime.
func (w *worker) takeUp(have pod.Runtime) {
	w.mu.Lock()
	failed := w.startFailed
	w.mu.Unlock()
	if w.takenUp && failed.IsZero() {
		return
	}
	if err := w.s.cfg.Containers.LinkLogs(have); err != nil {
		w.log.Warn("cannot link logs under their older names", "err", err)
	}
	w.takenUp = true
	if have.SeenAt.Before(failed) {
		return // seen before the start failed: it does not show what came of it
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.startFailed.Equal(failed) {
		w.startFailed = time.Time{}
	}
	for _, c := range have.Containers {
		if c.State == pod.StateRunning {
			delete(w.waiting, c.Name) // it has begun after all
		}
	}
}

// underWay are the tasks that have not ended yet, by target.
func (w *worker) underWay() map[string]podplan.Task {
	w.mu.Lock()
	defer w.mu.Unlock()
	busy := make(map[string]podplan.Task, len(w.tasks))
	for target, t := range w.tasks {
		busy[target] = podplan.Task{Verb: t.verb, Deadline: t.deadline}
	}
	return busy
}

// told is the pod with the status that the API server has of it.
func (w *worker) told() *v1.Pod {
	if w.mirror == nil {
		return w.spec
	}
	p := *w.spec
	p.Status = w.mirror.Status
	return &p
}

// input gathers what the decision goes by.
func (w *worker) input(now time.Time, have pod.Runtime, busy map[string]podplan.Task) podplan.Input {
	cfg := &w.s.cfg
	in := podplan.Input{Now: now, Pod: w.spec, Have: have, Forgotten: !w.known || w.expelled() || w.discard.Load(), Busy: busy, Images: w.imageFacts(), KeepEnded: cfg.KeepEnded}
	if w.spec != nil {
		w.seeIPs(have)
		w.mu.Lock()
		isGoing := w.going != nil
		w.mu.Unlock()
		if !isGoing {
			in.NetworkReady = w.networkReady()
			cfg.Objects.Register(w.spec)
			cfg.Volumes.Want(w.spec)
			in.VolumesReady = w.volumesReady()
			cfg.Claims.Want(w.spec)
			claimed, _ := cfg.Claims.Ready(w.uid) // why not is said by whoever prepares them
			in.ClaimsPending = !claimed
			w.await(cfg.Resources.Late(w.spec))
			in.DevicesPending = w.late.Waits()
		}
		cfg.Probes.Sync(w.told(), have, w.podIPs, isGoing)
		in.Probes = map[string]podplan.Probe{}
		for _, c := range have.Containers {
			if c.State == pod.StateRunning {
				r := cfg.Probes.Result(w.spec, c)
				in.Probes[c.ID] = podplan.Probe{Started: r.Started, StartupFailed: r.StartupFailed, LivenessFailed: r.LivenessFailed}
			}
		}
		for target, t := range busy {
			if c, ok := have.Latest(target); ok && t.Verb == podplan.Start && hooked(w.spec, target) {
				in.Probes[c.ID] = podplan.Probe{} // what waits for the hook goes on waiting
			}
		}
		in.LogAttempts = w.logAttempts(have)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.going != nil {
		g := *w.going
		in.Going = &g
	}
	in.RetryAt = make(map[string]time.Time, len(w.retries))
	for target, r := range w.retries {
		if c, ok := have.ByID(target); ok && c.State == pod.StateExited && r.verb == string(podplan.Stop) {
			delete(w.retries, target) // it has stopped after all
			continue
		}
		in.RetryAt[target] = r.at
	}
	maps.DeleteFunc(w.replaced, func(id string, _ time.Time) bool {
		_, held := have.ByID(id)
		return !held
	})
	in.Replaced, in.SandboxStopped = maps.Clone(w.replaced), maps.Clone(w.boxes)
	in.Backoff, in.Announced, in.Ran = maps.Clone(w.backoff), maps.Clone(w.announced), maps.Clone(w.ran)
	return in
}

// failures is how often in a row the container has failed to start.
func (w *worker) failures(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.retries[name].count
}

// hooked reports whether a container is not started before its postStart hook
// has run. Others are when the runtime says so, even if the call that starts
// them has yet to return.
func hooked(p *v1.Pod, name string) bool {
	_, c, ok := pod.Find(p, name)
	return ok && c.Lifecycle != nil && c.Lifecycle.PostStart != nil
}

func (w *worker) imageFacts() map[string]podplan.Image {
	facts := make(map[string]podplan.Image, len(w.images))
	for name, f := range w.images {
		facts[name] = podplan.Image{Attempt: f.attempt, Ready: f.result.Ready && f.failures == w.failures(name), RetryAt: f.result.RetryAt}
	}
	return facts
}

// logAttempts asks the log directory only for containers that the runtime does
// not hold: it is a look at the disk.
func (w *worker) logAttempts(have pod.Runtime) map[string]int {
	var m map[string]int
	for _, spec := range pod.Containers(w.spec) {
		if _, ok := podplan.Instance(w.spec, have, spec.Name); ok {
			continue
		}
		if f, ok := w.images[spec.Name]; ok {
			m = put(m, spec.Name, f.attempt) // asked before
			continue
		}
		n, err := w.s.cfg.Containers.NextAttempt(pod.RefOf(w.spec), spec.Name)
		if err != nil {
			w.log.Warn("cannot tell earlier attempts by the logs", "container", spec.Name, "err", err)
		}
		if n > 0 {
			m = put(m, spec.Name, n)
		}
	}
	return m
}

func (w *worker) seeIPs(have pod.Runtime) {
	if w.spec.Spec.HostNetwork {
		w.podIPs = w.s.cfg.HostIPs()
		return
	}
	if s, ok := have.ReadySandbox(); ok && len(s.IPs) > 0 {
		w.podIPs = pod.Addresses(s.IPs, w.s.cfg.NodeIP)
	}
}

func (w *worker) networkReady() bool {
	err := w.s.cfg.NetworkReady()
	if err == nil || w.spec.Spec.HostNetwork {
		w.networkSaid = false
		return err == nil
	}
	if !w.networkSaid {
		w.networkSaid = true
		w.s.cfg.Events.Pod(w.spec, "", v1.EventTypeWarning, pod.EventNetworkNotReady, "network is not ready: "+err.Error())
	}
	return false
}

// volumesReady reports whether containers can mount what they want; why not is
// said by whoever prepares it.
func (w *worker) volumesReady() bool {
	ready, err := w.s.cfg.Volumes.Ready(w.uid)
	var no *pod.Refusal
	if errors.As(err, &no) {
		w.s.cfg.Allocation.Refused(no.Reason)
		w.refuse(w.s.cfg.Now(), no.Reason, no.Message)
	}
	return ready
}

// askImages asks for the images that the plan wants. It reports whether any
// answer changed what is known.
func (w *worker) askImages(plan *podplan.Plan) (changed bool) {
	for _, step := range plan.Steps {
		if step.Verb != podplan.FetchImage {
			continue
		}
		kind, spec, ok := pod.Find(w.spec, step.Target)
		if !ok {
			continue
		}
		r := w.s.cfg.Images.Ensure(w.spec, spec, step.Attempt)
		before, known := w.images[step.Target]
		asked := before.asked
		if !known || before.attempt != step.Attempt {
			asked = w.s.cfg.Now()
		}
		if !known || before.attempt != step.Attempt || before.result != r || before.failures != w.failures(step.Target) {
			changed = true
		}
		if r.Reason != "" && (r.Reason != before.result.Reason || before.attempt != step.Attempt) {
			w.s.cfg.Containers.NotStarted(kind, r.Reason)
		}
		w.images[step.Target] = imageFact{attempt: step.Attempt, asked: asked, failures: w.failures(step.Target), result: r}
		w.mu.Lock()
		switch {
		case r.Reason != "":
			w.waiting[step.Target] = status.Waiting{Reason: r.Reason, Message: r.Message}
		case r.Ready && isImageReason(w.waiting[step.Target].Reason):
			delete(w.waiting, step.Target)
		}
		w.mu.Unlock()
	}
	return changed
}

func isImageReason(reason string) bool {
	switch reason {
	case pod.ReasonErrImagePull, pod.ReasonImagePullBackOff, pod.ReasonErrImageNeverPull, pod.ReasonInvalidImageName,
		pod.ReasonImageInspectError, pod.ReasonRegistryUnavailable, pod.ReasonSignatureValidation:
		return true
	}
	return false
}

// announce shows containers that wait out a back-off, once for each wait.
func (w *worker) announce(now time.Time, plan podplan.Plan) {
	for name, until := range plan.Held {
		if w.held[name].Equal(until) {
			continue
		}
		w.held[name] = until
		w.mu.Lock()
		delay := w.backoff[name].Delay
		w.waiting[name] = status.Waiting{
			Reason:  pod.ReasonCrashLoopBackOff,
			Message: "back-off " + delay.String() + " restarting failed container=" + name + " pod=" + podTag(w.spec),
		}
		w.mu.Unlock()
		w.s.cfg.Events.Pod(w.spec, name, v1.EventTypeWarning, pod.EventBackOff,
			"Back-off restarting failed container "+name+" in pod "+podTag(w.spec))
	}
	for name := range w.held {
		if _, still := plan.Held[name]; !still {
			delete(w.held, name)
		}
	}
}

// podTag names a pod in messages, as readers of events know it.
func podTag(p *v1.Pod) string { return pod.FullName(p) + "(" + string(p.UID) + ")" }

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func put(m map[string]int, k string, v int) map[string]int {
	if m == nil {
		m = map[string]int{}
	}
	m[k] = v
	return m
}
