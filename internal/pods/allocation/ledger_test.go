package allocation

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
	"keelson/test/kit/eventlog"
	"keelson/test/kit/parity"
	"keelson/test/kit/scrape"
)

func amounts(pairs ...string) v1.ResourceList {
	out := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// asking is a pod with one container that asks for CPU, from the API server.
func asking(uid types.UID, cpu string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Name: string(uid), Namespace: "ns", Generation: 1},
		Spec: v1.PodSpec{
			Containers: []v1.Container{
				{Name: "main", Resources: v1.ResourceRequirements{Requests: amounts("cpu", cpu)}},
			},
		}}
}

func edited(p *v1.Pod, f func(*v1.Pod)) *v1.Pod {
	p = p.DeepCopy()
	f(p)
	return p
}

// resizedTo is the next version of the pod.
func resizedTo(p *v1.Pod, cpu string) *v1.Pod {
	return edited(p, func(p *v1.Pod) {
		p.Generation++
		p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: amounts("cpu", cpu)}
	})
}

// stage is a ledger on a node with four CPUs.
type stage struct {
	*Ledger
	t      *testing.T
	dir    string
	events eventlog.Log
	wakes  sync.Mutex // guards woken, which the ledger's own goroutine adds to
	woken  []types.UID
	// released are the pods whose reservations were released, taken the pods that were taken over.
	released, taken []types.UID
	vacated         int // how often the reservations of pods that are gone were released
	arrived         []Arrival
	running         map[types.UID]bool
	victims         map[types.UID][]*v1.Pod
	second          Judge
}

// Allocate requests the pod's desired resources, and returns what is allocated to it once that is decided.
func (s *stage) Allocate(p *v1.Pod) *v1.Pod {
	s.t.Helper()
	s.Ledger.Allocate(p)
	s.decides()
	got, decided := s.Ledger.Allocate(p)
	if !decided {
		s.t.Errorf("the resize of %s is not decided", p.Name)
	}
	return got
}

func (s *stage) Vacate(uid types.UID) {
	s.Ledger.Vacate(uid)
	s.decides()
}

// decides is what Run does when there is something to decide.
func (s *stage) decides() {
	s.exclusively(func(judging) {})
}

func (s *stage) wake(uid types.UID) {
	s.wakes.Lock()
	defer s.wakes.Unlock()
	s.woken = append(s.woken, uid)
}

// awake are the pods that were woken.
func (s *stage) awake() []types.UID {
	s.wakes.Lock()
	defer s.wakes.Unlock()
	return slices.Clone(s.woken)
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, dir: t.TempDir(), running: map[types.UID]bool{}, victims: map[types.UID][]*v1.Pod{}}
	s.restart()
	return s
}

// restart builds the ledger of another agent on the same files.
func (s *stage) restart() {
	s.Ledger = New(Config{
		Dir: s.dir, Judge: fits,
		SecondLook: func(context.Context, *pod.Rejection) Judge { return s.second },
		MakeRoom: func(p *v1.Pod, _ []*v1.Pod, _ *pod.Rejection) ([]*v1.Pod, error) {
			return s.victims[p.UID], nil
		},
		Release:  func(uid types.UID) { s.released = append(s.released, uid) },
		Vacate:   func() { s.vacated++ },
		TakeOver: func(p *v1.Pod) { s.taken = append(s.taken, p.UID) },
		Arrivals: func(skip func(types.UID) bool) (out []Arrival) {
			for _, a := range s.arrived {
				if !skip(a.Pod.UID) {
					out = append(out, a)
				}
			}
			return out
		},
		RunningWithoutSource: func(uid types.UID) bool { return s.running[uid] },
		Rules:                Rules{InPlace: true, InitContainers: true, PodLevel: true},
		Events:               &s.events, OnChange: s.wake,
		Log: slog.New(slog.DiscardHandler), Now: time.Now,
	})
}

// The reservations of pods that are gone are released before a new pod is judged, and after running pods were counted.
func TestVacateBeforeAdmission(t *testing.T) {
	s := newStage(t)
	s.arrived = []Arrival{{Pod: asking("runs", "1"), Running: true}}
	s.cfg.Vacate = func() {
		s.vacated++
		if !slices.Equal(s.taken, []types.UID{"runs"}) {
			t.Errorf("taken over by then: %v", s.taken)
		}
	}
	s.cfg.Judge = func(p *v1.Pod, others []*v1.Pod, _ bool) *pod.Rejection {
		if s.vacated == 0 {
			t.Errorf("%s was judged before", p.Name)
		}
		return fits(p, others, false)
	}
	s.admit(asking("a", "1"))
	s.admit(asking("b", "1"))
	if s.vacated != 2 {
		t.Errorf("%d times", s.vacated)
	}
}

