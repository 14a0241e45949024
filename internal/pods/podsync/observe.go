package podsync

import (
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
)

// gatherer collects the facts for one decision.
type gatherer struct{ w *worker }

// observe collects the facts that are available without requests: what the sources and the runtime have of the pod, and
// what is under way.
func (g gatherer) observe(now time.Time) podplan.Input {
	cfg := &g.w.s.cfg
	in := podplan.Input{Now: now}
	select {
	case <-cfg.Observed.Synced():
	default:
		in.RuntimeUnlisted = true
		return in
	}
	in.Source = g.seeSource()
	if in.Source.Missing && in.Source.Unsynced || in.Source.Undecided {
		return in
	}
	// The tasks are read before the observed state: a task that ends in between counts as under way, because its outcome
	// is still in the mailbox. In the other order its effect would be missing, and it would be started twice.
	in.Busy = g.w.tasks.busy()
	have, read := cfg.Observed.Get(g.w.uid)
	if g.w.source.spec == nil {
		g.w.noteName(have, read)
	}
	if !read {
		in.RuntimeUnread = true
		return in
	}
	have.UID = g.w.uid
	in.Have = have
	g.seeRuntime(&in)
	g.remember(&in)
	return in
}

// seeRuntime adds what the runtime has of the pod.
func (g gatherer) seeRuntime(in *podplan.Input) {
	w, have, spec := g.w, in.Have, g.w.source.spec
	if spec == nil {
		w.source.adopted = w.source.adopted || !have.Empty()
	}
	w.restarts.keep(have)
	w.sandboxes.keep(have, w.source.stored())
	in.Pod, in.Adopted = spec, w.source.adopted
	in.NameTaken = spec != nil && g.nameTaken(have)
	if spec != nil && !in.NameTaken {
		w.admission.begin(spec, have, in.Now)
	}
	g.seeStarts(have)
	if !in.NameTaken && len(have.Containers) == 0 {
		w.waiting.unlinkedLogs = false // containers that are started from now on have their logs linked
	}
}

// remember adds the state of the worker.
func (g gatherer) remember(in *podplan.Input) {
	w, cfg := g.w, &g.w.s.cfg
	in.Recovered = w.admission.recovered
	in.Admission = w.admission.facts(&cfg.Resources, in.Pod, in.Have)
	in.Termination, in.Eviction = w.termination.Termination, w.termination.eviction
	in.Held = w.holdings.facts(cfg, w.uid)
	in.StoppedForRestart, in.Recreated = w.restarts.stoppedForRestart, w.restarts.recreated
	in.RetryAt = w.tasks.retryAt(in.Have)
	in.History = w.restarts.history()
	in.SandboxStopped, in.SandboxWithoutCgroup = w.sandboxes.stopped, w.sandboxes.cgroupGone
	in.UnlinkedLogs = w.waiting.unlinkedLogs
	in.Images = w.images.facts(w.tasks)
	in.KeepEnded = cfg.KeepEnded
}

// seeSource reads what the sources have of the pod. While a resize is not decided, the pod stays as it was before the
// resize was requested, because its status would show the new generation without a condition for the resize. Its
// deletion does not wait.
func (g gatherer) seeSource() podplan.Source {
	cfg, src := &g.w.s.cfg, &g.w.source
	spec, mirror, known := cfg.Desired.Get(g.w.uid)
	known = known && !src.removed && !src.cameBack(spec)
	src.held = false
	switch {
	case known:
		src.desired, src.mirror = spec, mirror
		as, decided := cfg.Allocation.Allocate(spec)
		src.held = !decided && spec.DeletionTimestamp == nil
		switch {
		case !src.held:
			g.learn(as)
		case src.spec == nil || src.spec.Generation == spec.Generation:
			return podplan.Source{Undecided: true}
		}
	case !src.removed && g.unsynced():
		return podplan.Source{
			Missing:  true,
			Unsynced: true,
		}
	}
	src.known, src.removed = known, !known
	return podplan.Source{
		Missing: !known,
		Forced:  src.forced,
		Discard: src.discard,
	}
}

// unsynced reports whether a source that may have the pod has not delivered yet. A static pod that the runtime holds
// waits only for the sources of static pods: it may be an old version of the API server, which is unavailable until its
// next version runs.
func (g gatherer) unsynced() bool {
	d := g.w.s.cfg.Desired
	if have, _ := g.w.s.cfg.Observed.Get(g.w.uid); have.Source() != pod.SourceAPI {
		return !d.SourceReady(pod.SourceFile) || !d.SourceReady(pod.SourceHTTP)
	}
	return !d.Ready()
}

// cameBack reports whether a static pod was removed since it was last synced, and added
// again with the same UID. That counts as a new pod, which waits for this one to end.
func (src *source) cameBack(spec *v1.Pod) bool {
	return src.desired != nil && spec != nil && pod.IsStatic(spec) &&
		spec.Annotations[pod.AnnotationConfigSeen] != src.desired.Annotations[pod.AnnotationConfigSeen]
}

// resizeConditions are the conditions of the pod's resizes. While the specification is held back, so are they: a resize
// may have been decided since.
func (src *source) resizeConditions(a Allocated, uid types.UID) []v1.PodCondition {
	if !src.held {
		src.conditions = a.Conditions(uid)
	}
	return src.conditions
}

// stored returns the pod with the status that the API server has of it; nil if there is no specification.
func (src *source) stored() *v1.Pod {
	if src.mirror == nil || src.spec == nil {
		return src.spec
	}
	p := *src.spec
	p.Status = src.mirror.Status
	return &p
}

// learn stores the specification.
func (g gatherer) learn(spec *v1.Pod) {
	if g.w.source.spec == nil {
		g.w.log = g.w.log.With("pod", spec.Namespace+"/"+spec.Name)
	}
	if !g.w.s.cfg.RestartAll {
		spec = podplan.WithoutRestartAll(spec)
	}
	g.w.source.spec = spec
}

// sandboxes are what is known of the pod's sandboxes and their cgroup.
type sandboxes struct {
	stopped    map[string]bool // by ID
	cgroupGone string          // see [podplan.History]
	sized      *v1.Pod         // whose resources the pod's cgroup is known to have; nil: not known
	resized    *v1.Pod         // whose resources were last to be actuated
}

// keep drops the records of sandboxes that no longer exist. Sandboxes of a pod whose stored phase is terminal count as
// stopped: the phase is written after they were stopped, maybe by an earlier agent.
func (s *sandboxes) keep(have pod.Runtime, stored *v1.Pod) {
	exist := map[string]bool{}
	ended := stored != nil && pod.IsTerminal(stored)
	for _, box := range have.Sandboxes {
		exist[box.ID] = true
		if ended && !box.Ready {
			s.stopped[box.ID] = true
		}
	}
	maps.DeleteFunc(s.stopped, func(id string, _ bool) bool { return !exist[id] })
}
