package podsync

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/explain"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
)

// Explain explains the state of a pod; ok is false if it has no worker. It waits for the end of the worker's turn, or
// until ctx ends.
func (s *Syncer) Explain(ctx context.Context, uid types.UID) (p explain.Pod, ok bool) {
	answer := make(chan explain.Pod, 1)
	s.mu.Lock()
	w, ok := s.workers[uid]
	if ok {
		w.mail.ask(answer)
	}
	s.mu.Unlock()
	if !ok {
		return explain.Pod{}, false
	}
	select {
	case p = <-answer:
	case <-ctx.Done():
		p = explain.Pod{
			UID: string(uid),
			At:  s.cfg.Now(),
		}
		p.Stuck = p.At
		if since := s.board.turning(uid); !since.IsZero() {
			p.Stuck = since
		}
		p.Steps, p.Lost = w.history.steps.Steps()
	}
	explain.Judge(&p)
	return p, true
}

// explainer explains one pod, between two turns of its worker.
type explainer struct {
	w    *worker
	have pod.Runtime
}

// explain collects what is known of the pod.
func (e explainer) explain() explain.Pod {
	ref := e.w.ref(e.have)
	p := explain.Pod{
		Namespace:  ref.Namespace,
		Name:       ref.Name,
		UID:        string(e.w.uid),
		At:         e.w.s.cfg.Now(),
		Arrived:    e.w.times.arrived,
		Next:       e.w.history.next,
		Ready:      e.w.history.readyAt,
		Containers: e.containers(),
		Rejected:   e.w.history.rejection,
	}
	if e.w.source.known {
		p.Source = sourceName(e.w.source.spec)
	}
	p.Steps, p.Lost = e.w.history.steps.Steps()
	if s := e.have.Sandboxes; len(s) > 0 {
		p.Sandbox = &explain.Sandbox{
			ID:    s[0].ID,
			Ready: s[0].Ready,
			Since: s[0].CreatedAt,
			IPs:   s[0].IPs,
		}
	}
	if t := e.w.termination.Termination; t != nil {
		p.Termination = &explain.Termination{
			Why:      string(t.Reason),
			Since:    t.Since,
			Deadline: t.Deadline,
		}
	}
	p.Doing = e.tasks()
	first, others := e.waits()
	p.Waits = slices.Concat(first, e.retries(), others)
	if e.w.termination.Termination == nil && e.w.source.spec != nil {
		p.Waits = append(p.Waits, e.starts(p.Containers)...)
		p.Waits = append(p.Waits, e.gates()...)
	}
	return p
}

// tasks returns what is under way.
func (e explainer) tasks() (doing []explain.Task) {
	for _, key := range sortedKeys(e.w.tasks.running) {
		t := e.w.tasks.running[key]
		doing = append(doing, explain.Task{
			What:  e.nameTask(t.verb, key.Target),
			Since: t.began,
		})
	}
	for _, name := range slices.Sorted(maps.Keys(e.w.history.pulls)) {
		doing = append(doing, explain.Task{
			What:  "the pull of the image of container " + name,
			Since: e.w.images[name].asked,
		})
	}
	return doing
}

// retries returns the steps that have failed and are retried.
func (e explainer) retries() (waits []explain.Wait) {
	for _, key := range sortedKeys(e.w.tasks.retries) {
		r := e.w.tasks.retries[key]
		if _, again := e.w.tasks.running[key]; again {
			continue // its result is not known yet
		}
		wait := explain.Wait{
			For:     e.nameTask(r.verb, key.Target),
			Error:   r.err,
			Since:   r.since,
			Next:    r.at,
			Attempt: r.count,
		}
		if key.Target.Kind == podplan.KindContainer {
			shown := e.w.waiting.containers[key.Target.Name]
			wait.Reason = shown.Reason
			if shown.Message != "" {
				wait.Error = shown.Message // the same without naming the container twice
			}
		}
		waits = append(waits, wait)
	}
	return waits
}

func sortedKeys[T any](m map[podplan.Key]T) []podplan.Key {
	return slices.SortedFunc(maps.Keys(m), func(a, b podplan.Key) int {
		return cmp.Or(
			cmp.Compare(a.Target.Name, b.Target.Name),
			cmp.Compare(a.Target.Kind, b.Target.Kind),
			cmp.Compare(a.Verb, b.Verb))
	})
}

// waits returns what the plan waits for. In first are waits that block all steps of the pod, and those for the release
// of its claims and volumes.
func (e explainer) waits() (first, others []explain.Wait) {
	for _, what := range e.w.plan.Waits {
		wait := explain.Wait{
			For:   what.String(),
			Since: e.w.history.waits[what],
		}
		switch what.Kind {
		case podplan.WaitRuntimeList, podplan.WaitRuntimeRead, podplan.WaitSources:
			wait.Since = e.w.times.arrived
			first = append(first, wait)
		case podplan.WaitDecision, podplan.WaitName, podplan.WaitRoom, podplan.WaitConfirm, podplan.WaitAdmission:
			first = append(first, wait)
		case podplan.WaitUnprepared, podplan.WaitUnmounted:
			first = append(first, e.preparation(wait, what.Kind))
		case podplan.WaitVolumes, podplan.WaitClaims:
			others = append(others, e.preparation(wait, what.Kind))
		case podplan.WaitDevices:
			wait.For, wait.Reason = awaited(e.w.waiting.late), pod.ReasonDevicePluginLate
			others = append(others, wait)
		case podplan.WaitNetwork:
			wait.Error = text(e.w.s.cfg.Node.NetworkReady())
			others = append(others, wait)
		case podplan.WaitSandbox:
			wait.For = "its sandbox"
			if _, failed := e.w.tasks.retries[podplan.KeyOf(podplan.RunSandbox, podplan.NewSandbox)]; !failed {
				others = append(others, wait)
			}
		case podplan.WaitBackoff: // shown with the container that ended
		default:
			others = append(others, wait)
		}
	}
	return first, others
}