// fits judges by CPU alone, of which there are four.
func fits(p *v1.Pod, others []*v1.Pod, _ bool) *pod.Rejection {
	used := int64(0)
	for _, o := range others {
		used += milli(o)
	}
	if milli(p)+used > 4000 {
		return &pod.Rejection{Reason: "OutOfcpu", Message: fmt.Sprintf("requested %d, used %d", milli(p), used)}
	}
	return nil
}

func milli(p *v1.Pod) int64 {
	req := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	return req.Cpu().MilliValue()
}

func (s *stage) admit(pods ...*v1.Pod) {
	s.t.Helper()
	for _, p := range pods {
		if v := s.Admit(s.t.Context(), p, false); v.Rejection != nil || v.Waits {
			s.t.Fatalf("%s: %+v", p.Name, v)
		}
	}
}

func (s *stage) pendingOf(uid types.UID) string {
	for _, c := range s.Conditions(uid) {
		if c.Type == v1.PodResizePending {
			return c.Reason
		}
	}
	return ""
}

func (s *stage) wantEvents(want ...string) {
	s.t.Helper()
	if got := s.events.Take(); !slices.Equal(got, want) {
		s.t.Errorf("events:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func (s *stage) writes() { // what Run does when there is something to write
	if !s.write() {
		s.t.Fatal("the state could not be written")
	}
}

func TestRunningPodsAreCountedBeforeAdmission(t *testing.T) {
	s := newStage(t)
	old := asking("old", "3")
	s.arrived = []Arrival{{Pod: old, Running: true}}
	if v := s.Admit(t.Context(), asking("new", "2"), false); v.Rejection == nil ||
		v.Rejection.Message != "requested 2000, used 3000" {
		t.Errorf("beside a pod that runs and has not had its turn yet: %+v", v.Rejection)
	}
	s.admit(asking("small", "1"))
}

func TestRejectedPodReleasesReservation(t *testing.T) {
	s := newStage(t)
	old, victim := asking("old", "2"), asking("victim", "2")
	s.arrived = []Arrival{{Pod: old, Running: true}}
	s.admit(victim)
	if !slices.Equal(s.taken, []types.UID{"old"}) {
		t.Errorf("taken over for %v, want for the one that runs", s.taken)
	}
	if v := s.Admit(t.Context(), asking("new", "1"), false); v.Rejection == nil ||
		!slices.Equal(s.released, []types.UID{"new"}) {
		t.Errorf("%+v: given back of %v", v.Rejection, s.released)
	}
	// A pod for which others have to end keeps its reservation.
	s.victims["critical"] = []*v1.Pod{victim}
	if v := s.Admit(t.Context(), asking("critical", "2"), false); !v.Waits || len(s.released) != 1 {
		t.Errorf("%+v: given back of %v", v, s.released)
	}
}

func TestPodWithoutSourceCountsWithItsAllocation(t *testing.T) {
	s := newStage(t)
	s.admit(asking("gone", "3"), asking("old", "1"))
	s.writes()
	s.restart()
	s.running["old"] = true
	if v := s.Admit(t.Context(), asking("new", "4"), false); v.Rejection == nil ||
		v.Rejection.Message != "requested 4000, used 1000" {
		t.Errorf("while the API server is away: %+v", v.Rejection)
	}
	// A pod of which only the size is known is no preemption victim: it may be critical.
	if list := s.Account(); len(list) != 0 {
		t.Errorf("in the account: %v", list)
	}
	// Its source delivers it: it is counted once.
	s.arrived = []Arrival{{Pod: asking("old", "1"), Running: true}}
	s.Admit(t.Context(), asking("old", "1"), true)
	if list := s.Account(); len(list) != 1 || list[0].Name != "old" {
		t.Errorf("in the account: %v", list)
	}
	s.admit(asking("other", "3"))
}

func TestOlderPodsAreAdmittedFirst(t *testing.T) {
	s := newStage(t)
	born := func(uid types.UID, cpu string, minute int) *v1.Pod {
		return edited(asking(uid, cpu), func(p *v1.Pod) {
			p.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC))
		})
	}
	first, second, third := born("first", "2", 1), born("second", "2", 2), born("third", "2", 3)
	s.arrived = []Arrival{{Pod: third}, {Pod: first}, {Pod: second}}
	if v := s.Admit(t.Context(), third, false); v.Rejection == nil {
		t.Error("the youngest came first because its worker did")
	}
	s.admit(second, first)
	// Allocated resources count, not desired ones: a pending resize releases nothing.
	if got := s.Allocate(resizedTo(first, "3")); milli(got) != 2000 {
		t.Errorf("first has %d", milli(got))
	}
	if v := s.Admit(t.Context(), born("fourth", "100m", 4), false); v.Rejection == nil ||
		v.Rejection.Message != "requested 100, used 4000" {
		t.Errorf("fourth: %+v", v.Rejection)
	}
}

