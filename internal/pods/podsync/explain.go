package podsync

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/explain"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/internal/pods/timeline"
)

// story is what a worker keeps to be able to explain its pod. Only its turns touch
// it; the line has a lock of its own.
type story struct {
	line    *timeline.Line
	pulls   map[string]*timeline.Step // images that are waited for, by container
	volumes *timeline.Step            // nil: not asked for
	claims  *timeline.Step            // likewise
	probing *timeline.Step            // from the start of the last container until all are ready
	readyAt time.Time
	plan    podplan.Plan
	next    time.Time
	waits   map[string]time.Time // since when the plan waits for what
	refused *explain.Refusal
	held    time.Time // since when the pod waits to be admitted; zero: it does not
}

func newStory() story {
	return story{line: &timeline.Line{}, pulls: map[string]*timeline.Step{}, waits: map[string]time.Time{}}
}

// tell takes in what a turn found.
func (w *worker) tell(now time.Time, plan podplan.Plan, have pod.Runtime, next time.Time) {
	s := &w.story
	s.plan, s.next = plan, next
	for what := range s.waits {
		if !slices.Contains(plan.Waits, what) {
			delete(s.waits, what)
		}
	}
	for _, what := range plan.Waits {
		if _, known := s.waits[what]; !known {
			s.waits[what] = now
		}
	}
	if w.spec == nil {
		return
	}
	w.tellImages(now)
	if slices.Contains(plan.Waits, podplan.WaitVolumes) && s.volumes == nil {
		s.volumes = s.line.Begin(now, timeline.View{Verb: "prepare", Target: "volumes"})
	} else if !slices.Contains(plan.Waits, podplan.WaitVolumes) {
		s.volumes.End(now, nil)
	}
	if slices.Contains(plan.Waits, podplan.WaitClaims) && s.claims == nil {
		s.claims = s.line.Begin(now, timeline.View{Verb: "prepare", Target: podplan.WaitClaims})
	} else if !slices.Contains(plan.Waits, podplan.WaitClaims) {
		s.claims.End(now, nil)
	}
	w.tellReady(now, have)
}

func (w *worker) tellImages(now time.Time) {
	for _, spec := range pod.Containers(w.spec) {
		name := spec.Name
		f, asked := w.images[name]
		if !asked {
			continue
		}
		step, waiting := w.story.pulls[name]
		switch done := f.result.Ready || f.result.Reason != ""; {
		case !done && !waiting:
			w.story.pulls[name] = w.story.line.Begin(now, timeline.View{Verb: string(podplan.FetchImage), Target: name, Attempt: f.attempt})
		case done && waiting:
			var err error
			if f.result.Reason != "" {
				err = fmt.Errorf("%s: %s", f.result.Reason, f.result.Message)
			}
			step.End(now, err)
			delete(w.story.pulls, name)
		}
	}
}

// tellReady notes when all containers run and when all are ready for the first time.
func (w *worker) tellReady(now time.Time, have pod.Runtime) {
	s := &w.story
	if !s.readyAt.IsZero() {
		return
	}
	ready := true
	for i := range w.spec.Spec.Containers {
		c, ok := have.Latest(w.spec.Spec.Containers[i].Name)
		if !ok || c.State != pod.StateRunning {
			return
		}
		ready = ready && w.s.cfg.Probes.Result(w.spec, c).Ready
	}
	if s.probing == nil && !ready {
		s.probing = s.line.Begin(now, timeline.View{Verb: "become ready"})
	}
	if ready {
		s.probing.End(now, nil)
		s.readyAt = now
	}
}

// Explain says why a pod is as it is; ok is false when no worker looks after it.
// A worker that is in the middle of a turn is waited for, as long as ctx allows.
func (s *Syncer) Explain(ctx context.Context, uid types.UID) (p explain.Pod, ok bool) {
	s.mu.Lock()
	w, ok := s.workers[uid]
	s.mu.Unlock()
	if !ok {
		return explain.Pod{}, false
	}
	answer := make(chan explain.Pod, 1)
	select {
	case w.ask <- answer:
		p = <-answer
	case <-ctx.Done():
		p = explain.Pod{UID: string(uid), At: s.cfg.Now()}
		if since := w.turning.Load(); since != nil {
			p.Stuck = *since
		} else {
			p.Stuck = p.At
		}
		p.Steps, p.Lost = w.story.line.Steps()
	}
	explain.Judge(&p)
	return p, true
}