// preparation completes a wait for the preparation or the release of volumes or claims.
func (e explainer) preparation(wait explain.Wait, kind podplan.WaitKind) explain.Wait {
	cfg := &e.w.s.cfg
	var err error
	switch kind {
	case podplan.WaitVolumes:
		_, err = cfg.Volumes.Ready(e.w.uid)
		wait.For, wait.Next = "its volumes", cfg.Volumes.RetryAt(e.w.uid)
	case podplan.WaitClaims:
		_, err = cfg.Claims.Ready(e.w.uid)
		wait.For, wait.Next = "its resource claims", cfg.Claims.RetryAt(e.w.uid)
	case podplan.WaitUnprepared:
		_, err = cfg.Claims.Released(e.w.uid)
		wait.Next = cfg.Claims.RetryAt(e.w.uid)
	case podplan.WaitUnmounted:
		_, err = cfg.Volumes.Released(e.w.uid)
	}
	wait.Error = text(err)
	return wait
}

// starts returns why containers do not run.
func (e explainer) starts(containers []explain.Container) (waits []explain.Wait) {
	for _, c := range containers {
		img, asked := e.w.images[c.Name]
		switch until, held := e.w.waiting.held[c.Name]; {
		case held:
			waits = append(waits, explain.Wait{
				For:     fmt.Sprintf("container %s, which crashes again and again", c.Name),
				Reason:  e.w.waiting.containers[c.Name].Reason,
				Error:   lastEnd(c),
				Since:   c.Since,
				Next:    until,
				Attempt: c.Restarts + 1,
			})
		case asked && img.result.Reason != "":
			waits = append(waits, explain.Wait{
				For:    fmt.Sprintf("image %s of container %s", c.Image, c.Name),
				Reason: img.result.Reason,
				Error:  img.result.Message,
				Since:  img.asked,
				Next:   img.result.RetryAt,
			})
		case asked && !img.result.Ready && c.State != "running":
			waits = append(waits, explain.Wait{
				For:   fmt.Sprintf("image %s of container %s", c.Image, c.Name),
				Since: img.asked,
			})
		}
	}
	return waits
}

// gates returns the readiness gates of the pod that are not met.
func (e explainer) gates() (waits []explain.Wait) {
	for _, gate := range e.w.source.spec.Spec.ReadinessGates {
		if !conditionMet(e.w.source.spec, gate.ConditionType) {
			waits = append(waits, explain.Wait{
				For: fmt.Sprintf("the condition %s of its readiness gate", gate.ConditionType),
			})
		}
	}
	return waits
}

func conditionMet(p *v1.Pod, kind v1.PodConditionType) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == kind && c.Status == v1.ConditionTrue
	})
}

// lastEnd says how a container ended.
func lastEnd(c explain.Container) string {
	if c.ExitCode == nil {
		return ""
	}
	out := fmt.Sprintf("it last exited with code %d", *c.ExitCode)
	if c.Reason != "" {
		out += " (" + c.Reason + ")"
	}
	if c.Message != "" {
		out += ": " + strings.TrimSpace(c.Message)
	}
	return out
}

// nameTask says what a task is for.
func (e explainer) nameTask(verb podplan.Verb, target podplan.Target) string {
	switch {
	case target == podplan.NewSandbox:
		return "the creation of its sandbox"
	case verb == podplan.Start:
		return "the start of container " + target.Name
	}
	c, ok := e.have.ByID(target.Name)
	if !ok || target.Kind != podplan.KindInstance {
		return string(verb)
	}
	what := "the " + string(verb) + " of container " + c.Name
	if verb == podplan.Stop && e.hasPreStop(c.Name) {
		what += ", which begins with its preStop hook"
	}
	return what
}

// hasPreStop reports whether a hook runs before the container is stopped.
func (e explainer) hasPreStop(name string) bool {
	if e.w.source.spec == nil {
		return false
	}
	_, spec, ok := pod.Find(e.w.source.spec, name)
	return ok && spec.Lifecycle != nil && spec.Lifecycle.PreStop != nil
}

func (e explainer) containers() []explain.Container {
	if e.w.source.spec == nil {
		var out []explain.Container
		for _, c := range e.have.Containers {
			out = append(out, seen(explain.Container{Name: c.Name, Kind: pod.Regular.String(), Image: c.Image}, c))
		}
		return out
	}
	var out []explain.Container
	for kind, spec := range pod.Containers(e.w.source.spec) {
		c := explain.Container{Name: spec.Name, Kind: kind.String(), Image: spec.Image, State: "not created"}
		if inst, ok := e.have.Latest(spec.Name); ok {
			c = seen(c, inst)
			if inst.State == pod.StateRunning {
				r := e.w.s.cfg.Probes.Result(e.w.source.spec, inst)
				c.Started, c.Ready = r.Started, r.Ready
			}
		}
		out = append(out, c)
	}
	return out
}

// seen adds what the runtime shows of a container.
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
	return map[pod.Source]string{
		pod.SourceAPI:  "the API server",
		pod.SourceFile: "a file",
		pod.SourceHTTP: "a URL",
	}[pod.SourceOf(p)]
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