func TestSecondJudgeAndRejectionMetric(t *testing.T) {
	s := newStage(t)
	s.second = func(*v1.Pod, []*v1.Pod, bool) *pod.Rejection { return nil }
	s.admit(asking("lucky", "5"))
	s.second = func(*v1.Pod, []*v1.Pod, bool) *pod.Rejection {
		return &pod.Rejection{Reason: "OutOfexample.com/gpu", Message: ""}
	}
	s.Admit(t.Context(), asking("late", "5"), false)
	s.second = func(*v1.Pod, []*v1.Pod, bool) *pod.Rejection {
		return &pod.Rejection{Reason: "SomethingElse", Message: ""}
	}
	s.Admit(t.Context(), asking("odd", "5"), false)
	s.second = nil
	s.Admit(t.Context(), asking("big", "5"), false)
	got := scrape.Of(t, s)
	for label, want := range map[string]float64{"OutOfExtendedResources": 1, "Other": 1, "OutOfcpu": 1} {
		if n := got["kubelet_admission_rejections_total{reason="+label+"}"]; n != want {
			t.Errorf("%s: %v, want %v", label, n, want)
		}
	}
}

func TestRejectionReasonLabels(t *testing.T) {
	parity.Proves(t, "SRC-51")
	want := map[string]string{
		"OutOfexample.com/gpu": "OutOfExtendedResources",
		"OutOfhugepages-2Mi":   "OutOfExtendedResources",
		"FromAPlugin":          "Other",
		"":                     "Other",
		// Upstream's set does not have these.
		"NodeAffinity":            "Other",
		"NodeName":                "Other",
		"NodePorts":               "Other",
		"TaintToleration":         "Other",
		"SMTAlignmentError":       "Other",
		"EmptyPodSharedPoolError": "Other",
	}
	for _, known := range []string{
		"AppArmor", "PodOSSelectorNodeLabelDoesNotMatch", "PodOSNotSupported", "InvalidNodeInfo",
		"InitContainerRestartPolicyForbidden", "SupplementalGroupsPolicyNotSupported", "UnexpectedAdmissionError",
		"UnknownReason", "UnexpectedPredicateFailureType", "OutOfcpu", "OutOfmemory", "OutOfephemeral-storage",
		"OutOfpods",
		"PodLevelResourcesNotSupported", "PodFeatureUnsupported", "Evicted", "SysctlForbidden", "TopologyAffinityError",
		"NodeShutdown", "VolumeAttachmentLimitExceeded",
	} {
		want[known] = known
	}
	for reason, want := range want {
		if got := countedAs(reason); got != want {
			t.Errorf("%q counts as %q, want %q", reason, got, want)
		}
	}
}

// TestEndedPodIsNotInAccount has a pod that has ended while the runtime still holds its containers and its source
// does not show that it has ended. Another pod is admitted then.
func TestEndedPodIsNotInAccount(t *testing.T) {
	s := newStage(t)
	ended := asking("ended", "3")
	s.admit(ended)
	s.Vacate("ended")
	s.arrived = []Arrival{{Pod: ended, Running: true}}
	if v := s.Admit(t.Context(), asking("next", "3"), false); v.Rejection != nil {
		t.Errorf("the next pod is rejected: %+v", v.Rejection)
	}
	if len(s.taken) != 0 {
		t.Errorf("resources are allocated again to %v", s.taken)
	}
	if as := s.Allocate(resizedTo(ended, "1")); as.Spec.Containers[0].Resources.Requests.Cpu().String() != "3" {
		t.Errorf("the ended pod was resized to %v", as.Spec.Containers[0].Resources.Requests)
	}
	s.wantEvents()

	s.Forget("ended") // the pod is gone; one with its UID is another pod
	if v := s.Admit(t.Context(), ended, true); v.Rejection != nil || !slices.Contains(s.taken, "ended") {
		t.Errorf("a new pod with its UID: %+v, taken over: %v", v, s.taken)
	}
}

