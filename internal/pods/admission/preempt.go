package admission

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// Preempt returns the victims that have to be evicted so that a critical pod, which was
// refused for a lack of resources, can run; none for other pods. It is an error if all
// possible victims are not enough.
//
// Burstable pods are victims only if BestEffort pods are not enough, Guaranteed pods only
// if both are not. Within a class few pods near in size are preferred to many or large
// ones.
func (r Rules) Preempt(in Input) ([]*v1.Pod, error) {
	if !pod.IsCritical(in.Pod) {
		return nil, nil
	}
	var need needs
	for l := range lacks(in) {
		need = append(need, amountOf{l.name, l.missing()})
	}
	if len(need) == 0 {
		return nil, nil
	}
	classes := map[v1.PodQOSClass][]*v1.Pod{}
	for _, other := range in.Others {
		if preemptable(in.Pod, other) {
			classes[pod.QOS(other)] = append(classes[pod.QOS(other)], other)
		}
	}
	for _, pods := range classes {
		slices.SortFunc(pods, func(a, b *v1.Pod) int { return cmp.Compare(a.UID, b.UID) })
	}
	bestEffort, burstable := classes[v1.PodQOSBestEffort], classes[v1.PodQOSBurstable]
	guaranteed := classes[v1.PodQOSGuaranteed]
	if short := need.less(bestEffort).less(burstable).less(guaranteed); len(short) > 0 {
		return nil, fmt.Errorf("preemption: error finding a set of pods to preempt: no set of running pods found to "+
			"reclaim resources: %s", short)
	}
	g := nearest(guaranteed, need.less(bestEffort).less(burstable))
	b := nearest(burstable, need.less(bestEffort).less(g))
	e := nearest(bestEffort, need.less(b).less(g))
	return slices.Concat(e, b, g), nil
}

func preemptable(by, p *v1.Pod) bool {
	if pod.IsStandIn(p) {
		return false // it may be critical
	}
	if !pod.IsCritical(p) {
		return true
	}
	return by.Spec.Priority != nil && p.Spec.Priority != nil && *by.Spec.Priority > *p.Spec.Priority
}

// nearest chooses pods one at a time until nothing is needed any more: each time the one
// that leaves the smallest distance, and among equals the smallest pod.
func nearest(pods []*v1.Pod, need needs) (chosen []*v1.Pod) {
	left := slices.Clone(pods)
	for len(need) > 0 && len(left) > 0 {
		best := 0
		for i := 1; i < len(left); i++ {
			d, least := need.distance(left[i]), need.distance(left[best])
			if d < least || d == least && smaller(left[i], left[best]) {
				best = i
			}
		}
		chosen = append(chosen, left[best])
		need = need.less(left[best : best+1])
		left = slices.Delete(left, best, best+1)
	}
	return chosen
}

type amountOf struct {
	name   v1.ResourceName
	amount int64
}

// needs are the missing amounts by resource.
type needs []amountOf

// less subtracts the requests of the pods.
func (n needs) less(pods []*v1.Pod) needs {
	var out needs
	for _, need := range n {
		for _, p := range pods {
			need.amount -= gives(p, need.name)
		}
		if need.amount > 0 {
			out = append(out, need)
		}
	}
	return out
}

// distance is the sum, over all needs, of the squared fraction that the pod does not
// cover.
func (n needs) distance(p *v1.Pod) float64 {
	sum := 0.0
	for _, need := range n {
		if open := float64(need.amount - gives(p, need.name)); open > 0 {
			sum += (open / float64(need.amount)) * (open / float64(need.amount))
		}
	}
	return sum
}

func (n needs) String() string {
	var b strings.Builder
	for _, need := range n {
		fmt.Fprintf(&b, "(res: %s, q: %d), ", need.name, need.amount)
	}
	return "[" + b.String() + "]"
}

func gives(p *v1.Pod, name v1.ResourceName) int64 {
	if name == v1.ResourcePods {
		return 1
	}
	return requests(p)[name]
}

// smaller compares memory, then CPU.
func smaller(a, b *v1.Pod) bool {
	ra, rb := requests(a), requests(b)
	return cmp.Or(cmp.Compare(ra[v1.ResourceMemory], rb[v1.ResourceMemory]),
		cmp.Compare(ra[v1.ResourceCPU], rb[v1.ResourceCPU])) < 0
}