// explain gathers what is known. It runs between two turns.
func (w *worker) explain() explain.Pod {
	now := w.s.cfg.Now()
	have, read := w.s.cfg.Observed.Get(w.uid)
	ref := w.ref(have)
	p := explain.Pod{Namespace: ref.Namespace, Name: ref.Name, UID: string(w.uid), At: now, Arrived: w.times.arrived, Next: w.story.next, Ready: w.story.readyAt}
	if w.known {
		p.Source = sourceName(w.spec)
	}
	p.Steps, p.Lost = w.story.line.Steps()
	if s := have.Sandboxes; len(s) > 0 {
		p.Sandbox = &explain.Sandbox{ID: s[0].ID, Ready: s[0].Ready, Since: s[0].CreatedAt, IPs: s[0].IPs}
	}
	p.Containers = w.explainContainers(have)
	p.Refused = w.story.refused
	if !w.story.held.IsZero() {
		what, reason := "other pods, which make room for it, to end", ""
		if w.late.Waits() {
			what, reason = awaited(w.late), pod.ReasonDevicePluginLate
		} else if _, asks := w.underWay()[string(confirmResources)]; asks {
			what = "plugins that are asked for its devices"
		}
		p.Waits = append(p.Waits, explain.Wait{For: what, Reason: reason, Since: w.story.held})
	}
	select {
	case <-w.s.cfg.Observed.Synced():
		if !read {
			p.Waits = append(p.Waits, explain.Wait{For: "the container runtime to tell what it has of the pod"})
		}
	default:
		p.Waits = append(p.Waits, explain.Wait{For: "the container runtime to be listed for the first time"})
	}
	if !w.known && !w.vanished && w.spec == nil && !w.s.cfg.Desired.Ready() {
		p.Waits = append(p.Waits, explain.Wait{For: "every source of pods to speak for the first time"})
	}
	if w.spec != nil && w.known && !w.claimTurn(have) {
		p.Waits = append(p.Waits, explain.Wait{For: "an earlier pod of the same name to end", Since: w.times.arrived})
	}
	w.explainShared(&p)
	return p
}

// explainShared tells what tasks and turns share.
func (w *worker) explainShared(p *explain.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.going != nil {
		p.Going = &explain.Going{Why: w.goingWhy, Since: w.goingSince, Deadline: w.going.Deadline}
	}
	for _, target := range slices.Sorted(maps.Keys(w.tasks)) {
		t := w.tasks[target]
		p.Doing = append(p.Doing, explain.Task{What: w.nameTask(string(t.verb), target), Since: t.began})
	}
	for _, name := range slices.Sorted(maps.Keys(w.story.pulls)) {
		p.Doing = append(p.Doing, explain.Task{What: "the fetch of the image of container " + name, Since: w.images[name].asked})
	}
	if !w.cgroupGone && p.Going != nil && w.story.plan.Stopped {
		if done, err := w.s.cfg.Claims.Released(w.uid); !done {
			p.Waits = append(p.Waits, explain.Wait{For: "its resource claims to be released", Error: text(err), Next: w.s.cfg.Claims.RetryAt(w.uid)})
		} else if done, err := w.s.cfg.Volumes.Released(w.uid); !done {
			p.Waits = append(p.Waits, explain.Wait{For: "its volumes to be released", Error: text(err)})
		}
	}
	for _, target := range slices.Sorted(maps.Keys(w.retries)) {
		r := w.retries[target]
		if _, again := w.tasks[target]; again {
			continue // what it comes to is not known yet
		}
		wait := explain.Wait{For: w.nameTask(r.verb, target), Error: r.err, Since: r.since, Next: r.at, Attempt: r.count}
		if said, known := w.waiting[target]; known && said.Message != "" {
			wait.Reason, wait.Error = said.Reason, said.Message // without saying twice of what
		} else {
			wait.Reason = said.Reason
		}
		p.Waits = append(p.Waits, wait)
	}
	for _, what := range w.story.plan.Waits {
		since := w.story.waits[what]
		if strings.HasPrefix(what, podplan.WaitBackoff) {
			continue // told with the container that ended
		}
		switch what {
		case podplan.WaitVolumes:
			_, err := w.s.cfg.Volumes.Ready(w.uid)
			p.Waits = append(p.Waits, explain.Wait{For: "its volumes", Error: text(err), Since: since, Next: w.s.cfg.Volumes.RetryAt(w.uid)})
		case podplan.WaitClaims:
			_, err := w.s.cfg.Claims.Ready(w.uid)
			p.Waits = append(p.Waits, explain.Wait{For: "its resource claims", Error: text(err), Since: since, Next: w.s.cfg.Claims.RetryAt(w.uid)})
		case podplan.WaitDevices:
			p.Waits = append(p.Waits, explain.Wait{For: awaited(w.late), Reason: pod.ReasonDevicePluginLate, Since: since})
		case podplan.WaitNetwork:
			p.Waits = append(p.Waits, explain.Wait{For: what, Error: text(w.s.cfg.NetworkReady()), Since: since})
		case podplan.WaitSandbox:
			if _, failed := w.retries[podplan.SandboxTarget]; !failed {
				p.Waits = append(p.Waits, explain.Wait{For: "its sandbox", Since: since})
			}
		default:
			p.Waits = append(p.Waits, explain.Wait{For: what, Since: since})
		}
	}
	if w.going != nil || w.spec == nil {
		return
	}
	for _, c := range p.Containers {
		img, asked := w.images[c.Name]
		switch until, held := w.held[c.Name]; {
		case held:
			wait := w.waiting[c.Name]
			p.Waits = append(p.Waits, explain.Wait{For: fmt.Sprintf("container %s, which ended again and again", c.Name), Reason: wait.Reason,
				Error: lastEnd(c), Since: c.Since, Next: until, Attempt: c.Restarts + 1})
		case asked && img.result.Reason != "":
			p.Waits = append(p.Waits, explain.Wait{For: fmt.Sprintf("image %s of container %s", c.Image, c.Name), Reason: img.result.Reason, Error: img.result.Message,
				Since: img.asked, Next: img.result.RetryAt})
		case asked && !img.result.Ready && c.State != "running":
			p.Waits = append(p.Waits, explain.Wait{For: fmt.Sprintf("image %s of container %s", c.Image, c.Name), Since: img.asked})
		}
	}
	for _, gate := range w.spec.Spec.ReadinessGates {
		if met := conditionMet(w.spec, gate.ConditionType); !met {
			p.Waits = append(p.Waits, explain.Wait{For: fmt.Sprintf("its readiness gate: somebody has to set the condition %s", gate.ConditionType)})
		}
	}
}

