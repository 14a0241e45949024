package podsync

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/internal/pods/status"
)

// publish hands the facts of the pod's status on. What was under way when have
// was read may have had effects since. A pod is down when nothing of it lives, its
// sandbox neither: whoever sees that it has ended may send another in its place.
func (w *worker) publish(have pod.Runtime, busy map[string]podplan.Task, finished bool) {
	if w.spec == nil || !w.known {
		return
	}
	f := status.Facts{
		Pod:      w.spec,
		Mirror:   w.mirror,
		Have:     have,
		Started:  w.started,
		Down:     !have.Live() && !w.anySandbox(have),
		Finished: finished,
		PodIPs:   w.podIPs,
		HostIPs:  w.s.cfg.HostIPs(),
		Probes:   map[string]status.Probe{},
	}
	if released, _ := w.s.cfg.Claims.Released(w.uid); !released {
		f.Down = false // others may be given what it claimed once it is shown as ended
	}
	for _, c := range have.Containers {
		f.Probes[c.ID] = w.s.cfg.Probes.Result(w.spec, c)
	}
	now := w.underWay() // and what this turn has started
	maps.Copy(now, busy)
	for target, t := range now {
		switch t.Verb {
		case podplan.RunSandbox:
			f.Down = false
		case podplan.Start:
			f.Down = false
			if c, ok := have.Latest(target); ok && hooked(w.spec, target) {
				f.Probes[c.ID] = status.Probe{}
			}
		}
	}
	if force := w.s.cfg.Allocation.InForce(w.spec); force != w.spec {
		f.InForce = force
	}
	f.Health = bothHealths(w.s.cfg.Resources.Health(w.spec), w.s.cfg.Claims.Health(w.spec))
	f.Resize = w.s.cfg.Allocation.Conditions(w.uid)
	w.mu.Lock()
	f.Going, f.Override, f.Waiting = w.going != nil, w.override, maps.Clone(w.waiting)
	w.mu.Unlock()
	w.s.cfg.Status.Publish(f)
	if !finished {
		w.tellMismatch()
	}
}

// tellMismatch says once of the pod that it is told addresses of another family than the
// agent would tell it.
func (w *worker) tellMismatch() {
	now := w.s.cfg.AddressMismatch()
	if now != "" && now != w.mismatch {
		w.s.cfg.Events.Pod(w.spec, "", v1.EventTypeWarning, pod.EventAddressMismatch, now)
	}
	w.mismatch = now
}

// bothHealths is how well the devices of containers are, by whomever they were given.
func bothHealths(a, b map[string][]v1.ResourceStatus) map[string][]v1.ResourceStatus {
	if len(b) == 0 {
		return a
	}
	out := maps.Clone(b)
	for name, list := range a {
		out[name] = slices.Concat(list, out[name])
	}
	return out
}

// forget drops what other parts keep for the pod.
func (w *worker) forget() {
	cfg := &w.s.cfg
	cfg.Probes.Forget(w.uid)
	cfg.Images.Forget(w.uid)
	cfg.Status.Forget(w.uid)
	cfg.Allocation.Forget(w.uid)
	w.leaveName()
	if w.spec != nil {
		w.log.Info("pod is gone")
	}
}
