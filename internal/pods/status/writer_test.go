package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
)

// server stores what it receives, as the API server does.
type server struct {
	mu    sync.Mutex
	begin time.Time
	wrote []write
	gone  []string
	how   []metav1.DeleteOptions // of each deletion
	fail  error                  // the next write
}

type write struct {
	after  time.Duration
	status v1.PodStatus
}

func (s *server) PatchPodStatus(_ context.Context, namespace, name string, patch []byte) (*v1.Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fail; err != nil {
		s.fail = nil
		return nil, err
	}
	p := &v1.Pod{}
	if err := json.Unmarshal(patch, p); err != nil {
		return nil, err
	}
	s.wrote = append(s.wrote, write{time.Since(s.begin), p.Status})
	return p, nil
}

func (s *server) DeletePod(_ context.Context, namespace, name string, opts metav1.DeleteOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone, s.how = append(s.gone, name), append(s.how, opts)
	return nil
}

// writes returns the writes once the Writer is idle.
func (s *server) writes() []write {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.wrote)
}

// deleted returns the pods that were deleted by then.
func (s *server) deleted() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.gone)
}

// deletions returns the options of their deletions.
func (s *server) deletions() []metav1.DeleteOptions {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.how)
}

// failOnce makes the next write fail.
func (s *server) failOnce(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

// quietly returns the configuration of a Writer that logs nothing.
func quietly(api API) Config {
	return Config{API: api, Parallel: 4, Log: slog.New(slog.DiscardHandler), Now: time.Now}
}

// writing runs a test in virtual time with a running Writer.
func writing(t *testing.T, f func(t *testing.T, s *server, w *Writer)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		s := &server{begin: time.Now()}
		w := NewWriter(quietly(s))
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		defer func() {
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		f(t, s, w)
	})
}

// facts of a pod of one container, which is in the given state, if any.
func facts(cs ...pod.Container) Facts {
	f := simple(v1.RestartPolicyAlways, cs...)
	f.Pod.Name, f.Pod.Namespace, f.Started = "p", "default", time.Now()
	return f
}

var (
	created = pod.Container{ID: "1", State: pod.StateCreated}
	running = pod.Container{ID: "1", State: pod.StateRunning}
	crashed = pod.Container{ID: "1", State: pod.StateExited, ExitCode: 3, Reason: "Error"}
)

func TestQuickStartIsOneWrite(t *testing.T) {
	writing(t, func(t *testing.T, s *server, w *Writer) {
		w.Publish(facts())
		time.Sleep(hold / 2)
		w.Publish(facts(created))
		w.Publish(facts(running))
		synctest.Wait()
		if len(s.writes()) != 1 || s.writes()[0].after != hold/2 ||
			!isTrue(s.writes()[0].status.Conditions, v1.PodReady) {
			t.Errorf("wrote %v, want one status, Ready, at once when it was", s.writes())
		}
		time.Sleep(time.Minute)
		if len(s.writes()) != 1 {
			t.Errorf("wrote %d statuses, the later ones with nothing new", len(s.writes()))
		}
	})
}

func TestSlowStartIsWritten(t *testing.T) {
	writing(t, func(t *testing.T, s *server, w *Writer) {
		w.Publish(facts())
		time.Sleep(hold / 2)
		w.Publish(facts(created)) // does not make the wait longer
		time.Sleep(time.Minute)
		if len(s.writes()) != 1 || s.writes()[0].after != hold || s.writes()[0].status.Phase != v1.PodPending {
			t.Errorf("wrote %v, want a pending status after %v", s.writes(), hold)
		}
		w.Publish(facts(running))
		synctest.Wait()
		if len(s.writes()) != 2 || s.writes()[1].after != hold/2+time.Minute {
			t.Errorf("wrote %v, want Ready at once", s.writes())
		}
	})
}

func TestSlowStartsDoNotDelayOthers(t *testing.T) {
	writing(t, func(t *testing.T, s *server, w *Writer) {
		publish := func(name string, cs ...pod.Container) {
			f := facts(cs...)
			f.Pod.Name, f.Pod.UID = name, types.UID(name)
			w.Publish(f)
		}
		for i := range 100 {
			publish(fmt.Sprint(i))
		}
		time.Sleep(hold + 3*calmPeriod + calmPeriod/2)
		if len(s.writes()) != 4 {
			t.Errorf("wrote %d statuses that can wait, want one every %v", len(s.writes()), calmPeriod)
		}
		for i := range 100 {
			publish(fmt.Sprint(i), running)
		}
		synctest.Wait()
		if len(s.writes()) != 104 {
			t.Errorf("wrote %d statuses, want all that press at once", len(s.writes())-4)
		}
		time.Sleep(time.Minute)
		if len(s.writes()) != 104 {
			t.Errorf("wrote %d statuses more than there was to say", len(s.writes())-104)
		}
		for i := range 20 {
			publish(fmt.Sprint("late", i))
		}
		time.Sleep(time.Minute)
		if len(s.writes()) != 124 {
			t.Errorf("%d of 20 statuses were never written", 124-len(s.writes()))
		}
	})
}

