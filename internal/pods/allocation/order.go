package allocation

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// pendingResize is a resize request that was not accepted.
type pendingResize struct {
	pod     *v1.Pod // as desired
	want    Resources
	reason  string // Deferred or Infeasible; empty: not decided yet
	message string
	event   string    // the reason of the last event, maybe of an earlier agent
	since   time.Time // when it was first pending
	grows   bool
}

// sortPending sorts resizes in the order in which they are decided: first those that only release resources, then by
// priority, by QoS class, and by the time since which they are pending.
func sortPending(list []*pendingResize) {
	slices.SortStableFunc(list, func(a, b *pendingResize) int {
		return cmp.Or(
			cmp.Compare(boolInt(a.grows), boolInt(b.grows)),
			-cmp.Compare(priority(a.pod), priority(b.pod)),
			cmp.Compare(classRank(a.pod), classRank(b.pod)),
			a.since.Compare(b.since),
			cmp.Compare(a.pod.UID, b.pod.UID))
	})
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func priority(p *v1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

func classRank(p *v1.Pod) int {
	switch pod.QOS(p) {
	case v1.PodQOSGuaranteed:
		return 0
	case v1.PodQOSBurstable:
		return 1
	}
	return 2
}

// Deferred resizes are decided again after firstRetry, then every laterRetry, and whenever resources may have been
// released.
const (
	firstRetry = 30 * time.Second
	laterRetry = 3 * time.Minute
)
