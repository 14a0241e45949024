package podplan

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// Decide says what to do next for one pod.
func Decide(in Input) Plan {
	d := &decision{in: in}
	for _, t := range in.Busy {
		d.starting = d.starting || t.Verb == Start
	}
	switch {
	case in.Pod == nil || in.Going != nil:
		d.wind()
	default:
		d.run()
	}
	return d.plan
}

type decision struct {
	in   Input
	plan Plan
	// starting is set when a container is being started: the next one waits for
	// it and its postStart hook, so that containers start in order.
	starting bool
}

// run brings a wanted pod forward.
func (d *decision) run() {
	in := &d.in
	change := sandboxChange(in.Pod, in.Have)
	if change == sandboxKeep && d.restartAll() {
		return
	}
	d.prune()
	switch change {
	case sandboxKeep:
	case sandboxDone:
		// No container is to run again; one that still does has no pod around it.
		for _, c := range in.Have.Containers {
			if c.State == pod.StateRunning || c.State == pod.StateUnknown {
				d.stop(c, in.Now.Add(pod.Grace(in.Pod)), CauseSandboxChanged, "sandbox is gone")
			}
		}
		return
	default:
		d.replaceSandbox(string(change))
		d.images()
		return
	}
	d.images()
	if !in.VolumesReady || in.ClaimsPending || in.DevicesPending {
		if !in.VolumesReady {
			d.plan.waitFor(WaitVolumes)
		}
		d.waitForDevices()
		d.tend()
		return
	}
	d.ephemeral()
	if !d.initContainers() {
		return
	}
	for i := range in.Pod.Spec.Containers {
		d.container(pod.Regular, &in.Pod.Spec.Containers[i])
	}
}

// sandboxState says whether the newest sandbox can be used, and if not, why.
type sandboxState string

const (
	sandboxKeep sandboxState = ""
	sandboxDone sandboxState = "done"
)

func sandboxChange(p *v1.Pod, have pod.Runtime) sandboxState {
	if len(have.Sandboxes) > 0 {
		ready := 0
		for _, s := range have.Sandboxes {
			if s.Ready {
				ready++
			}
		}
		newest := have.Sandboxes[0]
		switch {
		case ready > 1:
			return "several sandboxes are ready"
		case newest.Ready && newest.Uprooted:
			return "the pod's cgroup is gone"
		case newest.Ready && newest.HostNetwork != p.Spec.HostNetwork:
			return "network mode changed"
		case newest.Ready && !newest.HostNetwork && len(newest.IPs) == 0:
			return "sandbox has no address"
		case newest.Ready:
			return sandboxKeep
		}
	}
	// There is no usable sandbox. It is worth a new one only if a container is
	// still to run in it.
	if len(have.Sandboxes)+len(have.Containers) == 0 && !anyRecorded(p) {
		return "no sandbox"
	}
	for kind, spec := range pod.Containers(p) {
		if kind != pod.Regular {
			continue
		}
		c, ok := Instance(p, have, spec.Name)
		switch {
		case !ok || c.State == pod.StateCreated: // it never ran
			return "sandbox is gone"
		case c.State != pod.StateExited:
			// It dies with its sandbox; how it is restarted then is its policy's.
			if p.Spec.RestartPolicy != v1.RestartPolicyNever || restartsByItself(spec) {
				return "sandbox is gone"
			}
		case Restarts(p, kind, spec, c):
			return "sandbox is gone"
		}
	}
	return sandboxDone
}

func restartsByItself(c *v1.Container) bool {
	return len(c.RestartPolicyRules) > 0 || c.RestartPolicy != nil && *c.RestartPolicy != v1.ContainerRestartPolicyNever
}

func anyRecorded(p *v1.Pod) bool {
	for _, c := range pod.Containers(p) {
		if s, ok := recorded(p, c.Name); ok && s.ContainerID != "" {
			return true
		}
	}
	return false
}

// replaceSandbox clears away what cannot be used and asks for a sandbox.
func (d *decision) replaceSandbox(why string) {
	in := &d.in
	clear := true
	for _, c := range in.Have.Containers {
		if c.State == pod.StateRunning || c.State == pod.StateUnknown {
			clear = false
			d.stop(c, in.Now.Add(pod.Grace(in.Pod)), CauseSandboxChanged, why)
		}
	}
	if !clear {
		d.plan.waitFor("containers of the old sandbox to stop")
		return
	}
	for _, s := range in.Have.Sandboxes {
		if s.Ready {
			clear = false
			d.act(Step{Verb: StopSandbox, Target: s.ID, Reason: why})
		}
	}
	if !clear {
		d.plan.waitFor("the old sandbox to stop")
		return
	}
	if !in.NetworkReady && !in.Pod.Spec.HostNetwork {
		d.plan.waitFor(WaitNetwork)
		return
	}
	if !d.stopDeadSandboxes(why) {
		d.plan.waitFor("the old sandbox to stop")
		return
	}
	if d.waitForDevices() {
		return
	}
	attempt := 0
	if len(in.Have.Sandboxes) > 0 {
		attempt = int(in.Have.Sandboxes[0].Attempt) + 1
	}
	d.plan.waitFor(WaitSandbox)
	d.act(Step{Verb: RunSandbox, Target: SandboxTarget, Attempt: attempt, Reason: why})
}