func TestCriticalPodWaitsForPreemptedPods(t *testing.T) {
	parity.ProvesPart(t, 3, "EVIC-24")
	s := newStage(t)
	a, b := asking("a", "2"), asking("b", "2")
	s.admit(a, b)
	s.victims["critical"] = []*v1.Pod{a, b}
	v := s.Admit(t.Context(), asking("critical", "4"), false)
	if !v.Waits || v.Rejection != nil {
		t.Fatalf("%+v", v)
	}
	if len(v.Victims) != 2 || v.Victims[0].UID != "a" || v.Victims[1].UID != "b" ||
		v.Victims[0].Reason != ReasonPreempting {
		t.Errorf("to be preempted: %+v", v.Victims)
	}
	s.wantEvents("a Warning Preempting Preempted in order to admit critical pod",
		"b Warning Preempting Preempted in order to admit critical pod")
	if n := scrape.Of(t, s)["kubelet_preemptions{preemption_signal=cpu}"]; n != 2 {
		t.Errorf("%v preemptions", n)
	}
	s.Vacate("a")
	if v := s.Admit(t.Context(), asking("critical", "4"), false); !v.Waits || len(s.awake()) > 0 {
		t.Errorf("with one left: %+v, woken %v", v, s.awake())
	}
	if v := s.Admit(t.Context(), asking("thief", "2"), false); v.Rejection == nil {
		t.Error("another pod took the room that was made")
	}
	s.Vacate("b")
	if !slices.Contains(s.awake(), "critical") {
		t.Errorf("woken %v", s.awake())
	}
	s.admit(asking("critical", "4"))
}

// The events list the containers' resources, not the pod-level ones, and always a generation, which is 0 if the pod
// has none.
func TestResizeEventContent(t *testing.T) {
	p := asking("p", "1")
	p.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}}
	p.Spec.InitContainers = []v1.Container{{Name: "first"}}
	want := `{"initContainers":[{"name":"first","resources":{}}],` +
		`"containers":[{"name":"main","resources":{"requests":{"cpu":"1"}}}],"generation":0}`
	if got := summarize(p, 0, ""); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestResizeIsGrantedDeferredOrInfeasible(t *testing.T) {
	parity.Proves(t, "SRV-62")
	s := newStage(t)
	p, other := asking("p", "1"), asking("other", "2")
	s.admit(p, other)

	up := resizedTo(p, "2")
	if got := s.Allocate(up); milli(got) != 2000 {
		t.Errorf("granted %d", milli(got))
	}
	s.wantEvents(
		`p Normal ResizeStarted Pod resize started: {"containers":[{"name":"main","resources":{"requests":{"cpu":"2"}}}],"generation":2}`)
	if c := s.Conditions("p"); len(c) != 1 || c[0].Type != v1.PodResizeInProgress || c[0].ObservedGeneration != 2 ||
		c[0].Reason != "" {
		t.Errorf("in progress: %+v", c)
	}
	s.Tried(up, time.Second, fmt.Errorf("no way"))
	s.Tried(up, time.Second, fmt.Errorf("no way"))
	s.wantEvents(
		`p Warning ResizeError Pod resize error: {"containers":[{"name":"main","resources":{"requests":{"cpu":"2"}}}],"generation":2,"error":"no way"}`)
	if c := s.Conditions("p"); len(c) != 1 || c[0].Reason != "Error" || c[0].Message != "no way" ||
		c[0].ObservedGeneration != 2 {
		t.Errorf("failed: %+v", c)
	}
	s.Tried(up, time.Second, nil)
	s.Progress(up, true)
	s.wantEvents()
	s.Progress(up, false)
	s.Progress(up, false)
	s.wantEvents(
		`p Normal ResizeCompleted Pod resize completed: {"containers":[{"name":"main","resources":{"requests":{"cpu":"2"}}}],"generation":2}`)
	if c := s.Conditions("p"); len(c) != 0 {
		t.Errorf("done: %+v", c)
	}

	more := resizedTo(up, "3")
	for range 3 {
		if got := s.Allocate(more); milli(got) != 2000 || got.Generation != 3 {
			t.Errorf("deferred: has %d of generation %d", milli(got), got.Generation)
		}
	}
	s.wantEvents(
		`p Warning ResizeDeferred Pod resize Deferred: {"containers":[{"name":"main","resources":{"requests":{"cpu":"3"}}}],"generation":3,"error":"requested 3000, used 2000"}`)
	if c := s.Conditions("p"); len(c) != 1 || c[0].Type != v1.PodResizePending || c[0].Reason != "Deferred" ||
		c[0].Message != "requested 3000, used 2000" || c[0].ObservedGeneration != 3 {
		t.Errorf("deferred: %+v", c)
	}
	// The message of the condition is updated; no event is recorded.
	s.Allocate(resizedTo(other, "1500m"))
	s.events.Take()
	if c := s.Conditions("p"); c[0].Message != "requested 3000, used 1500" {
		t.Errorf("deferred later: %+v", c)
	}
	s.wantEvents()

	// More than the node has is deferred like the rest.
	large := resizedTo(more, "5")
	s.Allocate(large)
	s.wantEvents(
		`p Warning ResizeDeferred Pod resize Deferred: {"containers":[{"name":"main","resources":{"requests":{"cpu":"5"}}}],"generation":4,"error":"requested 5000, used 1500"}`)
	if c := s.Conditions("p"); len(c) != 1 || c[0].Reason != "Deferred" ||
		c[0].Message != "requested 5000, used 1500" || c[0].ObservedGeneration != 4 {
		t.Errorf("more than the node has: %+v", c)
	}

	s.cfg.Rules.MaySwap = func(*v1.Pod, *v1.Container) bool { return true }
	never := edited(large, func(p *v1.Pod) {
		p.Generation++
		p.Spec.Containers[0].Resources.Requests["memory"] = resource.MustParse("1Gi")
	})
	s.Allocate(never)
	s.wantEvents(
		`p Warning ResizeInfeasible Pod resize Infeasible: {"containers":[{"name":"main","resources":{"requests":{"cpu":"5","memory":"1Gi"}}}],"generation":5,"error":"In-place resize of containers with swap is not supported."}`)
	if c := s.Conditions("p"); len(c) != 1 || c[0].Reason != "Infeasible" || c[0].ObservedGeneration != 5 {
		t.Errorf("infeasible: %+v", c)
	}
	s.Vacate("other")
	if s.pendingOf("p") != "Infeasible" {
		t.Error("an infeasible resize was asked again")
	}
	// A withdrawn resize is shown by the removal of its condition.
	s.Allocate(edited(never, func(p *v1.Pod) { p.Generation++; p.Spec = up.Spec }))
	s.wantEvents()
	if c := s.Conditions("p"); len(c) != 0 {
		t.Errorf("taken back: %+v", c)
	}
}

