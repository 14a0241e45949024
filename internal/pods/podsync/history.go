package podsync

import (
	"fmt"
	"slices"
	"time"

	"keelson/internal/pods/explain"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/internal/pods/timeline"
)

// history is what a worker keeps to explain its pod. The steps are safe for concurrent use.
type history struct {
	steps     *timeline.Line
	pulls     map[string]*timeline.Step // images that are waited for, by container
	volumes   *timeline.Step            // nil: not asked for
	claims    *timeline.Step            // likewise
	probing   *timeline.Step            // from the start of the last container until all are ready
	readyAt   time.Time
	next      time.Time
	waits     map[podplan.Wait]time.Time // since when the pod waits for what
	rejection *explain.Rejection
}

func newHistory() *history {
	return &history{
		steps: &timeline.Line{},
		pulls: map[string]*timeline.Step{},
		waits: map[podplan.Wait]time.Time{},
	}
}

// note records the results of a turn.
func (h *history) note(w *worker, now time.Time, plan podplan.Plan, in *podplan.Input, next time.Time) {
	h.next = next
	h.noteWaits(now, plan)
	if in.Pod == nil || plan.State == podplan.Pending {
		return
	}
	h.notePulls(w.images, in, now)
	h.volumes = h.notePreparation(h.volumes, now, plan.WaitsFor(podplan.WaitVolumes), "volumes")
	h.claims = h.notePreparation(h.claims, now, plan.WaitsFor(podplan.WaitClaims), "resource claims")
	h.noteReady(w, now, in)
}

// noteWaits records since when the pod waits for each thing.
func (h *history) noteWaits(now time.Time, plan podplan.Plan) {
	for what := range h.waits {
		if !slices.Contains(plan.Waits, what) {
			delete(h.waits, what)
		}
	}
	for _, what := range plan.Waits {
		if _, known := h.waits[what]; !known {
			h.waits[what] = now
		}
	}
}

// notePreparation begins the step of a preparation that is waited for, and ends one that is not any more.
func (h *history) notePreparation(step *timeline.Step, now time.Time, waits bool, what string) *timeline.Step {
	switch {
	case !waits:
		step.End(now, nil)
	case step == nil:
		return h.steps.Begin(now, timeline.View{
			Verb:   "prepare",
			Target: what,
		})
	}
	return step
}

func (h *history) notePulls(images images, in *podplan.Input, now time.Time) {
	for _, spec := range pod.Containers(in.Pod) {
		name := spec.Name
		f, asked := images[name]
		if !asked {
			continue
		}
		step, waiting := h.pulls[name]
		switch done := f.result.Ready || f.result.Reason != ""; {
		case !done && !waiting:
			h.pulls[name] = h.steps.Begin(now, timeline.View{
				Verb:    string(podplan.FetchImage),
				Target:  name,
				Attempt: f.attempt,
			})
		case done && waiting:
			var err error
			if f.result.Reason != "" {
				err = fmt.Errorf("%s: %s", f.result.Reason, f.result.Message)
			}
			step.End(now, err)
			delete(h.pulls, name)
		}
	}
}

// noteReady records when all containers run and when all are ready for the first time.
func (h *history) noteReady(w *worker, now time.Time, in *podplan.Input) {
	if !h.readyAt.IsZero() {
		return
	}
	ready := true
	for i := range in.Pod.Spec.Containers {
		c, ok := in.Have.Latest(in.Pod.Spec.Containers[i].Name)
		if !ok || c.State != pod.StateRunning {
			return
		}
		ready = ready && w.s.cfg.Probes.Result(in.Pod, c).Ready
	}
	if h.probing == nil && !ready {
		h.probing = h.steps.Begin(now, timeline.View{Verb: "become ready"})
	}
	if ready {
		h.probing.End(now, nil)
		h.readyAt = now
	}
}