// stopDeadSandboxes stops the sandboxes that died by themselves, and reports whether all are stopped: until then the
// runtime holds their addresses and host ports.
func (d *decision) stopDeadSandboxes(why string) bool {
	done := true
	for _, s := range d.in.Have.Sandboxes {
		if s.Ready || d.in.SandboxStopped[s.ID] {
			continue
		}
		done = false
		removed := slices.ContainsFunc(d.plan.Steps, func(step Step) bool { return step.Target == s.ID })
		if !removed { // RemovePodSandbox stops it first
			d.act(Step{Verb: StopSandbox, Target: s.ID, Reason: why})
		}
	}
	return done
}

// waitForDevices reports whether what gives the pod its devices is waited for.
func (d *decision) waitForDevices() bool {
	if d.in.ClaimsPending {
		d.plan.waitFor(WaitClaims)
	}
	if d.in.DevicesPending {
		d.plan.waitFor(WaitDevices)
	}
	return d.in.ClaimsPending || d.in.DevicesPending
}

// images asks for the images of all containers that have not run yet, so that
// they are there when their turn comes.
func (d *decision) images() {
	for kind, spec := range pod.Containers(d.in.Pod) {
		if _, ok := Instance(d.in.Pod, d.in.Have, spec.Name); !ok && kind != pod.Ephemeral {
			d.image(spec.Name, d.attempt(spec.Name))
		}
	}
}

// image reports whether the image for that attempt is there, and asks for it if not.
func (d *decision) image(name string, attempt int) bool {
	img, known := d.in.Images[name]
	if known && img.Attempt == attempt && img.Ready {
		return true
	}
	if known && img.Attempt == attempt && d.in.Now.Before(img.RetryAt) {
		d.plan.wakeAt(img.RetryAt)
		return false
	}
	d.act(Step{Verb: FetchImage, Target: name, Attempt: attempt, Reason: "needed by container"})
	return false
}

// tend looks after what runs already while the pod cannot go forward.
func (d *decision) tend() {
	for kind, spec := range pod.Containers(d.in.Pod) {
		if c, ok := d.in.Have.Latest(spec.Name); ok && c.State == pod.StateRunning && kind != pod.Ephemeral {
			d.keep(kind, spec, c)
		}
	}
}

