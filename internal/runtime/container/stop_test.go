package container

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

func preStop(h v1.LifecycleHandler) func(*v1.Container) {
	return func(c *v1.Container) { c.Lifecycle = &v1.Lifecycle{PreStop: &h} }
}

func exec(cmd ...string) v1.LifecycleHandler {
	return v1.LifecycleHandler{Exec: &v1.ExecAction{Command: cmd}}
}

func sleeping(s int64) v1.LifecycleHandler {
	return v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: s}}
}

// started starts the pod's container and clears its events.
func started(t *testing.T, b bench, p *v1.Pod) Stop {
	t.Helper()
	s := b.startOf(p, b.run(t, p))
	id, failure := b.StartContainer(t.Context(), s)
	if failure != nil {
		t.Fatal(failure)
	}
	b.events.Take()
	config := b.runtime.Pods()[0].Containers[0].Config
	return Stop{
		Pod:       p,
		Spec:      s.Container,
		PodIPs:    s.PodIPs,
		Container: pod.Container{ID: id, Name: "main", Annotations: config.Annotations},
	}
}

const killing = "web/main Normal Killing Stopping container main"

func TestStop(t *testing.T) {
	parity.Proves(t, "LIFE-53", "LIFE-60")
	parity.Differs(t, "LIFE-57", "0028")
	parity.ProvesPart(t, 3, "LIFE-56")
	for _, tc := range []struct {
		name    string
		change  func(*v1.Container)
		grace   time.Duration
		message string
		timeout int64         // sent to the runtime
		took    time.Duration // before it was
		events  []string
		cut     float64 // sleep hooks that were cut short
	}{
		{name: "the whole grace is the container's", grace: 30 * time.Second, timeout: 30, events: []string{killing}},
		{name: "parts of a second are rounded up", grace: 2500 * time.Millisecond, timeout: 3, events: []string{killing}},
		{name: "a second is too little", grace: time.Second, timeout: 2, events: []string{killing}},
		{name: "no grace period", grace: 0, timeout: 2, events: []string{killing}},
		{
			name:    "the message of the event",
			grace:   5 * time.Second,
			timeout: 5,
			message: "Container main failed liveness probe, will be restarted",
			events:  []string{"web/main Normal Killing Container main failed liveness probe, will be restarted"},
		},
		{
			name:    "the hook's time is subtracted",
			change:  preStop(sleeping(3)),
			grace:   10 * time.Second,
			timeout: 7,
			took:    3 * time.Second,
			events:  []string{killing},
		},
		{
			name:    "a hook of no time",
			change:  preStop(sleeping(0)),
			grace:   10 * time.Second,
			timeout: 10,
			events:  []string{killing},
		},
		{
			name:    "a hook does not outlast the grace",
			change:  preStop(sleeping(60)),
			grace:   10 * time.Second,
			timeout: 2,
			took:    10 * time.Second,
			events:  []string{killing},
			cut:     1,
		},
		{
			name:    "an exec hook that exceeds the grace period ends with its container",
			change:  preStop(exec("sleep", "60")),
			grace:   10 * time.Second,
			timeout: 2,
			took:    10 * time.Second,
			events:  []string{killing, "web/main Warning FailedPreStopHook PreStopHook failed"},
		},
		{name: "no hook without a grace period", change: preStop(sleeping(3)), timeout: 2, events: []string{killing}},
		{
			name:    "the container is stopped after a failed hook",
			change:  preStop(exec("false")),
			grace:   10 * time.Second,
			timeout: 10,
			events:  []string{killing, "web/main Warning FailedPreStopHook PreStopHook failed"},
		},
		{
			name:    "a hook without a kind fails",
			change:  preStop(v1.LifecycleHandler{}),
			grace:   10 * time.Second,
			timeout: 10,
			events:  []string{killing, "web/main Warning FailedPreStopHook PreStopHook failed"},
		},
		{
			name:    "a hook within the grace period",
			change:  preStop(exec("sleep", "4")),
			grace:   10 * time.Second,
			timeout: 6,
			took:    4 * time.Second,
			events:  []string{killing},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reg := prometheus.NewRegistry()
				b := newBench(t, func(c *Config) { c.Registry = reg })
				s := started(t, b, simplePod(tc.change))
				s.Grace, s.Message = tc.grace, tc.message
				begin := time.Now()
				if err := b.StopContainer(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begin); took != tc.took {
					t.Errorf("took %v, want %v", took, tc.took)
				}
				if !slices.Equal(b.runtime.stops, []int64{tc.timeout}) {
					t.Errorf("sent timeouts %d, want %d", b.runtime.stops, tc.timeout)
				}
				synctest.Wait()
				if got := b.events.Lines(); !slices.Equal(got, tc.events) {
					t.Errorf("events %q, want %q", got, tc.events)
				}
				if got := b.runtime.Pods()[0].String(); got != "ns/web ready: main#0 exited 143" {
					t.Errorf("runtime holds %s", got)
				}
				time.Sleep(5 * time.Second) // a hook may end a moment after its container
				if n := counted(t, reg, "kubelet_sleep_action_terminated_early_total", nil); n != tc.cut {
					t.Errorf("%v sleeps were cut short, want %v", n, tc.cut)
				}
			})
		})
	}
}

