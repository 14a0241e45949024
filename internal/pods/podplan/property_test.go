package podplan

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// world is a runtime in virtual time that executes plans: each step takes a while and may fail, and containers exit by
// themselves.
type world struct {
	t     *testing.T
	r     *rand.Rand
	seed  uint64
	now   time.Time
	pod   *v1.Pod
	have  pod.Runtime
	busy  map[Key]pending
	in    Input
	calm  bool // nothing exits or fails any more
	trace []string
	next  int
	anew  map[string]int // the agent's record of recreated containers
	state State          // of the last decision
	used  map[string]int // the latest attempt of each container in any record
}

type pending struct {
	step Step
	done time.Time
}

func newWorld(t *testing.T, seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 1))
	shapes := []string{"a", "a b", "i : a", "i j : a b", "+s : a", "i +s j : a b", "+s +t : a", "!a b", "i +s : !a b",
		"!i +s : a", "i +!s +t : a b"}
	policies := []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever}
	return &world{t: t, r: r, seed: seed, now: now,
		pod:  spec(shapes[r.IntN(len(shapes))], policies[r.IntN(len(policies))]),
		busy: map[Key]pending{}, in: memory(), anew: map[string]int{}, used: map[string]int{}}
}

// memory is the input of an agent that has just started.
func memory() Input {
	return Input{
		Images:  map[string]Image{},
		RetryAt: map[Key]time.Time{},
		History: History{
			Backoff:        map[string]Backoff{},
			Announced:      map[string]bool{},
			Ran:            map[string]int{},
			SandboxStopped: map[string]bool{},
		},
	}
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("seed %d: %s\n%s", w.seed, fmt.Sprintf(format, args...), w.trace[max(0, len(w.trace)-30):])
}

func (w *world) decide() Plan {
	in := w.in
	in.Now, in.Pod, in.Have, in.Recreated = w.now, w.pod, w.have, w.anew
	in.Busy = map[Key]Task{}
	for key, p := range w.busy {
		in.Busy[key] = Task{Verb: p.step.Verb, Deadline: p.step.Deadline}
	}
	in.Probes = map[string]Probe{}
	for _, c := range w.have.Containers {
		in.Probes[c.ID] = Probe{Started: true}
	}
	plan := decide(in)
	if w.seed%8 == 0 && !reflect.DeepEqual(plan, decide(in)) {
		w.fail("the same input gives another plan")
	}
	if plan.State < w.state && (w.state >= Terminating) != (plan.State >= Terminating) {
		w.fail("from %v back to %v", w.state, plan.State)
	}
	w.anew, w.in.Termination, w.state = plan.Recreated, plan.Termination, plan.State
	return plan
}

// view is the view of the pod.
func (w *world) view() View {
	v := View{Pod: w.pod, Have: w.have, Recreated: w.anew}
	v.Recreated = v.updateRecreated()
	w.anew = v.Recreated
	return v
}

