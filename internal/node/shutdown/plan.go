package shutdown

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
)

// Period is how long pods of a priority, or of more but less than the next period's,
// have to end.
type Period struct {
	Priority int32
	Length   time.Duration
}

// critical is the least priority of pods that the node needs most.
const critical = 2_000_000_000

// Periods are those of a node that only tells critical pods from others.
func Periods(total, forCritical time.Duration) []Period {
	if total <= 0 {
		return nil
	}
	return []Period{{Priority: 0, Length: total - forCritical}, {Priority: critical, Length: forCritical}}
}

// Total is how long a shutdown may take.
func Total(periods []Period) (sum time.Duration) {
	for _, p := range periods {
		sum += p.Length
	}
	return sum
}

// Group are pods that are ended together.
type Group struct {
	Length time.Duration // how long they are waited for
	Ends   []End
}

// End is a pod's, and how long it may take over it.
type End struct {
	UID   types.UID
	Grace time.Duration
}

// Plan is who ends in a shutdown, in which order, and how long each may take: a group
// for each period. A pod belongs to the period with the highest priority that is not
// above its own, and to the lowest if all are above.
func Plan(pods []*v1.Pod, periods []Period) []Group {
	periods = inOrder(periods)
	groups := make([]Group, len(periods))
	for i, p := range periods {
		groups[i].Length = p.Length
	}
	if len(groups) == 0 {
		return nil
	}
	for _, p := range pods {
		at := 0
		for i := range periods {
			if periods[i].Priority <= priority(p) {
				at = i
			}
		}
		groups[at].Ends = append(groups[at].Ends, End{p.UID, min(periods[at].Length, pod.Grace(p))})
	}
	return groups
}

// inOrder are the periods in which pods end one after another.
func inOrder(periods []Period) []Period {
	return slices.SortedStableFunc(slices.Values(periods), func(a, b Period) int { return cmp.Compare(a.Priority, b.Priority) })
}

func priority(p *v1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}