func TestQuickDeletionIsOneWrite(t *testing.T) {
	writing(t, func(t *testing.T, s *server, w *Writer) {
		w.Publish(facts(running))
		synctest.Wait()
		f := facts(crashed)
		f.Pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		f.Terminating = true
		w.Publish(f)
		synctest.Wait()
		if len(s.writes()) != 1 {
			t.Errorf("wrote %d statuses while the pod went", len(s.writes())-1)
		}
		f.Down, f.Finished = true, true
		f.Have.Sandboxes[0].Ready = false
		w.Publish(f)
		synctest.Wait()
		if len(s.writes()) != 2 || !ended(s.writes()[1].status.Phase) ||
			!slices.Equal(s.deleted(), []string{f.Pod.Name}) {
			t.Errorf("wrote %v, deleted %v; want the last status and then the deletion", s.writes(), s.deleted())
		}
	})
}

func TestFailedWriteIsRetriedWithLatest(t *testing.T) {
	writing(t, func(t *testing.T, s *server, w *Writer) {
		s.failOnce(context.DeadlineExceeded)
		w.Publish(facts(running))
		synctest.Wait()
		w.Publish(facts(crashed))
		time.Sleep(time.Minute)
		if len(s.writes()) != 1 || s.writes()[0].status.ContainerStatuses[0].State.Terminated == nil {
			t.Errorf("wrote %v, want the end of the container, once", s.writes())
		}
	})
}

// refusing is an API server that refuses all status updates.
type refusing struct {
	mu    sync.Mutex
	tries int
}

func (r *refusing) PatchPodStatus(context.Context, string, string, []byte) (*v1.Pod, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tries++
	return nil, errors.New("no")
}

func (*refusing) DeletePod(context.Context, string, string, metav1.DeleteOptions) error { return nil }

func (r *refusing) tried() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.tries
	r.tries = 0
	return n
}

// A change is sent at once, also while the server is unavailable. The number of retries
// does not depend on the number of changes.
func TestBackOffIsIndependentOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		r := &refusing{}
		w := NewWriter(quietly(r))
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		for i := range 30 {
			w.Publish(facts([]pod.Container{running, crashed}[i%2]))
			time.Sleep(time.Second)
		}
		synctest.Wait()
		r.tried()
		time.Sleep(10 * maxPause)
		synctest.Wait()
		if n := r.tried(); n != 10 {
			t.Errorf("tried %d times in ten pauses", n)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestPressing(t *testing.T) {
	status := func(phase v1.PodPhase, edit ...func(*v1.PodStatus)) v1.PodStatus {
		s := v1.PodStatus{Phase: phase}
		for _, e := range edit {
			e(&s)
		}
		return s
	}
	isReady := func(s *v1.PodStatus) { s.Conditions = []v1.PodCondition{cond(v1.PodReady, v1.ConditionTrue)} }
	waiting := func(reason string) func(*v1.PodStatus) {
		return func(s *v1.PodStatus) {
			s.ContainerStatuses = []v1.ContainerStatus{{
				Name:  "a",
				State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}},
			}}
		}
	}
	over := func(code int32) v1.ContainerStatus {
		return v1.ContainerStatus{
			Name:  "a",
			State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code}},
		}
	}
	for _, c := range []struct {
		name          string
		reported, now v1.PodStatus
		deleting      bool
		want          bool
	}{
		{"a new pod", status(""), status(v1.PodPending, waiting("ContainerCreating")), false, false},
		{"an address", status(v1.PodPending),
			status(v1.PodPending, func(s *v1.PodStatus) { s.PodIP = "10.0.0.1" }), false, false},
		{"all containers run", status(v1.PodPending), status(v1.PodRunning), false, true},
		{"ready", status(v1.PodRunning), status(v1.PodRunning, isReady), false, true},
		{"not ready any more", status(v1.PodRunning, isReady), status(v1.PodRunning), false, true},
		{"not ready any more, but being deleted", status(v1.PodRunning, isReady), status(v1.PodRunning), true, false},
		{"over", status(v1.PodRunning, isReady), status(v1.PodSucceeded), false, true},
		{"over, as its deletion wants it", status(v1.PodRunning, isReady), status(v1.PodSucceeded), true, false},
		{"an image that cannot be pulled", status(v1.PodPending, waiting("ContainerCreating")),
			status(v1.PodPending, waiting("ErrImagePull")), false, true},
		{"the same trouble again", status(v1.PodPending, waiting("ErrImagePull")),
			status(v1.PodPending, waiting("ErrImagePull")), false, false},
		{"a container that ended", status(v1.PodRunning),
			status(v1.PodRunning, func(s *v1.PodStatus) { s.ContainerStatuses = []v1.ContainerStatus{over(0)} }), false,
			true},
		{"an init container that is done", status(v1.PodPending),
			status(v1.PodPending, func(s *v1.PodStatus) { s.InitContainerStatuses = []v1.ContainerStatus{over(0)} }),
			false, false},
		{"an init container that failed", status(v1.PodPending),
			status(v1.PodPending, func(s *v1.PodStatus) { s.InitContainerStatuses = []v1.ContainerStatus{over(1)} }),
			false, true},
		{"an ephemeral container that runs", status(v1.PodRunning), status(v1.PodRunning, func(s *v1.PodStatus) {
			s.EphemeralContainerStatuses = []v1.ContainerStatus{{
				Name:  "d",
				State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
			}}
		}), false, true},
		{"an eviction", status(v1.PodRunning),
			status(v1.PodRunning, func(s *v1.PodStatus) { s.Reason = "Evicted" }), false, true},
	} {
		if got := pressing(c.reported, c.now, c.deleting); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
