package eviction

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
)

// Candidate is a pod that may be evicted.
type Candidate struct {
	Pod *v1.Pod
	Use Use
}

// rank is the position of a pod in the eviction order.
type rank struct {
	Candidate
	over     bool  // uses more than it requests
	priority int32 // lower ones are evicted first
	used     int64 // beyond its request
}

// Candidates returns the pods with known usage, without those whose eviction is in progress.
func Candidates(pods []*v1.Pod, uses map[types.UID]Use, leaving map[types.UID]bool) []Candidate {
	var out []Candidate
	for _, p := range pods {
		if u, known := uses[p.UID]; known && !leaving[p.UID] {
			out = append(out, Candidate{p, u})
		}
	}
	return out
}

// Choose returns the pod to evict: among pods that use more than they request the one with the lowest priority, and
// among these the one that exceeds its request by the most. Critical pods are never chosen, nor pods whose usage of the
// starved resource is not known.
func Choose(m Met, from []Candidate, d Disks, now time.Time) (Candidate, bool) {
	var ranks []rank
	for _, c := range from {
		if pod.IsCritical(c.Pod) || now.Sub(c.Use.At) > stale {
			continue
		}
		if r, known := rankOf(m.Signal, c, d); known {
			ranks = append(ranks, r)
		}
	}
	if len(ranks) == 0 {
		return Candidate{}, false
	}
	return slices.MinFunc(ranks, func(a, b rank) int {
		return cmp.Or(-cmpBool(a.over, b.over), cmp.Compare(a.priority, b.priority), cmp.Compare(b.used, a.used),
			cmp.Compare(a.Pod.UID, b.Pod.UID))
	}).Candidate, true
}

// rankOf ranks a pod. Pods have no request for process IDs.
func rankOf(s Signal, c Candidate, d Disks) (r rank, known bool) {
	r.Candidate = c
	if c.Pod.Spec.Priority != nil {
		r.priority = *c.Pod.Spec.Priority
	}
	scarce := signalInfo[s].resource
	switch scarce {
	case v1.ResourceMemory:
		if c.Use.Memory == nil {
			return r, false
		}
		r.used = int64(*c.Use.Memory)
	case resourcePIDs:
		if c.Use.Processes == nil {
			return r, false
		}
		r.used = int64(*c.Use.Processes)
		return r, true
	case v1.ResourceEphemeralStorage:
		r.used = int64(c.Use.space(d.places(s)).Bytes)
	case resourceInodes:
		r.used = int64(c.Use.space(d.places(s)).Inodes)
	default:
		return r, false
	}
	r.used -= requested(c.Pod, scarce)
	r.over = r.used > 0
	return r, true
}

func cmpBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// Grace returns the termination grace period of an eviction: one second for a hard threshold, and for a soft one that
// of the pod, at most longest and at least one second.
func Grace(m Met, p *v1.Pod, longest time.Duration) time.Duration {
	if m.Hard() {
		return time.Second
	}
	own := pod.DefaultGrace
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
		own = pod.Seconds(*s)
	}
	return max(min(longest, own), time.Second)
}