func conditionMet(p *v1.Pod, kind v1.PodConditionType) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == kind && c.Status == v1.ConditionTrue })
}

// lastEnd says how a container ended.
func lastEnd(c explain.Container) string {
	if c.ExitCode == nil {
		return ""
	}
	out := fmt.Sprintf("it last ended with exit code %d", *c.ExitCode)
	if c.Reason != "" {
		out += " (" + c.Reason + ")"
	}
	if c.Message != "" {
		out += ": " + strings.TrimSpace(c.Message)
	}
	return out
}

// nameTask says what a task is for, in words.
func (w *worker) nameTask(verb, target string) string {
	switch {
	case target == podplan.SandboxTarget:
		return "the making of its sandbox"
	case verb == string(podplan.Start):
		return "the start of container " + target
	case target == verb: // the end of the pod
		return verb
	}
	if have, ok := w.s.cfg.Observed.Get(w.uid); ok {
		if c, ok := have.ByID(target); ok {
			what := "the " + verb + " of container " + c.Name
			if verb == string(podplan.Stop) && w.hooked(c.Name) {
				what += ", which begins with its preStop hook"
			}
			return what
		}
	}
	return verb
}

// hooked reports whether something runs in the container before it is stopped.
func (w *worker) hooked(name string) bool {
	if w.spec == nil {
		return false
	}
	for _, spec := range pod.Containers(w.spec) {
		if spec.Name == name {
			return spec.Lifecycle != nil && spec.Lifecycle.PreStop != nil
		}
	}
	return false
}

func (w *worker) explainContainers(have pod.Runtime) []explain.Container {
	if w.spec == nil {
		var out []explain.Container
		for _, c := range have.Containers {
			out = append(out, seen(explain.Container{Name: c.Name, Kind: pod.Regular.String(), Image: c.Image}, c))
		}
		return out
	}
	var out []explain.Container
	for kind, spec := range pod.Containers(w.spec) {
		c := explain.Container{Name: spec.Name, Kind: kind.String(), Image: spec.Image, State: "not created"}
		if inst, ok := have.Latest(spec.Name); ok {
			c = seen(c, inst)
			if inst.State == pod.StateRunning {
				r := w.s.cfg.Probes.Result(w.spec, inst)
				c.Started, c.Ready = r.Started, r.Ready
			}
		}
		out = append(out, c)
	}
	return out
}

// seen is what the runtime shows of a container.
func seen(c explain.Container, inst pod.Container) explain.Container {
	c.State, c.Restarts = inst.State.String(), inst.Attempt
	switch inst.State {
	case pod.StateExited:
		code := inst.ExitCode
		c.Since, c.ExitCode, c.Reason, c.Message = inst.FinishedAt, &code, inst.Reason, inst.Message
	case pod.StateRunning:
		c.Since = inst.StartedAt
	default:
		c.Since = inst.CreatedAt
	}
	return c
}

func sourceName(p *v1.Pod) string {
	return map[pod.Source]string{pod.SourceAPI: "the API server", pod.SourceFile: "a file", pod.SourceHTTP: "a URL"}[pod.SourceOf(p)]
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