func TestDeferredResizesAreRetriedInOrder(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-126")
	parity.ProvesPart(t, 2, "LIFE-129")
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		// Each has half a CPU and requests one and a half: one of them fits when the big pod has ended.
		ranked := []*v1.Pod{asking("late", "500m"), asking("early", "500m"), asking("burstable", "500m"),
			asking("urgent", "500m")}
		ranked[3].Spec.Priority = new(int32)
		*ranked[3].Spec.Priority = 7
		for _, p := range ranked[:2] { // Guaranteed
			p.Spec.Containers[0].Resources.Requests = amounts("cpu", "500m", "memory", "1Mi")
			p.Spec.Containers[0].Resources.Limits = amounts("cpu", "500m", "memory", "1Mi")
		}
		big := asking("big", "2")
		s.admit(append(ranked, big)...)
		want := func(p *v1.Pod) *v1.Pod {
			return edited(p, func(p *v1.Pod) {
				p.Generation++
				r := &p.Spec.Containers[0].Resources
				r.Requests["cpu"] = resource.MustParse("1500m")
				if r.Limits != nil {
					r.Limits["cpu"] = resource.MustParse("1500m")
				}
			})
		}
		for _, i := range []int{1, 0, 2, 3} { // early first
			s.Allocate(want(ranked[i]))
			time.Sleep(time.Second)
		}
		for _, p := range ranked {
			if s.pendingOf(p.UID) != "Deferred" {
				t.Fatalf("%s: %s", p.Name, s.pendingOf(p.UID))
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		synctest.Wait()

		granted := func() (got []types.UID) {
			for _, p := range ranked {
				if s.pendingOf(p.UID) == "" {
					got = append(got, p.UID)
				}
			}
			return got
		}
		// A resize that releases resources is decided before all others, and the most urgent pod gets them.
		s.Allocate(resizedTo(big, "1"))
		if got := granted(); !slices.Equal(got, []types.UID{"urgent"}) {
			t.Errorf("after the big one shrank: %v", got)
		}
		s.Vacate("big")
		if got := granted(); !slices.Equal(got, []types.UID{"early", "urgent"}) {
			t.Errorf("after the big one went: %v", got)
		}
		s.Vacate("urgent")
		if got := granted(); !slices.Equal(got, []types.UID{"late", "early"}) &&
			!slices.Equal(got, []types.UID{"late", "early", "urgent"}) {
			t.Errorf("after the urgent one went: %v", got)
		}
		if s.pendingOf("burstable") != "Deferred" {
			t.Error("the burstable pod was granted before the guaranteed")
		}
		// No event reports the free resources; the periodic retry finds them.
		s.mu.Lock()
		delete(s.account, "early")
		s.mu.Unlock()
		s.wakes.Lock()
		s.woken = nil
		s.wakes.Unlock()
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if s.pendingOf("burstable") != "" || !slices.Contains(s.awake(), "burstable") {
			t.Errorf("after half a minute: %q, woken %v", s.pendingOf("burstable"), s.awake())
		}
		got := scrape.Of(t, s)
		for trigger, want := range map[string]float64{"pod_resized": 1, "pods_removed": 2, "periodic_retry": 1} {
			if n := got["kubelet_pod_deferred_accepted_resizes_total{retry_trigger="+trigger+"}"]; n != want {
				t.Errorf("%s: %v, want %v", trigger, n, want)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestDeferredResizeRetryInterval(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-126")
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		a, b := asking("a", "2"), asking("b", "2")
		s.admit(a, b)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait() // it writes as it ends
		defer cancel()
		running.Go(func() {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		var mu sync.Mutex
		asked, begun := []time.Duration{}, time.Now()
		s.cfg.Judge = func(*v1.Pod, []*v1.Pod, bool) *pod.Rejection {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, time.Since(begun))
			return &pod.Rejection{Reason: "OutOfcpu", Message: ""}
		}
		s.Allocate(resizedTo(a, "3"))
		time.Sleep(7 * time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		want := []time.Duration{0, 30 * time.Second, 210 * time.Second, 390 * time.Second}
		if !slices.Equal(asked, want) {
			t.Errorf("asked at %v, want %v", asked, want)
		}
	})
}

func TestResizeMetrics(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-129")
	s := newStage(t)
	p, q := asking("p", "1"), asking("q", "3")
	s.admit(p, q)
	up := edited(p, func(p *v1.Pod) {
		p.Generation++
		p.Spec.Containers[0].Resources = v1.ResourceRequirements{
			Requests: amounts("cpu", "500m", "memory", "1Gi"),
			Limits:   amounts("cpu", "2"),
		}
	})
	s.Allocate(up)
	s.Allocate(up)
	s.Allocate(resizedTo(q, "3500m"))
	s.Tried(up, 25*time.Millisecond, nil)
	s.Tried(up, time.Millisecond, fmt.Errorf("no"))
	got := scrape.Of(t, s)
	for name, want := range map[string]float64{
		"kubelet_container_requested_resizes_total{operation=decrease,requirement=requests,resource=cpu}": 1,
		"kubelet_container_requested_resizes_total{operation=increase,requirement=requests,resource=cpu}": 1,
		"kubelet_container_requested_resizes_total{operation=add,requirement=requests,resource=memory}":   1,
		"kubelet_container_requested_resizes_total{operation=add,requirement=limits,resource=cpu}":        1,
		"kubelet_pod_in_progress_resizes":                         2,
		"kubelet_pod_pending_resizes{reason=deferred}":            0,
		"kubelet_pod_pending_resizes{reason=infeasible}":          0,
		"kubelet_pod_resize_duration_milliseconds{success=true}":  1,
		"kubelet_pod_resize_duration_milliseconds{success=false}": 1,
	} {
		if n, ok := got[name]; !ok || n != want {
			t.Errorf("%s = %v, %v, want %v", name, n, ok, want)
		}
	}
	s.cfg.Rules.MaySwap = func(_ *v1.Pod, c *v1.Container) bool { return c.Resources.Requests.Memory().String() == "7Gi" }
	s.Allocate(edited(resizedTo(resizedTo(q, "3500m"), "1"), func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests["memory"] = resource.MustParse("7Gi")
	}))
	s.Allocate(edited(up, func(p *v1.Pod) {
		p.Generation++
		p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("3")
	}))
	got = scrape.Of(t, s)
	for name, want := range map[string]float64{
		"kubelet_pod_pending_resizes{reason=deferred}":                        1,
		"kubelet_pod_pending_resizes{reason=infeasible}":                      1,
		"kubelet_pod_infeasible_resizes_total{reason_detail=swap_limitation}": 1,
	} {
		if n, ok := got[name]; !ok || n != want {
			t.Errorf("%s = %v, %v, want %v", name, n, ok, want)
		}
	}
}

func TestStateSurvivesARestart(t *testing.T) {
	s := newStage(t)
	p := asking("p", "1")
	s.admit(p)
	s.SetActuated(p, "main", p.Spec.Containers[0].Resources)
	up := resizedTo(p, "2")
	s.Allocate(up)
	s.writes()
	s.restart()
	s.Admit(t.Context(), up, true)
	if got := s.Allocate(up); milli(got) != 2000 {
		t.Errorf("granted %d after a restart", milli(got))
	}
	have := pod.Runtime{Containers: []pod.Container{{ID: "c1", Name: "main", State: pod.StateRunning}}}
	g := s.Gap(up, have)
	if len(g.Update) != 1 || g.Update[0].Now != 1000 || g.Update[0].Next != 2000 {
		t.Errorf("what was under way: %+v", g)
	}
	if got := milli(s.Actuated(up)); got != 1000 {
		t.Errorf("in force %d", got)
	}
	s.Forget("p")
	s.writes()
	s.restart()
	if len(s.allocated)+len(s.actuated) != 0 {
		t.Errorf("left of a pod that is gone: %v %v", s.allocated, s.actuated)
	}
}

// The first pod that is synced after a restart may be one with a deferred resize: what the others use is not free,
// whether or not a source has delivered them.
func TestDeferredResizeAfterRestart(t *testing.T) {
	for _, delivered := range []bool{true, false} {
		t.Run(fmt.Sprintf("delivered=%v", delivered), func(t *testing.T) {
			s := newStage(t)
			other, p := asking("other", "3"), asking("p", "1")
			s.admit(other, p)
			up := resizedTo(p, "2")
			if got := milli(s.Allocate(up)); got != 1000 || s.pendingOf("p") != v1.PodReasonDeferred {
				t.Fatalf("granted %d, pending %q", got, s.pendingOf("p"))
			}
			s.writes()
			s.restart()
			if delivered {
				s.arrived = []Arrival{{Pod: other, Running: true}, {Pod: up, Running: true}}
			} else {
				s.running = map[types.UID]bool{"other": true}
			}
			s.Admit(t.Context(), up, true)
			if got := milli(s.Allocate(up)); got != 1000 || s.pendingOf("p") != v1.PodReasonDeferred {
				t.Errorf("after a restart: granted %d, pending %q", got, s.pendingOf("p"))
			}
			s.Admit(t.Context(), other, true)
			s.Vacate("other")
			if got := milli(s.Allocate(up)); got != 2000 {
				t.Errorf("once the other has ended: granted %d", got)
			}
		})
	}
}

// An agent that dies right after it has started a container with new resources has recorded them: the next agent does
// not restart the container for them.
func TestResourcesOfStartAreKnownAfterCrash(t *testing.T) {
	s := newStage(t)
	p := asking("p", "1")
	s.admit(p)
	s.SetActuated(p, "main", p.Spec.Containers[0].Resources)
	s.writes()
	up := resizedTo(p, "2")
	s.Allocate(up)
	s.Starting(up, "main", up.Spec.Containers[0].Resources)
	s.restart()
	s.Admit(t.Context(), up, true)
	have := pod.Runtime{Containers: []pod.Container{{ID: "c2", Name: "main", State: pod.StateRunning}}}
	if g := s.Gap(s.Allocate(up), have); g.Open() {
		t.Errorf("still to do: %+v", g)
	}
}

func TestPodWithoutStateIsReadFromStatus(t *testing.T) {
	s := newStage(t)
	p := resizedTo(asking("p", "1"), "2") // the desired resources were not allocated when the state was lost
	p.Status.ContainerStatuses = []v1.ContainerStatus{
		{Name: "main", Resources: &v1.ResourceRequirements{Requests: amounts("cpu", "1")}},
	}
	s.admit(asking("other", "3"))
	s.Admit(t.Context(), p, true)
	if got := milli(s.Allocate(p)); got != 1000 || s.pendingOf("p") != "Deferred" {
		t.Errorf("granted %d, pending %q", got, s.pendingOf("p"))
	}
	have := pod.Runtime{Containers: []pod.Container{{ID: "c1", Name: "main", State: pod.StateRunning}}}
	if g := s.Gap(s.Allocate(p), have); g.Open() {
		t.Errorf("a running container is touched: %+v", g)
	}
}

func TestStateFilesAreUpstreams(t *testing.T) {
	s := newStage(t)
	p := edited(asking("uid-1", "500m"), func(p *v1.Pod) {
		p.Spec.Containers[0].Resources = v1.ResourceRequirements{
			Requests: amounts("cpu", "500m", "memory", "64Mi"),
			Limits:   amounts("cpu", "500m", "memory", "64Mi"),
		}
		p.Spec.InitContainers = []v1.Container{{Name: "init"}}
	})
	s.admit(p)
	s.writes()
	b, err := os.ReadFile(filepath.Join(s.dir, "allocated_pods_state"))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"data":"{\"entries\":{\"uid-1\":{\"ContainerResources\":{\"init\":{},\"main\":{\"limits\":{\"cpu\":\"500m\",\"memory\":\"64Mi\"},\"requests\":{\"cpu\":\"500m\",\"memory\":\"64Mi\"}}},\"PodLevelResources\":null}}}","checksum":`
	if !strings.HasPrefix(string(b), want) {
		t.Errorf("file = %s\nwant   %s…", b, want)
	}
}

func TestInvalidStateFileIsRenamedAndReportedOnce(t *testing.T) {
	good := func() []byte {
		s := newStage(t)
		s.admit(asking("p", "1"))
		s.writes()
		b, err := os.ReadFile(filepath.Join(s.dir, "allocated_pods_state"))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}()
	flipped := slices.Clone(good)
	flipped[40] ^= 1
	for name, content := range map[string][]byte{
		"empty": {}, "cut": good[:len(good)/2], "flipped": flipped,
		"of something else": []byte(`{"policyName":"none","checksum":1}`),
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			path := filepath.Join(s.dir, "allocated_pods_state")
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			s.restart()
			if got := s.events.Take(); len(got) != 1 ||
				!strings.HasPrefix(got[0], "node Warning StateFileUnusable use "+path+": ") {
				t.Errorf("events %q, want one about the file", got)
			}
			if kept, err := os.ReadFile(path + ".bad"); err != nil || string(kept) != string(content) {
				t.Errorf("kept %q, %v", kept, err)
			}
			if g := s.Admit(t.Context(), asking("p", "1"), true); g.Rejection != nil {
				t.Errorf("a running pod is refused: %+v", g)
			}
			s.writes()
			s.restart()
			s.wantEvents()
		})
	}
}

func FuzzStateFiles(f *testing.F) {
	good, err := encode(
		map[types.UID]Resources{"u": {Containers: map[string]v1.ResourceRequirements{"c": {Requests: amounts("cpu",
			"1")}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"data":"{}","checksum":0}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		pods, err := decode(content)
		if err != nil {
			return
		}
		again, err := encode(pods)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decode(again); err != nil {
			t.Errorf("cannot read what was written: %v", err)
		}
	})
}

// A pod that waits for a device plugin is in the account, and nothing is allocated to it until it is judged again.
func TestPodWaitingForDevicePluginsIsJudgedAgain(t *testing.T) {
	s := newStage(t)
	late := pod.Late{Resources: []string{"example.com/gpu"}}
	missing := true
	var admitted []bool
	s.cfg.Judge = func(p *v1.Pod, others []*v1.Pod, before bool) *pod.Rejection {
		if p.Name != "waits" {
			return fits(p, others, before)
		}
		admitted = append(admitted, before)
		if no := fits(p, others, before); no != nil || !missing {
			return no
		}
		return &pod.Rejection{Message: "waiting", Late: late}
	}
	waits := asking("waits", "3")
	for range 2 {
		if v := s.Admit(t.Context(), waits, false); v.Rejection != nil || !v.Waits ||
			!slices.Equal(v.Late.Resources, late.Resources) {
			t.Fatalf("while the plugin is missing: %+v", v)
		}
	}
	if v := s.Admit(t.Context(), asking("other", "2"), false); v.Rejection == nil {
		t.Error("another pod takes its place")
	}
	if len(s.allocated) != 0 || len(s.released) != 1 || s.released[0] != "other" {
		t.Errorf("granted %v, released %v", s.allocated, s.released)
	}
	// One that is deleted is removed from the account.
	s.Forget("waits")
	s.admit(asking("second", "2"))
	s.Vacate("second")
	s.Admit(t.Context(), waits, false)
	missing = false
	s.admit(waits)
	s.admit(waits) // it is not judged once more
	if n := len(admitted); n != 4 || slices.Contains(admitted, true) || len(s.allocated) != 2 {
		t.Errorf("judged as admitted before: %v; granted %v", admitted, s.allocated)
	}

	// A restarted agent finds in its files that the pod was admitted, or else in the pod's status.
	s.write()
	s.restart()
	known := map[types.UID]bool{}
	s.cfg.Judge = func(p *v1.Pod, _ []*v1.Pod, before bool) *pod.Rejection { known[p.UID] = before; return nil }
	ran := asking("ran", "1")
	ran.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", ContainerID: "containerd://1"}}
	s.admit(waits, ran, asking("new", "1"))
	if !known["waits"] || !known["ran"] || known["new"] {
		t.Errorf("admitted before: %v", known)
	}
}

// Pod-level resources are restored from the pod's status, and are not computed as the sum over its containers.
func TestPodLevelResourcesAreReadFromStatus(t *testing.T) {
	p := asking("p", "1")
	p.Spec.Resources = ptr.To(with(amounts("cpu", "2"), amounts("cpu", "4")))
	p.Status.Resources = ptr.To(with(amounts("cpu", "2", "memory", "1Gi"), amounts("cpu", "3", "memory", "1Gi")))
	if got := stored(p); !samePod(got.Pod, ptr.To(with(amounts("cpu", "2"), amounts("cpu", "3")))) {
		t.Errorf("got %+v", got.Pod)
	}
}