func (d *decision) ephemeral() {
	for i := range d.in.Pod.Spec.EphemeralContainers {
		spec := (*v1.Container)(&d.in.Pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		c, ok := Instance(d.in.Pod, d.in.Have, spec.Name)
		if !ok || c.State == pod.StateCreated {
			d.start(pod.Ephemeral, spec, "not created", c, ok)
		}
	}
}

// initContainers brings the init containers forward and reports whether the
// regular ones may run.
func (d *decision) initContainers() bool {
	in := &d.in
	initialized := anyRegular(in.Pod, in.Have)
	begun := -1 // the last that has begun here: the sidecars before it have all started once
	for i := range in.Pod.Spec.InitContainers {
		if c, ok := in.Have.Latest(in.Pod.Spec.InitContainers[i].Name); ok && inNewestSandbox(in.Have, c) {
			begun = i
		}
	}
	for i := range in.Pod.Spec.InitContainers {
		spec := &in.Pod.Spec.InitContainers[i]
		kind := pod.InitKind(spec)
		if kind == pod.Init && initialized {
			continue
		}
		_, there := in.Have.Latest(spec.Name)
		if kind == pod.Init && !there && i < begun {
			continue // it was lost after it had succeeded: what comes after it has begun
		}
		passed := initialized || kind == pod.Sidecar && there && i < begun // its restarts are its own affair
		if !d.container(kind, spec) && !passed {
			d.plan.waitFor(fmt.Sprintf("%s %s", kind, spec.Name))
			return false
		}
	}
	return true
}

// container brings one container forward. It reports whether what comes after
// it may go on: an init container has succeeded, another one has started.
func (d *decision) container(kind pod.Kind, spec *v1.Container) bool {
	in := &d.in
	c, ok := Instance(in.Pod, in.Have, spec.Name)
	if !ok {
		d.start(kind, spec, "not created", c, false)
		return false
	}
	switch c.State {
	case pod.StateCreated:
		d.start(kind, spec, "created and never started", c, true)
		return false
	case pod.StateRunning:
		return d.keep(kind, spec, c)
	case pod.StateUnknown:
		d.stop(c, in.Now.Add(pod.Grace(in.Pod)), CauseUnknownState, "the runtime cannot tell its state")
		return false
	}
	if !inNewestSandbox(in.Have, c) {
		// What ended in an earlier sandbox is done only if it will not be
		// restarted; init containers run again in every sandbox.
		if kind == pod.Init || kind == pod.Sidecar || Restarts(in.Pod, kind, spec, c) {
			d.restart(kind, spec, c)
			return false
		}
		return true
	}
	if kind == pod.Init && Succeeded(kind, c) {
		if c.ID == "" {
			d.start(kind, spec, "lost, and nothing has begun after it", c, false)
			return false
		}
		return true
	}
	if Restarts(in.Pod, kind, spec, c) {
		d.restart(kind, spec, c)
		return false
	}
	return kind == pod.Regular
}

// keep looks after a running container and reports whether it has started.
func (d *decision) keep(kind pod.Kind, spec *v1.Container, c pod.Container) bool {
	in := &d.in
	probe := in.Probes[c.ID]
	switch {
	case kind != pod.Init && c.Hash != pod.Hash(spec):
		d.stop(c, in.Now.Add(pod.Grace(in.Pod)), CauseSpecChanged, "the image in the specification changed")
	case in.Resize[spec.Name]:
		d.stop(c, in.Now.Add(pod.Grace(in.Pod)), CauseResize, "its new resources need a restart")
	case probe.StartupFailed:
		d.stop(c, in.Now.Add(probeGrace(in.Pod, spec.StartupProbe)), CauseStartup, "startup probe failed")
	case probe.LivenessFailed:
		d.stop(c, in.Now.Add(probeGrace(in.Pod, spec.LivenessProbe)), CauseLiveness, "liveness probe failed")
	}
	return kind != pod.Init && probe.Started
}

func probeGrace(p *v1.Pod, probe *v1.Probe) time.Duration {
	if probe != nil && probe.TerminationGracePeriodSeconds != nil && p.DeletionTimestamp == nil {
		return pod.Seconds(*probe.TerminationGracePeriodSeconds)
	}
	return pod.Grace(p)
}

// restart starts an ended container again once its back-off is over.
func (d *decision) restart(kind pod.Kind, spec *v1.Container, c pod.Container) {
	in := &d.in
	if _, busy := in.Busy[spec.Name]; busy {
		return // the back-off is that of the instance that is being started
	}
	if d.held(c) {
		return
	}
	if until := c.FinishedAt.Add(sandboxSettles); d.wasKilled(c) && in.Now.Before(until) && !in.Now.Before(c.FinishedAt) {
		d.plan.wakeAt(until)
		d.plan.waitFor("word of the sandbox of " + spec.Name)
		return
	}
	d.start(kind, spec, "exited", c, true)
}

// held reports whether an ended container has to wait out its back-off.
func (d *decision) held(c pod.Container) bool {
	b := d.in.Backoff[c.Name]
	if _, spec, ok := pod.Find(d.in.Pod, c.Name); ok && b.Of != "" {
		b = b.For(spec)
	}
	until := b.Until(c.FinishedAt)
	if before, ok := d.in.Replaced[c.ID]; ok && !c.FinishedAt.Before(b.Until(before)) {
		return false // as upstream, where the sync that stops a container computes the back-off from the one before it
	}
	if !d.in.Now.Before(until) || aheadOfClock(c, d.in.Now) {
		return false
	}
	if d.plan.Held == nil {
		d.plan.Held = map[string]time.Time{}
	}
	d.plan.Held[c.Name] = until
	d.plan.wakeAt(until)
	d.plan.waitFor(WaitBackoff + c.Name)
	return true
}

// sandboxSettles is how long a runtime takes to end a sandbox after it has killed
// the containers in it. A container that was killed, and not by the kernel for
// its memory, is not started again before it is clear that its sandbox lives: it
// would only be killed once more.
const sandboxSettles = time.Second

// aheadOfClock reports whether the container ended at a time that is yet to come: the
// clock was set back since, and what is counted from that time would not be over for as
// long as it was set back. A moment ahead is one that ended while this is decided.
func aheadOfClock(c pod.Container, now time.Time) bool { return c.FinishedAt.Sub(now) > time.Minute }

// wasKilled reports whether the container was killed, but neither by the agent nor by the OOM killer.
func (d *decision) wasKilled(c pod.Container) bool {
	_, replaced := d.in.Replaced[c.ID]
	return c.ID != "" && !c.Recalled && !replaced && c.ExitCode == 137 && c.Reason != "OOMKilled"
}

// start asks for the container's image and, once it is there, for the container.
func (d *decision) start(kind pod.Kind, spec *v1.Container, why string, last pod.Container, ran bool) {
	if _, busy := d.in.Busy[spec.Name]; busy {
		return // what is seen of it now is half a start
	}
	if ran && last.State == pod.StateCreated {
		// It was made and never started, perhaps by an agent that died in between.
		// Its place is needed for the same attempt, and those after it wait as they
		// would have then.
		d.act(Step{Verb: Remove, Target: last.ID, Reason: why})
		d.starting = true
		return
	}
	if d.in.Resizing && kind == pod.Regular {
		d.plan.waitFor("resize")
		return
	}
	attempt := d.attempt(spec.Name)
	if d.image(spec.Name, attempt) {
		if !d.starting {
			d.starting = d.act(Step{Verb: Start, Target: spec.Name, Attempt: attempt, Reason: why})
		}
		return
	}
	// The order of the specification holds for the first start in a sandbox: the next
	// containers wait for an image that is being pulled, but not for a pull that has
	// failed, nor for a container that could not be started.
	first := !ran || !inNewestSandbox(d.in.Have, last)
	if _, failed := d.in.RetryAt[spec.Name]; kind == pod.Regular && first && !failed &&
		d.in.Images[spec.Name].RetryAt.IsZero() {
		d.starting = true
	}
}

// prune removes what nobody needs any more of a pod that stays: of each container
// the ended instances but the newest, which tell how it ended, and sandboxes that
// the newest has replaced.
func (d *decision) prune() {
	kept, most := map[string]int{}, max(d.in.KeepEnded, 1)
	for _, c := range d.in.Have.Containers {
		switch {
		case c.State == pod.StateUnknown:
			if kept[c.Name] >= most { // it may run: it is stopped, and then removed
				d.stop(c, d.in.Now.Add(pod.Grace(d.in.Pod)), CauseRemoval,
					"an older instance, and the runtime cannot tell its state")
			}
		case c.State != pod.StateExited:
		case kept[c.Name] >= most:
			d.act(Step{Verb: Remove, Target: c.ID, Reason: "an older instance"})
		default:
			kept[c.Name]++
		}
	}
	for i, s := range d.in.Have.Sandboxes {
		if i > 0 && !s.Ready && !d.inUse(s.ID) {
			d.act(Step{Verb: RemoveSandbox, Target: s.ID, Reason: "an older sandbox"})
		}
	}
}

func (d *decision) inUse(sandbox string) bool {
	for _, c := range d.in.Have.Containers {
		if c.SandboxID == sandbox {
			return true
		}
	}
	return false
}

// attempt is the number of the next instance of a container: one more than the
// last that the runtime holds, this agent has seen run, the stored status tells
// of, or the log files show.
func (d *decision) attempt(name string) int {
	next := d.in.LogAttempts[name]
	if n, ok := d.in.Ran[name]; ok {
		next = max(next, n+1)
	}
	if n, ok := Renewed(d.in.Pod, name); ok {
		next = max(next, n)
	}
	if c, ok := Instance(d.in.Pod, d.in.Have, name); ok {
		if c.State == pod.StateCreated {
			return c.Attempt
		}
		next = max(next, c.Attempt+1)
	}
	return next
}

func (d *decision) stop(c pod.Container, deadline time.Time, cause Cause, why string) {
	if !d.free(c.ID, deadline) {
		return
	}
	if at, ok := d.in.RetryAt[c.ID]; ok && d.in.Now.Before(at) {
		d.plan.wakeAt(at)
		return
	}
	d.plan.step(Step{Verb: Stop, Target: c.ID, Deadline: deadline, Cause: cause, Reason: why})
}

// free reports whether a container can be asked to stop by the deadline: it is not
// when it is removed, or was asked before to be gone by then.
func (d *decision) free(id string, deadline time.Time) bool {
	t, busy := d.in.Busy[id]
	return !busy || (t.Verb == Stop || t.Verb == AnnounceStop) && deadline.Before(t.Deadline)
}

// act adds a step unless its target is busy or waits after a failure, and
// reports whether it did.
func (d *decision) act(s Step) bool {
	if _, busy := d.in.Busy[s.Target]; busy {
		return false
	}
	if at, ok := d.in.RetryAt[s.Target]; ok && d.in.Now.Before(at) {
		d.plan.wakeAt(at)
		return false
	}
	d.plan.step(s)
	return true
}