// begin checks a step against the rules and starts it.
func (w *world) begin(s Step) {
	w.trace = append(w.trace, fmt.Sprintf("%v %s %s #%d\n", w.now.Sub(now), s.Verb, s.Target.Name, s.Attempt))
	stopping := func(v Verb) bool { return v == Stop || v == AnnounceStop }
	if p, ok := w.busy[s.Key()]; ok &&
		!(stopping(s.Verb) && stopping(p.step.Verb) && s.Deadline.Before(p.step.Deadline)) {
		w.fail("%s %s while %s is under way", s.Verb, s.Target.Name, p.step.Verb)
	}
	if (s.Verb == RunSandbox || s.Verb == Start) && w.in.ClaimsPending {
		w.fail("%s before what the pod claims is prepared", s.Verb)
	}
	if (s.Verb == RunSandbox || s.Verb == Start) && w.in.DevicesPending {
		w.fail("%s before the pod's device plugins have registered", s.Verb)
	}
	switch s.Verb {
	case AnnounceStop:
		if w.in.Termination == nil {
			w.fail("%s is announced to stop in a pod that stays", s.Target.Name)
		}
	case RunSandbox:
		if w.in.Termination != nil {
			w.fail("a sandbox for a pod that terminates")
		}
		if _, ok := w.have.ReadySandbox(); ok {
			w.fail("a second ready sandbox")
		}
		for _, s := range w.have.Sandboxes {
			if !w.in.SandboxStopped[s.ID] {
				w.fail("a sandbox beside %s, which was not stopped", s.ID)
			}
		}
	case Start:
		if w.in.Termination != nil {
			w.fail("%s starts while the pod terminates", s.Target.Name)
		}
		if _, ok := w.have.ReadySandbox(); !ok {
			w.fail("%s starts without a sandbox", s.Target.Name)
		}
		for _, c := range w.have.Instances(s.Target.Name) {
			if c.State != pod.StateExited {
				w.fail("a second live instance of %s", s.Target.Name)
			}
			if c.Attempt >= s.Attempt {
				w.fail("%s starts as attempt %d after attempt %d", s.Target.Name, s.Attempt, c.Attempt)
			}
		}
		if last, ok := w.used[s.Target.Name]; ok && s.Attempt <= last {
			w.fail("%s starts as attempt %d, which it was before", s.Target.Name, s.Attempt)
		}
		w.checkOrder(s.Target.Name)
	case Remove:
		c, _ := w.have.ByID(s.Target.Name)
		if p, ok := w.busy[KeyOf(Start, Container(c.Name))]; ok && c.State == pod.StateCreated {
			w.fail("%s is removed while its %s is under way", c.Name, p.step.Verb)
		}
		if c.State == pod.StateRunning {
			w.fail("running container %s is removed", c.Name)
		}
	case FetchImage:
		w.in.Images[s.Target.Name] = Image{Attempt: s.Attempt, Ready: true}
		return
	}
	w.busy[s.Key()] = pending{s, w.now.Add(time.Duration(w.r.IntN(3000)) * time.Millisecond)}
	if s.Verb == Start {
		w.create(s) // the runtime shows a container before it runs
	}
}

// create is the first half of a start.
func (w *world) create(s Step) {
	w.next++
	c := instance(s.Target.Name, pod.StateCreated)
	c.ID, c.Attempt, c.SandboxID = fmt.Sprintf("id%d", w.next), s.Attempt, w.have.Sandboxes[0].ID
	w.have.Containers = append([]pod.Container{c}, w.have.Containers...)
}

// checkOrder checks that a container starts after those that come before it. A pod that was initialized stays
// initialized, even if containers are lost.
func (w *world) checkOrder(name string) {
	kind, _, _ := pod.Find(w.pod, name)
	for _, c := range w.have.Containers {
		if k, _, _ := pod.Find(w.pod, c.Name); k == pod.Regular && inNewestSandbox(w.have, c) {
			return
		}
	}
	for k, c := range pod.Containers(w.pod) {
		if c.Name == name {
			return
		}
		seen, ok := w.have.Latest(c.Name)
		switch {
		case k == pod.Init && !ok && w.begunAfter(c.Name): // lost after it had succeeded
		case k == pod.Init && kind != pod.Sidecar && !(ok && seen.State == pod.StateExited && seen.ExitCode == 0):
			w.fail("%s starts before init container %s has succeeded", name, c.Name)
		case k == pod.Sidecar && kind != pod.Sidecar && !ok:
			w.fail("%s starts before sidecar %s", name, c.Name)
		}
	}
}

// begunAfter reports whether an init container that comes after the named one exists.
func (w *world) begunAfter(name string) bool {
	list := w.pod.Spec.InitContainers
	at := slices.IndexFunc(list, func(c v1.Container) bool { return c.Name == name })
	return slices.ContainsFunc(list[at+1:], func(c v1.Container) bool {
		seen, ok := w.have.Latest(c.Name)
		return ok && inNewestSandbox(w.have, seen)
	})
}

// settle executes the steps that are due.
func (w *world) settle() {
	targets := slices.Collect(maps.Keys(w.busy))
	slices.SortFunc(targets, func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.Target.Kind, b.Target.Kind), cmp.Compare(a.Target.Name, b.Target.Name),
			cmp.Compare(a.Verb, b.Verb))
	})
	for _, target := range targets {
		p := w.busy[target]
		if p.done.After(w.now) {
			continue
		}
		delete(w.busy, target)
		if !w.calm && w.r.IntN(8) == 0 {
			w.in.RetryAt[target] = w.now.Add(time.Second)
			continue
		}
		delete(w.in.RetryAt, target)
		w.effect(p.step)
	}
}

