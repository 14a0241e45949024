package judge

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/admission"
	"keelson/internal/pods/allocation"
	"keelson/internal/pods/desired"
	"keelson/internal/pods/observed"
	"keelson/internal/pods/pod"
	"keelson/internal/resources/topology"
)

// Occupancy finds the pods that use the node's resources, or will use them.
type Occupancy struct {
	Desired  *desired.Store
	Observed *observed.Cache
	Topology *topology.Manager
	// MayClaim reports whether a static pod may run under its full name.
	MayClaim func(p *v1.Pod) bool
}

// occupies reports whether a pod may hold resources of the node: a source has it, or it runs.
func (o Occupancy) occupies(uid types.UID) bool {
	_, _, known := o.Desired.Get(uid)
	return known || o.RunningWithoutSource(uid)
}

// RunningWithoutSource reports whether a pod that no source has delivered uses the node's resources. Once all sources
// have synced it is an orphan, and uses them only while it runs.
func (o Occupancy) RunningWithoutSource(uid types.UID) bool {
	if _, _, known := o.Desired.Get(uid); known {
		return false
	}
	if !o.Desired.Ready() {
		return o.runs(uid)
	}
	have, read := o.Observed.Get(uid)
	return !read || have.Live()
}

// runs reports whether the runtime holds anything of the pod. It is true if that could not be read yet.
func (o Occupancy) runs(uid types.UID) bool {
	have, read := o.Observed.Get(uid)
	return !read || !have.Empty()
}

// Arrivals are the pods that can be admitted now: those that run, and those whose full name is free.
func (o Occupancy) Arrivals(skip func(types.UID) bool) []allocation.Arrival {
	var out []allocation.Arrival
	for _, uid := range o.Desired.UIDs() {
		if skip(uid) {
			continue
		}
		p, _, known := o.Desired.Get(uid)
		if !known || pod.IsTerminal(p) && !pod.IsStatic(p) {
			continue
		}
		if running := o.runs(uid); running || admission.Admissible(p) && o.MayClaim(p) {
			out = append(out, allocation.Arrival{Pod: p, Running: running})
		}
	}
	return out
}

// TakeOver allocates resources to a pod that runs already. A pod that has ended or is being deleted needs nothing new.
func (o Occupancy) TakeOver(p *v1.Pod) {
	if have, read := o.Observed.Get(p.UID); read && have.Live() && admission.Admissible(p) {
		o.Topology.Adopt(p)
	}
}

// Vacate releases resources of pods that are gone. Before all sources have synced, a pod may belong to one of them.
func (o Occupancy) Vacate() {
	if o.Desired.Ready() {
		o.Topology.Prune(o.occupies)
	}
}

// Present are the pods that a shutdown has to end: those of the account, which use the node, and those of an earlier
// agent that were not admitted again yet.
func (o Occupancy) Present(account []*v1.Pod) []*v1.Pod {
	pods := account
	have := map[types.UID]bool{}
	for _, p := range pods {
		have[p.UID] = true
	}
	for _, uid := range o.Desired.UIDs() {
		p, _, known := o.Desired.Get(uid)
		// A pod that could not be read yet may have arrived during the shutdown. It is counted once it has been read.
		seen, read := o.Observed.Get(uid)
		if known && !have[uid] && (pod.IsStatic(p) || !pod.IsTerminal(p)) && read && !seen.Empty() {
			pods = append(pods, p)
		}
	}
	return pods
}
