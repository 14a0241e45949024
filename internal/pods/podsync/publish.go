package podsync

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/internal/pods/status"
)

// shown is what was published of the pod.
type shown struct {
	podIPs       []string
	mismatch     string // of the node's addresses, as it was last recorded for this pod
	networkEvent bool   // an event says that the runtime's network is not ready
}

// seeIPs stores the addresses of the pod.
func (s *shown) seeIPs(spec *v1.Pod, have pod.Runtime, node *Node) {
	if spec.Spec.HostNetwork {
		s.podIPs = node.HostIPs()
		return
	}
	if box, ok := have.ReadySandbox(); ok && len(box.IPs) > 0 {
		s.podIPs = pod.Addresses(box.IPs, node.NodeIP)
	}
}

// publish passes the facts of the pod's status on, if they are known. While the resources of a stopped pod are being
// released, which decides whether it is shown as ended, it waits for that.
func (w *worker) publish(plan podplan.Plan, in *podplan.Input) {
	if !plan.Shown || in.Pod == nil || in.Source.Missing || plan.WaitsFor(podplan.WaitResourcesReleased) {
		return
	}
	cfg, spec := &w.s.cfg, in.Pod
	f := status.Facts{
		Pod:               spec,
		Mirror:            w.source.mirror,
		Have:              in.Have,
		StoppedForRestart: maps.Clone(in.StoppedForRestart),
		Recreated:         plan.Recreated,
		Started:           w.admission.started,
		Terminating:       plan.Termination != nil,
		Down:              plan.Down,
		Finished:          plan.State >= podplan.Released,
		Resize:            w.source.resizeConditions(cfg.Allocation, w.uid),
		Waiting:           maps.Clone(w.waiting.containers),
		Probes:            w.shownProbes(in),
		Health:            bothHealths(cfg.Resources.Health(spec), cfg.Claims.Health(spec)),
		PodIPs:            w.shown.podIPs,
		HostIPs:           cfg.Node.HostIPs(),
	}
	if plan.Termination != nil {
		f.Override = plan.Termination.Override
	}
	if actuated := cfg.Allocation.Actuated(spec); actuated != spec {
		f.Actuated = actuated
	}
	cfg.Status.Publish(f)
	if !f.Finished {
		w.reportMismatch()
	}
}

// shownProbes returns the results of probes, as the status shows them. A container whose postStart hook runs has not
// started. Starts that were under way when the runtime was read count, too, even if they have ended since.
func (w *worker) shownProbes(in *podplan.Input) map[string]status.Probe {
	probes := map[string]status.Probe{}
	for _, c := range in.Have.Containers {
		probes[c.ID] = w.s.cfg.Probes.Result(in.Pod, c)
	}
	now := w.tasks.busy() // and what this turn has started
	maps.Copy(now, in.Busy)
	for key, t := range now {
		name := key.Target.Name
		if t.Verb != podplan.Start || !hasPostStart(in.Pod, name) {
			continue
		}
		if c, ok := in.Have.Latest(name); ok {
			probes[c.ID] = status.Probe{}
		}
	}
	return probes
}

// reportMismatch records in an event, once for each pod, that the pod's addresses on the node's network are of another
// family than the agent would choose.
func (w *worker) reportMismatch() {
	now := w.s.cfg.Node.AddressMismatch()
	if now != "" && now != w.shown.mismatch {
		w.s.cfg.Events.Pod(w.source.spec, "", v1.EventTypeWarning, pod.EventAddressMismatch, now)
	}
	w.shown.mismatch = now
}

// bothHealths merges the health of devices that two parts allocate.
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
