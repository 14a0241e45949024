package podsync

import (
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
)

// waiting is why containers do not run, as their status shows it.
type waiting struct {
	containers map[string]pod.Waiting // by name
	held       map[string]time.Time   // containers whose back-off was announced, and until when
	late       pod.Late               // the device plugins that the pod waits for
	// failedAt is when a start failed last; zero once the runtime was read after that.
	failedAt time.Time
	// unlinkedLogs says that logs may not be linked under their older names.
	unlinkedLogs bool
}

func newWaiting() waiting {
	return waiting{
		containers:   map[string]pod.Waiting{},
		held:         map[string]time.Time{},
		unlinkedLogs: true,
	}
}

// seeStarts finds starts whose response was lost because the runtime was unavailable: a container that runs was
// started.
func (g gatherer) seeStarts(have pod.Runtime) {
	wait := &g.w.waiting
	if wait.failedAt.IsZero() || have.SeenAt.Before(wait.failedAt) {
		return // read before the start failed: it does not show the result
	}
	wait.failedAt, wait.unlinkedLogs = time.Time{}, true
	for _, c := range have.Containers {
		if c.State == pod.StateRunning {
			delete(wait.containers, c.Name)
		}
	}
}

// announce shows that containers wait for their back-off, and records that in an event once for each wait.
func (w *worker) announce(plan podplan.Plan) {
	for name, until := range plan.Held {
		if w.waiting.held[name].Equal(until) {
			continue
		}
		w.waiting.held[name] = until
		tag := podTag(w.source.spec)
		w.waiting.containers[name] = pod.Waiting{
			Reason: pod.ReasonCrashLoopBackOff,
			Message: "back-off " + w.restarts.backoff[name].Delay.String() + " restarting failed container=" + name +
				" pod=" + tag,
		}
		w.s.cfg.Events.Pod(w.source.spec, name, v1.EventTypeWarning, pod.EventBackOff,
			"Back-off restarting failed container "+name+" in pod "+tag)
	}
	maps.DeleteFunc(w.waiting.held, func(name string, _ time.Time) bool {
		_, still := plan.Held[name]
		return !still
	})
}

// podTag names a pod in the messages of events, as upstream does.
func podTag(p *v1.Pod) string { return pod.FullName(p) + "(" + string(p.UID) + ")" }

// await shows for which device plugins the pod waits. Each new set of them is recorded in an event.
func (w *worker) await(late pod.Late) {
	wait := &w.waiting
	if !late.Waits() && !wait.late.Waits() {
		return
	}
	known := wait.late.Waits() && wait.late.String() == late.String()
	wait.late = late
	maps.DeleteFunc(wait.containers, func(_ string, s pod.Waiting) bool {
		return s.Reason == pod.ReasonDevicePluginLate
	})
	message := "waiting for " + awaited(late)
	for _, name := range late.Containers {
		wait.containers[name] = pod.Waiting{
			Reason:  pod.ReasonDevicePluginLate,
			Message: message,
		}
	}
	if !late.Waits() || known {
		return
	}
	log := w.log.With("resources", late.Resources)
	if !late.Until.IsZero() { // else there is no time limit
		log = log.With("until", late.Until)
	}
	log.Info("pod waits for device plugins")
	w.s.cfg.Events.Pod(w.source.spec, "", v1.EventTypeWarning, pod.EventDevicePluginLate, message)
}

// awaited describes the resources that a pod waits for, with the time at which the pod is rejected.
func awaited(late pod.Late) string {
	if late.Until.IsZero() {
		return late.String()
	}
	return late.String() + "; without it the pod is rejected at " + late.Until.UTC().Format(time.RFC3339)
}