// A container has two seconds after its hook has used up the grace period, and so has the hook.
func TestStopAfterPreStopTimeout(t *testing.T) {
	for _, tc := range []struct {
		name   string
		hook   string
		took   time.Duration // until the container had stopped
		events []string
	}{
		{
			name:   "a hook that fails during the stop is reported",
			hook:   "sleep 11; exit 9",
			took:   12 * time.Second,
			events: []string{killing, "web/main Warning FailedPreStopHook PreStopHook failed"},
		},
		{
			name:   "a hook that succeeds during the stop",
			hook:   "sleep 11",
			took:   12 * time.Second,
			events: []string{killing},
		},
		{
			name:   "a hook that hangs is cancelled with the container",
			hook:   "sleep 60",
			took:   12 * time.Second,
			events: []string{killing, "web/main Warning FailedPreStopHook PreStopHook failed"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, nil)
				s := started(t, b, simplePod(func(c *v1.Container) {
					preStop(exec("sh", "-c", tc.hook))(c)
					c.Command = []string{"sh", "-c", "trap '' TERM; sleep infinity"}
				}))
				s.Grace = 10 * time.Second
				begin := time.Now()
				if err := b.StopContainer(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begin); took != tc.took {
					t.Errorf("took %v, want %v", took, tc.took)
				}
				synctest.Wait()
				if got := b.events.Lines(); !slices.Equal(got, tc.events) {
					t.Errorf("events %q, want %q", got, tc.events)
				}
				if got := b.runtime.Pods()[0].String(); got != "ns/web ready: main#0 exited 137" {
					t.Errorf("runtime holds %s", got)
				}
			})
		})
	}
}

func TestStopWithoutPodSpec(t *testing.T) {
	for _, tc := range []struct {
		name        string
		annotations map[string]string // instead of those written on the container
		grace       time.Duration
		timeout     int64
		took        time.Duration
	}{
		{name: "the hook is read from the container", grace: 20 * time.Second, timeout: 17, took: 3 * time.Second},
		{name: "a hook that takes nearly all of the grace", grace: 5 * time.Second, timeout: 2, took: 3 * time.Second},
		{name: "no hook is written", annotations: map[string]string{}, grace: 30 * time.Second, timeout: 30},
		{
			name:        "the container is stopped despite invalid annotations",
			annotations: map[string]string{pod.AnnotationPreStopHandler: "{", pod.AnnotationPorts: "["},
			grace:       30 * time.Second,
			timeout:     30,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, nil)
				p := simplePod(preStop(sleeping(3)))
				p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](20)
				s := started(t, b, p)
				s.Pod, s.Spec, s.Ref, s.Grace = nil, nil, pod.RefOf(p), tc.grace
				if tc.annotations != nil {
					s.Container.Annotations = tc.annotations
				}
				begin := time.Now()
				if err := b.StopContainer(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begin); took != tc.took {
					t.Errorf("took %v, want %v", took, tc.took)
				}
				if !slices.Equal(b.runtime.stops, []int64{tc.timeout}) {
					t.Errorf("sent timeouts %d, want %d", b.runtime.stops, tc.timeout)
				}
				if got := b.events.Lines(); !slices.Equal(got, []string{killing}) {
					t.Errorf("events %q", got)
				}
			})
		})
	}
}