func (w *world) effect(s Step) {
	w.next++
	id := fmt.Sprintf("id%d", w.next)
	switch s.Verb {
	case RunSandbox:
		w.have.Sandboxes = append(
			[]pod.Sandbox{{ID: id, Attempt: uint32(s.Attempt), Ready: true, IPs: []string{"10.0.0.1"}}},
			w.have.Sandboxes...)
	case Start:
		if s.Attempt > 0 {
			w.in.Backoff[s.Target.Name] = w.in.Backoff[s.Target.Name].Next(w.now, DefaultBackoff)
		}
		if !w.calm && w.r.IntN(10) == 0 {
			return // the agent died between create and start
		}
		w.have.Containers = slices.Clone(w.have.Containers)
		for i := range w.have.Containers {
			if c := &w.have.Containers[i]; c.Name == s.Target.Name && c.Attempt == s.Attempt &&
				c.State == pod.StateCreated {
				c.State, c.StartedAt = pod.StateRunning, w.now
				w.in.Ran[c.Name], w.used[c.Name] = c.Attempt, c.Attempt
			}
		}
	case AnnounceStop:
		w.in.Announced[s.Target.Name] = true
	case Stop:
		w.exit(s.Target.Name, 143)
	case Remove:
		w.have.Containers = slices.DeleteFunc(slices.Clone(w.have.Containers),
			func(c pod.Container) bool { return c.ID == s.Target.Name })
	case StopSandbox:
		w.killSandbox(s.Target.Name)
		w.in.SandboxStopped[s.Target.Name] = true
	case RemoveSandbox:
		w.have.Sandboxes = slices.DeleteFunc(slices.Clone(w.have.Sandboxes),
			func(b pod.Sandbox) bool { return b.ID == s.Target.Name })
	}
}

func (w *world) exit(id string, code int32) {
	cs := slices.Clone(w.have.Containers)
	for i := range cs {
		if cs[i].ID == id && cs[i].State != pod.StateExited {
			cs[i].State, cs[i].ExitCode, cs[i].FinishedAt = pod.StateExited, code, w.now
		}
	}
	w.have.Containers = cs
}

func (w *world) killSandbox(id string) {
	bs := slices.Clone(w.have.Sandboxes)
	for i := range bs {
		if bs[i].ID == id {
			bs[i].Ready = false
		}
	}
	w.have.Sandboxes = bs
}

// disturb causes changes that are not part of the plan.
func (w *world) disturb() {
	for _, c := range w.have.Containers {
		kind, _, _ := pod.Find(w.pod, c.Name)
		switch {
		case c.State != pod.StateRunning:
		case kind == pod.Init:
			code := int32(w.r.IntN(2))
			if w.calm || w.in.Termination != nil {
				code = 0
			}
			w.exit(c.ID, code) // an init container always ends
		case !w.calm && w.r.IntN(6) == 0:
			w.exit(c.ID, int32(w.r.IntN(2)))
		}
	}
	if !w.calm && w.r.IntN(25) == 0 && len(w.have.Sandboxes) > 0 {
		w.killSandbox(w.have.Sandboxes[0].ID)
	}
	if !w.calm && w.r.IntN(40) == 0 && len(w.have.Containers) > 0 {
		w.lose(w.have.Containers[w.r.IntN(len(w.have.Containers))])
	}
	if !w.calm && w.r.IntN(30) == 0 {
		w.crash()
	}
	if w.calm || w.r.IntN(2) == 0 {
		w.writeStatus()
	}
	w.in.NetworkReady = w.calm || w.r.IntN(4) > 0
	w.in.VolumesReady = w.calm || w.r.IntN(4) > 0
	w.in.ClaimsPending = !w.calm && w.r.IntN(4) == 0
	w.in.DevicesPending = !w.calm && w.r.IntN(4) == 0
}

// lose removes a container unless a start of it is under way.
func (w *world) lose(c pod.Container) {
	if _, busy := w.busy[KeyOf(Start, Container(c.Name))]; busy {
		return
	}
	w.trace = append(w.trace, fmt.Sprintf("%v %s #%d is lost\n", w.now.Sub(now), c.Name, c.Attempt))
	w.have.Containers = slices.DeleteFunc(slices.Clone(w.have.Containers),
		func(o pod.Container) bool { return o.ID == c.ID })
}

// crash ends the agent and starts another. Steps that were under way complete or not; only the status at the API server
// remains.
func (w *world) crash() {
	w.trace = append(w.trace, fmt.Sprintf("%v crash\n", w.now.Sub(now)))
	for target, p := range w.busy {
		delete(w.busy, target)
		if w.r.IntN(2) == 0 {
			w.effect(p.step)
		}
	}
	terminating, source := w.in.Termination, w.in.Source
	w.in, w.anew = memory(), map[string]int{}
	w.in.Termination, w.in.Source = terminating, source
	w.used = map[string]int{}
	w.remember()
}

