package podsync

import (
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/status"
)

// await shows for which device plugins the pod waits. Each new set of them is recorded in an event.
func (w *worker) await(late pod.Late) {
	if !late.Waits() && !w.late.Waits() {
		return
	}
	said := w.late.Waits() && w.late.String() == late.String()
	w.late = late
	w.mu.Lock()
	maps.DeleteFunc(w.waiting, func(_ string, s status.Waiting) bool { return s.Reason == pod.ReasonDevicePluginLate })
	message := "waiting for " + awaited(late)
	for _, name := range late.Containers {
		w.waiting[name] = status.Waiting{Reason: pod.ReasonDevicePluginLate, Message: message}
	}
	w.mu.Unlock()
	if late.Waits() && !said {
		log := w.log.With("resources", late.Resources)
		if !late.Until.IsZero() { // else there is no time limit
			log = log.With("until", late.Until)
		}
		log.Info("pod waits for device plugins")
		w.s.cfg.Events.Pod(w.spec, "", v1.EventTypeWarning, pod.EventDevicePluginLate, message)
	}
}

// awaited describes the resources that a pod waits for, with the time at which the pod is rejected.
func awaited(late pod.Late) string {
	if late.Until.IsZero() {
		return late.String()
	}
	return late.String() + "; without it the pod is rejected at " + late.Until.UTC().Format(time.RFC3339)
}
