package shutdown

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
)

// Period is the termination period of pods with at least this priority, up to the priority of the next period.
type Period struct {
	Priority int32
	Length   time.Duration
}

// critical is the minimum priority of critical pods.
const critical = 2_000_000_000

// Periods returns the periods of a node that distinguishes critical pods only.
func Periods(total, forCritical time.Duration) []Period {
	if total <= 0 {
		return nil
	}
	return []Period{{Priority: 0, Length: total - forCritical}, {Priority: critical, Length: forCritical}}
}

// Total returns the duration of a shutdown.
func Total(periods []Period) (sum time.Duration) {
	for _, p := range periods {
		sum += p.Length
	}
	return sum
}

// Group is a group of pods that are terminated together.
type Group struct {
	Length time.Duration // of its period
	Pods   []Termination
}

// Termination is the termination of a pod with its grace period.
type Termination struct {
	UID   types.UID
	Grace time.Duration
}

// Plan returns the order and grace periods of the termination: a group for each period. A pod belongs to the period
// with the highest priority that is not above its own, or to the lowest period.
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
		groups[at].Pods = append(groups[at].Pods, Termination{p.UID, min(periods[at].Length, pod.Grace(p))})
	}
	return groups
}

// inOrder sorts the periods by priority.
func inOrder(periods []Period) []Period {
	return slices.SortedStableFunc(slices.Values(periods), func(a, b Period) int {
		return cmp.Compare(a.Priority, b.Priority)
	})
}

func priority(p *v1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}
