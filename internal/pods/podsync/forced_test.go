package podsync

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
)

// A pod that is on its way out and whose object is taken away has no time left, though
// nobody heard the object being given none.
func TestAPodThatIsForcedToGoHasNoTimeLeft(t *testing.T) {
	m := newMeasured(t)
	p := podNamed("u", pod.SourceAPI)
	p.Spec.TerminationGracePeriodSeconds = ptr.To(int64(30))
	w := m.worker("u", p)
	left := func() time.Duration {
		t.Helper()
		if _, stays := w.judgeWish(m.now); stays {
			t.Fatal("it may stay")
		}
		return w.going.Deadline.Sub(m.now)
	}
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: m.now}, ptr.To(int64(600))
	if got := left(); got != 600*time.Second {
		t.Errorf("it was given %v", got)
	}
	m.now = m.now.Add(time.Second)
	w.known = false
	if got := left(); got > time.Second {
		t.Errorf("when it was forced to go it has %v", got)
	}

	// Its object was gone before the worker saw it being deleted.
	w = m.worker("f", podNamed("f", pod.SourceAPI))
	w.spec.Spec.TerminationGracePeriodSeconds = ptr.To(int64(30))
	w.known = false
	w.s.workers["f"] = w
	w.s.Force("f")
	if got := left(); got > time.Second {
		t.Errorf("when its object was gone at once it has %v", got)
	}

	// One that nobody has asked to go has the time that it wants.
	w = m.worker("v", podNamed("v", pod.SourceAPI))
	w.spec.Spec.TerminationGracePeriodSeconds = ptr.To(int64(30))
	w.known = false
	if got := left(); got != 30*time.Second {
		t.Errorf("one that was taken away has %v", got)
	}
}