func TestStopContainerNotFound(t *testing.T) {
	b := newBench(t, nil)
	p := simplePod(nil)
	if err := b.StopContainer(t.Context(), Stop{
		Pod:       p,
		Container: pod.Container{ID: "absent", Name: "main"},
		Grace:     time.Second,
	}); err != nil {
		t.Error(err)
	}
	gone := pod.Container{ID: "absent", Name: "main", LogPath: "/nonexistent/0.log"}
	if err := b.RemoveContainer(t.Context(), Removal{Ref: pod.RefOf(p), Container: gone}); err != nil {
		t.Error(err)
	}
}

func TestStopContextCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		s := started(t, b, simplePod(preStop(sleeping(60))))
		s.Grace = time.Minute
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.StopContainer(ctx, s); err == nil {
			t.Error("no error though nothing was stopped")
		}
		if got := b.events.Lines(); !slices.Equal(got, []string{killing}) {
			t.Errorf("events %q, want no failed hook", got)
		}
	})
}

func TestPostStart(t *testing.T) {
	parity.Proves(t, "LIFE-54")
	postStart := func(h v1.LifecycleHandler) func(*v1.Container) {
		return func(c *v1.Container) { c.Lifecycle = &v1.Lifecycle{PostStart: &h} }
	}
	upAndDown := []string{"web/main Normal Created Container created", "web/main Normal Started Container started"}
	for _, tc := range []struct {
		name    string
		change  func(*v1.Container)
		message string
		took    time.Duration
		holds   string
	}{
		{
			name:   "the start waits for the hook",
			change: postStart(exec("sleep", "500")),
			took:   500 * time.Second,
			holds:  "running",
		},
		{name: "also for one that sleeps", change: postStart(sleeping(20)), took: 20 * time.Second, holds: "running"},
		{
			name:   "a failure ends the container",
			change: postStart(exec("sh", "-c", "echo secret; exit 3")),
			holds:  "exited 143",
			message: `Exec lifecycle hook ([sh -c echo secret; exit 3]) for Container "main" in Pod "web_ns(uid-1)" failed - ` +
				`error: command 'sh -c echo secret; exit 3' exited with 3: , message: "secret\n"`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, nil)
				p := simplePod(tc.change)
				s := b.startOf(p, b.run(t, p))
				begin := time.Now()
				_, failure := b.StartContainer(t.Context(), s)
				if took := time.Since(begin); took != tc.took {
					t.Errorf("took %v, want %v", took, tc.took)
				}
				want := upAndDown
				if tc.message == "" {
					if failure != nil {
						t.Error(failure)
					}
				} else {
					if failure == nil || failure.Reason != "PostStartHookError" || failure.Message != tc.message {
						t.Errorf("got %v, want %s", failure, tc.message)
					}
					want = append(want, "web/main Warning FailedPostStartHook PostStartHook failed",
						"web/main Normal Killing FailedPostStartHook")
				}
				if got := b.events.Lines(); !slices.Equal(got, want) {
					t.Errorf("events %q, want %q", got, want)
				}
				if got := b.runtime.Pods()[0].String(); !strings.HasSuffix(got, tc.holds) {
					t.Errorf("runtime holds %s", got)
				}
			})
		})
	}
}

func TestCancelledPostStartKeepsContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		p := simplePod(func(c *v1.Container) { c.Lifecycle = &v1.Lifecycle{PostStart: ptr.To(sleeping(60))} })
		s := b.startOf(p, b.run(t, p))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, failure := b.StartContainer(ctx, s); failure == nil {
			t.Error("no error though the hook did not end")
		}
		if got := b.runtime.Pods()[0].String(); got != "ns/web ready: main#0 running" {
			t.Errorf("runtime holds %s", got)
		}
		if got := b.events.Lines(); len(got) != 2 {
			t.Errorf("events %q, want none but of the start", got)
		}
	})
}