// remember records the attempts that the API server has.
func (w *world) remember() {
	for _, c := range pod.Containers(w.pod) {
		if s, ok := stored(w.pod, c.Name); ok && s.ContainerID != "" {
			w.used[c.Name] = int(s.RestartCount)
		}
	}
}

// writeStatus writes the status of the pod to the API server.
func (w *world) writeStatus() {
	p, v := w.pod, w.view()
	st := &v1.PodStatus{}
	for kind, spec := range pod.Containers(p) {
		c, ok := v.Instance(spec.Name)
		s := v1.ContainerStatus{Name: spec.Name, RestartCount: int32(c.Attempt)}
		last, reported := v.recorded(spec.Name)
		switch {
		case ok && c.ID != "":
			s.ContainerID = "test://" + c.ID
			if c.State == pod.StateExited {
				s.State.Terminated = &v1.ContainerStateTerminated{
					ExitCode:    c.ExitCode,
					Reason:      c.Reason,
					ContainerID: s.ContainerID,
				}
			}
		case ok && reported && last.State.Terminated != nil:
			s = last // the stored status has its end
		case ok:
			s.State.Terminated = &v1.ContainerStateTerminated{ExitCode: c.ExitCode, Reason: c.Reason}
		case reported:
			s = last
		}
		if attempt, recreated := v.RecreatedAs(spec.Name); ok && recreated && attempt == c.Attempt {
			s.LastTerminationState = Anew(spec.Name, attempt).LastTerminationState
		}
		list := &st.ContainerStatuses
		if kind != pod.Regular {
			list = &st.InitContainerStatuses
		}
		*list = append(*list, s)
	}
	if _, restarting := v.Trigger(); restarting && w.in.Termination == nil {
		st.Conditions = []v1.PodCondition{{Type: v1.AllContainersRestarting, Status: v1.ConditionTrue}}
	}
	p = w.pod.DeepCopy()
	p.Status = *st
	w.pod = p
}

// initializing reports whether an init container runs: its end is waited for.
func (w *world) initializing() bool {
	return slices.ContainsFunc(w.have.Containers, func(c pod.Container) bool {
		kind, _, _ := pod.Find(w.pod, c.Name)
		return kind == pod.Init && c.State == pod.StateRunning
	})
}

// turn is one round: it decides, starts the steps and lets time pass.
func (w *world) turn() Plan {
	w.settle()
	w.disturb()
	plan := w.decide()
	for _, s := range plan.Steps {
		w.begin(s)
	}
	if w.in.NetworkReady && w.in.VolumesReady && !w.in.ClaimsPending && !w.in.DevicesPending && !w.initializing() &&
		len(plan.Steps) == 0 && len(w.busy) == 0 && plan.Wake.IsZero() && len(plan.Waits) > 0 {
		w.fail("waits for %v and nothing will wake it", plan.Waits)
	}
	w.now = w.now.Add(time.Duration(500+w.r.IntN(1500)) * time.Millisecond)
	if !plan.Wake.IsZero() && len(w.busy) == 0 && plan.Wake.After(w.now) {
		w.now = plan.Wake
	}
	return plan
}

func TestRandomHistoriesConverge(t *testing.T) {
	for seed := range uint64(400) {
		w := newWorld(t, seed)
		for range 20 + w.r.IntN(60) {
			w.turn()
		}
		w.calm = true
		for range 400 {
			w.turn()
		}
		if w.in.Termination == nil {
			for kind, c := range pod.Containers(w.pod) {
				seen, ok := w.view().Instance(c.Name)
				well := ok &&
					(seen.State == pod.StateRunning ||
						seen.State == pod.StateExited && !w.view().ShouldRestart(kind, c, seen))
				if !well && kind != pod.Init {
					w.fail("%s has not come up: %+v", c.Name, seen)
				}
			}
		}
		w.in.Termination = &Termination{Deadline: w.now.Add(30 * time.Second)}
		w.in.Source.Missing = true
		var last Plan
		for range 200 {
			last = w.turn()
		}
		if !(last.State >= Terminated) || !w.have.Empty() {
			w.fail("the pod does not end: %+v", w.have)
		}
	}
}
