package allocation

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
)

// slowDisk makes the admission of a pod wait, as for a slow disk. It returns a channel that is closed once the
// admission waits, and a function that ends the wait and reports whether the wait had lasted until then.
func (s *stage) slowDisk(slow types.UID) (waits chan struct{}, end func() bool) {
	waits, release := make(chan struct{}), make(chan struct{})
	s.cfg.Judge = func(p *v1.Pod, others []*v1.Pod, admitted bool) *pod.Rejection {
		if p.UID == slow {
			close(waits)
			<-release
		}
		return fits(p, others, admitted)
	}
	limit := time.AfterFunc(10*time.Second, func() { close(release) }) // a turn that waits fails, and does not hang
	return waits, func() bool {
		if !limit.Stop() {
			return false
		}
		close(release)
		return true
	}
}

// While a resource manager saves what it has reserved for one pod, the turns of other pods go on.
func TestSlowAdmissionDoesNotBlockTurns(t *testing.T) {
	s := newStage(t)
	p, gone := asking("p", "1"), asking("gone", "1")
	s.admit(p, gone)
	waits, end := s.slowDisk("slow")
	admitted := make(chan Verdict)
	go func() { admitted <- s.Admit(t.Context(), asking("slow", "1"), false) }()
	<-waits

	up := resizedTo(p, "2")
	if as, decided := s.Ledger.Allocate(up); decided || milli(as) != 1000 {
		t.Errorf("resize during an admission: %d, decided %v", milli(as), decided)
	}
	s.Gap(up, pod.Runtime{})
	s.Actuated(up)
	s.Progress(up, false)
	s.SetActuated(up, "main", up.Spec.Containers[0].Resources)
	if c := s.Conditions("p"); len(c) != 0 {
		t.Errorf("conditions of a resize that is not decided: %+v", c)
	}
	s.Ledger.Forget("gone")
	if n := len(s.Account()); n != 1 {
		t.Errorf("%d pods in the account", n)
	}
	if !end() {
		t.Fatal("a turn waited for the disk")
	}
	if v := <-admitted; v.Rejection != nil || v.Waits {
		t.Errorf("verdict on the slow pod: %+v", v)
	}
	if as := s.Allocate(up); milli(as) != 2000 {
		t.Errorf("allocated %d after the resize was decided", milli(as))
	}
}

// A pod that ends while it is judged is not added to the account, and what was reserved for it is released.
func TestPodEndingDuringAdmissionIsReleased(t *testing.T) {
	s := newStage(t)
	waits, end := s.slowDisk("slow")
	done := make(chan Verdict)
	go func() { done <- s.Admit(t.Context(), asking("slow", "3"), false) }()
	<-waits
	s.Ledger.Forget("slow")
	if !end() {
		t.Fatal("a turn waited for the disk")
	}
	<-done
	if n := len(s.Account()); n != 0 || len(s.allocated) != 0 || !slices.Equal(s.released, []types.UID{"slow"}) {
		t.Errorf("%d pods in the account, allocated %v, released %v", n, s.allocated, s.released)
	}
}

// A pod that ends while another one is judged is not preempted, and the other does not wait for its end.
func TestPodEndingDuringAdmissionIsNotPreempted(t *testing.T) {
	s := newStage(t)
	victim := asking("victim", "4")
	s.admit(victim)
	s.victims["critical"] = []*v1.Pod{victim}
	waits, end := s.slowDisk("critical")
	done := make(chan Verdict)
	go func() { done <- s.Admit(t.Context(), asking("critical", "4"), false) }()
	<-waits
	s.Ledger.Vacate("victim")
	if !end() {
		t.Fatal("a turn waited for the disk")
	}
	if v := <-done; v.Rejection != nil || v.Waits || len(v.Victims) != 0 {
		t.Errorf("verdict: %+v", v)
	}
	s.wantEvents()
}

// Run decides what turns have queued, in the order of the requests, and wakes the pods. An admission that comes first
// decides it before it judges.
func TestRunDecidesQueuedResizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		p, q := asking("p", "1"), asking("q", "1")
		s.admit(p, q)
		go func() {
			if err := s.Run(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		for _, up := range []*v1.Pod{resizedTo(p, "3"), resizedTo(q, "2")} {
			if _, decided := s.Ledger.Allocate(up); decided {
				t.Errorf("the turn of %s decided its resize", up.Name)
			}
		}
		synctest.Wait()
		if !slices.Equal(s.awake(), []types.UID{"p", "q"}) || s.pendingOf("p") != "" || s.pendingOf("q") != "Deferred" {
			t.Errorf("woken %v, p %q, q %q", s.awake(), s.pendingOf("p"), s.pendingOf("q"))
		}
	})
	s := newStage(t)
	p := asking("p", "1")
	s.admit(p)
	up := resizedTo(p, "3")
	s.Ledger.Allocate(up)
	if v := s.Admit(t.Context(), asking("late", "2"), false); v.Rejection == nil {
		t.Error("an admission came before a resize that was requested earlier")
	}
	// A request that is withdrawn before it is decided leaves nothing.
	s.Ledger.Allocate(resizedTo(up, "4"))
	if as, decided := s.Ledger.Allocate(up); !decided || milli(as) != 3000 {
		t.Errorf("withdrawn: %d, decided %v", milli(as), decided)
	}
	s.decides()
	if got := s.pendingOf("p"); got != "" || milli(s.allocatedTo(up)) != 3000 {
		t.Errorf("withdrawn: pending %q", got)
	}
}

// A turn that began before a resize was accepted does not complete it.
func TestEarlierTurnDoesNotCompleteResize(t *testing.T) {
	s := newStage(t)
	p := asking("p", "1")
	s.admit(p)
	up := resizedTo(p, "2")
	s.Allocate(up)
	s.events.Take()
	s.Progress(p, false)
	s.wantEvents()
	s.Progress(up, false)
	if len(s.events.Lines()) != 1 || len(s.Conditions("p")) != 0 {
		t.Errorf("events %v, conditions %+v", s.events.Lines(), s.Conditions("p"))
	}
}

// allocatedTo is the pod with what it is allocated.
func (s *stage) allocatedTo(p *v1.Pod) *v1.Pod {
	as, _ := s.Ledger.Allocate(p)
	return as
}
