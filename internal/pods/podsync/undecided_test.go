package podsync

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
)

// undecidedResize is an allocation that has not decided a resize yet.
type undecidedResize struct {
	*node
	decided    bool
	generation int64
}

func (u *undecidedResize) Allocate(p *v1.Pod) (*v1.Pod, bool) { return p, u.decided }

func (u *undecidedResize) Conditions(types.UID) []v1.PodCondition {
	return []v1.PodCondition{{ObservedGeneration: u.generation}}
}

// A pod stays as it was until its resize is decided, because its status would show the new generation without a
// condition. The deletion of the pod does not wait for that.
func TestPodIsUnchangedUntilResizeIsDecided(t *testing.T) {
	a := &undecidedResize{node: &node{}}
	m := newMeasured(t).on(a.node)
	m.cfg.Allocation.Allocated = a
	next := func(generation int64) *v1.Pod {
		p := podNamed("u", pod.SourceAPI)
		p.Generation = generation
		return p
	}
	deleted := next(4)
	deleted.DeletionTimestamp = &metav1.Time{Time: m.now}
	w := m.worker("u", nil)
	for _, step := range []struct {
		name    string
		source  *v1.Pod
		decided bool
		want    int64 // the generation that the worker uses; 0: none
		waits   bool
	}{
		{"a restarted agent has not decided it", next(1), false, 0, true},
		{"it is decided", next(1), true, 1, false},
		{"a restarted agent has admitted it since", next(1), false, 1, true},
		{"the pod is resized", next(2), false, 1, false},
		{"that is decided", next(2), true, 2, false},
		{"the pod is resized again", next(3), false, 2, false},
		{"the pod is deleted", deleted, false, 4, false},
	} {
		m.desired["u"] = struct{ spec, mirror *v1.Pod }{spec: step.source}
		a.decided = step.decided
		got := gatherer{w}.seeSource()
		generation := int64(0)
		if w.source.spec != nil {
			generation = w.source.spec.Generation
		}
		a.generation = step.source.Generation // it is decided now
		if shown := w.source.resizeConditions(a, "u"); !step.waits && shown[0].ObservedGeneration != generation {
			t.Errorf("%s: shows conditions of generation %d", step.name, shown[0].ObservedGeneration)
		}
		if generation != step.want || got.Undecided != step.waits {
			t.Errorf("%s: generation %d, source %+v, want generation %d", step.name, generation, got, step.want)
		}
	}
}
