package status

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

// versioned is an API server with one pod and its resource versions.
type versioned struct {
	mu      sync.Mutex
	pod     *v1.Pod
	patches []time.Duration // when each came
	begin   time.Time
	slow    time.Duration // time from the effect of a PATCH to its response
}

func (s *versioned) PatchPodStatus(_ context.Context, _, _ string, patch []byte) (*v1.Pod, error) {
	s.mu.Lock()
	s.patches = append(s.patches, time.Since(s.begin))
	s.mu.Unlock()
	p, err := s.write(patch)
	time.Sleep(s.slow)
	return p, err
}

func (*versioned) DeletePod(context.Context, string, string, metav1.DeleteOptions) error { return nil }

// write applies a patch of any client.
func (s *versioned) write(patch []byte) (*v1.Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, err := json.Marshal(s.pod)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, v1.Pod{})
	if err != nil {
		return nil, err
	}
	p := &v1.Pod{}
	if err := json.Unmarshal(after, p); err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(s.pod.ResourceVersion)
	if err != nil {
		return nil, err
	}
	p.ResourceVersion = strconv.Itoa(n + 1)
	s.pod = p
	return p, nil
}

// get returns the pod as it is now.
func (s *versioned) get() *v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pod
}

// count returns how many patches there were once nothing is under way.
func (s *versioned) count() int {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.patches)
}

const notReady = `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"NodeNotReady"}]}}`

// reconciling runs a test with a pod whose container runs and whose status has been
// written. see publishes the facts again, with the pod as given.
func reconciling(t *testing.T, f func(t *testing.T, s *versioned, see func(*v1.Pod), another func(string))) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		fact := facts(pod.Container{
			ID:        "1",
			State:     pod.StateRunning,
			StartedAt: time.Now().Add(1234567 * time.Microsecond),
		})
		fact.Pod.UID, fact.Pod.ResourceVersion = "u", "9"
		s := &versioned{pod: fact.Pod, begin: time.Now()}
		w := NewWriter(quietly(s))
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		defer func() {
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		see := func(p *v1.Pod) {
			fact.Pod = p
			w.Publish(fact)
			synctest.Wait()
		}
		another := func(patch string) {
			t.Helper()
			if _, err := s.write([]byte(patch)); err != nil {
				t.Fatal(err)
			}
		}
		see(s.pod)
		if n := s.count(); n != 1 || !isTrue(s.get().Status.Conditions, v1.PodReady) {
			t.Fatalf("wrote %d statuses, want one, Ready", n)
		}
		f(t, s, see, another)
	})
}

func TestOverwrittenStatusIsRepaired(t *testing.T) {
	parity.Differs(t, "LIFE-12", "0120")
	reconciling(t, func(t *testing.T, s *versioned, see func(*v1.Pod), another func(string)) {
		another(notReady)
		see(s.get())
		if n := s.count(); n != 2 || !isTrue(s.get().Status.Conditions, v1.PodReady) {
			t.Errorf("wrote %d statuses, want a second at once; Ready: %v", n, s.get().Status.Conditions)
		}
	})
}

// A status that is overwritten again and again is repaired once in 10 s.
func TestRepairsAreLimited(t *testing.T) {
	reconciling(t, func(t *testing.T, s *versioned, see func(*v1.Pod), another func(string)) {
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			another(notReady)
			see(s.get())
		}
		if n := s.count() - 1; n < 6 || n > 7 {
			t.Errorf("wrote %d corrections in a minute, want one every 10 s", n)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if !isTrue(s.get().Status.Conditions, v1.PodReady) {
			t.Error("what the other wrote last stands 10 s after it")
		}
	})
}

func TestLateWatchEventIsNoOverwrite(t *testing.T) {
	reconciling(t, func(t *testing.T, s *versioned, see func(*v1.Pod), another func(string)) {
		first := s.get()
		another(notReady)
		theirs := s.get()
		see(theirs)
		ours := s.get()
		for _, late := range []*v1.Pod{first, theirs, ours, theirs, ours} {
			see(late)
			time.Sleep(time.Minute)
		}
		if n := s.count(); n != 2 {
			t.Errorf("wrote %d statuses, the later ones for what the watch showed late", n)
		}
	})
}

// The watch may show the effect of a PATCH before its response arrives.
func TestWatchEventBeforePatchResponse(t *testing.T) {
	reconciling(t, func(t *testing.T, s *versioned, see func(*v1.Pod), another func(string)) {
		s.slow = time.Second
		another(notReady)
		see(s.get())
		see(s.get()) // the effect of the PATCH
		time.Sleep(time.Minute)
		if n := s.count(); n != 2 {
			t.Errorf("wrote %d statuses, want one correction", n)
		}
		another(notReady)
		see(s.get())
		another(`{"status":{"message":"?"}}`) // while that is repaired
		see(s.get())
		time.Sleep(time.Minute)
		if n := s.count(); n != 4 || s.get().Status.Message != "" {
			t.Errorf("wrote %d statuses, message %q; want another correction of what came meanwhile", n,
				s.get().Status.Message)
		}
	})
}

func TestForeignFieldsCauseNoWrite(t *testing.T) {
	reconciling(t, func(t *testing.T, s *versioned, see func(*v1.Pod), another func(string)) {
		for _, patch := range []string{
			`{"status":{"conditions":[{"type":"example.com/checked","status":"True"}]}}`,
			`{"status":{"conditions":[{"type":"DisruptionTarget","status":"True","reason":"EvictionByEvictionAPI"}]}}`,
			`{"status":{"conditions":[{"type":"DisruptionTarget","status":"False","reason":"EvictionByEvictionAPI"}]}}`,
			`{"status":{"nominatedNodeName":"other","resourceClaimStatuses":[{"name":"gpu"}]}}`,
			`{"metadata":{"annotations":{"a":"b"}}}`,
		} {
			another(patch)
			see(s.get())
			time.Sleep(time.Minute)
			if n := s.count(); n != 1 {
				t.Fatalf("wrote %d statuses after another client wrote %s", n-1, patch)
			}
		}
		if c := find(s.get().Status.Conditions, v1.DisruptionTarget); c == nil || c.Status != v1.ConditionFalse {
			t.Errorf("DisruptionTarget = %v, want it as the other left it", c)
		}
	})
}

// A later agent finds the status as the earlier one wrote it, and writes nothing.
func TestRestartedAgentWritesNothing(t *testing.T) {
	reconciling(t, func(t *testing.T, s *versioned, see func(*v1.Pod), another func(string)) {
		fact := facts(pod.Container{
			ID:        "1",
			State:     pod.StateRunning,
			StartedAt: s.begin.Add(1234567 * time.Microsecond),
		})
		fact.Pod, fact.Started = s.get(), s.begin
		ctx, stop := context.WithCancel(t.Context())
		w := NewWriter(quietly(s))
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		w.Publish(fact)
		time.Sleep(time.Minute)
		if n := s.count(); n != 1 {
			t.Errorf("the second agent wrote %d statuses", n-1)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A terminal phase that another client wrote is final, with its reason and message, also
// while containers still run.
func TestTerminalPhaseOfOtherClient(t *testing.T) {
	f := simple(v1.RestartPolicyAlways, pod.Container{ID: "1", State: pod.StateRunning})
	before := Project(Node{}, f, v1.PodStatus{}, at)
	f.Pod.Status = v1.PodStatus{Phase: v1.PodSucceeded, Reason: "Enough", Message: "by hand"}
	st := Project(Node{}, f, before, at)
	if st.Phase != v1.PodSucceeded || st.Reason != "Enough" || st.Message != "by hand" {
		t.Errorf("it is %s %s %q, want the other client's status", st.Phase, st.Reason, st.Message)
	}
	f.Mirror, f.Pod.Annotations = f.Pod.DeepCopy(), map[string]string{pod.AnnotationConfigSource: string(
		pod.SourceFile)}
	if st := Project(Node{}, f, before, at); st.Phase != v1.PodRunning || st.Reason != "" {
		t.Errorf("a static pod is %s %s, want Running: its mirror is a picture", st.Phase, st.Reason)
	}
}

// A restarted agent runs a static pod again that had reached a terminal phase. Its mirror pod shows that, whether it is
// seen with the first status or later. A static pod that is still at its end keeps the status of its mirror pod.
func TestStaticPodRunsAgainAfterTerminalPhase(t *testing.T) {
	mirror := v1.PodStatus{
		Phase:     v1.PodFailed,
		Reason:    "DeadlineExceeded",
		StartTime: &metav1.Time{Time: at.Add(-time.Hour)},
	}
	running := pod.Container{ID: "1", Name: "main", State: pod.StateRunning}
	exited := pod.Container{ID: "1", Name: "main", State: pod.StateExited, ExitCode: 1}
	for _, tc := range []struct {
		name  string
		have  pod.Container
		late  bool // the mirror pod is seen after the first status
		phase v1.PodPhase
	}{
		{"it runs", running, false, v1.PodRunning},
		{"it runs, and its mirror pod is seen late", running, true, v1.PodRunning},
		{"it is at its end", exited, false, v1.PodFailed},
		{"it is at its end, and its mirror pod is seen late", exited, true, v1.PodFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := simple(v1.RestartPolicyNever, tc.have)
			f.Down = tc.have.State == pod.StateExited
			f.Pod.Annotations = map[string]string{pod.AnnotationConfigSource: string(pod.SourceFile)}
			w := NewWriter(quietly(nil))
			if tc.late {
				w.Publish(f)
			}
			f.Mirror = f.Pod.DeepCopy()
			f.Mirror.UID, f.Mirror.Status = "mirror", mirror
			w.Publish(f)
			got, _ := w.Get(f.Pod.UID)
			if !got.StartTime.Equal(mirror.StartTime) {
				t.Errorf("it started at %v, and before at %v", got.StartTime, mirror.StartTime)
			}
			if got.Phase != tc.phase || (got.Reason == mirror.Reason) != (tc.phase == v1.PodFailed) {
				t.Errorf("it is %s %s, want %s", got.Phase, got.Reason, tc.phase)
			}
		})
	}
}
