package probe

import (
	"context"
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
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/test/kit/eventlog"
	"keelson/test/kit/parity"
	"keelson/test/kit/scrape"
)

// fakeContainer is a container that answers exec probes with the configured result.
type fakeContainer struct {
	mu    sync.Mutex
	code  int32
	err   error
	once  bool // err is returned once only
	hang  bool
	times []time.Time
	ids   []string // of the containers that were probed
}

func (p *fakeContainer) set(code int32, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.code, p.err = code, err
}

func (p *fakeContainer) asked() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]time.Time(nil), p.times...)
}

func (p *fakeContainer) Exec(
	ctx context.Context, id string, _ []string, timeout time.Duration,
) ([]byte, int32, bool, error) {
	p.mu.Lock()
	p.ids = append(p.ids, id)
	p.times = append(p.times, time.Now())
	code, err, hang := p.code, p.err, p.hang
	if p.once {
		p.err = nil
	}
	p.mu.Unlock()
	if hang {
		select {
		case <-time.After(timeout):
			return nil, 0, true, nil
		case <-ctx.Done():
			return nil, 0, false, ctx.Err()
		}
	}
	return []byte("out"), code, false, err
}

func execProbe(mod func(*v1.Probe)) *v1.Probe {
	p := &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"ok"}}}}
	if mod != nil {
		mod(p)
	}
	return p
}

func podWith(c v1.Container) *v1.Pod {
	c.Name = "c"
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"},
		Spec:       v1.PodSpec{Containers: []v1.Container{c}},
	}
}

func seen(id string, startedAt time.Time) pod.Runtime {
	return pod.Runtime{Containers: []pod.Container{{ID: id, Name: "c", State: pod.StateRunning, StartedAt: startedAt}}}
}

// withProber runs a prober in virtual time.
func withProber(t *testing.T, f func(p *Prober, c *fakeContainer, n *eventlog.Log)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, n := &fakeContainer{}, &eventlog.Log{}
		p := New(Config{
			Exec:     c,
			Events:   n,
			OnChange: func(types.UID) {},
			Workers:  4,
			Version:  "1.36",
			Log:      slog.New(slog.DiscardHandler),
			Now:      time.Now,
		})
		time.Sleep(time.Second) // containers below start after the agent
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		f(p, c, n)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestReadinessPeriod(t *testing.T) {
	parity.ProvesPart(t, 2, "PROBE-13")
	withProber(t, func(p *Prober, c *fakeContainer, _ *eventlog.Log) {
		spec := podWith(v1.Container{ReadinessProbe: execProbe(nil)})
		have := seen("1", time.Now())
		if p.Result(spec, have.Containers[0]).Ready {
			t.Error("ready before any probe")
		}
		p.Sync(podplan.View{Pod: spec, Have: have}, nil, false)
		synctest.Wait()
		if r := p.Result(spec, have.Containers[0]); !r.Ready || !r.Started {
			t.Errorf("result after the first success = %+v, want ready at once", r)
		}
		time.Sleep(25 * time.Second)
		synctest.Wait()
		if got := len(c.asked()); got != 3 {
			t.Errorf("asked %d times in 25 s, want 3 with the default period", got)
		}
	})
}

// The first readiness probe runs when the startup probe succeeds, and the periods count
// from there.
func TestReadinessAfterStartupProbe(t *testing.T) {
	parity.ProvesPart(t, 2, "PROBE-13")
	withProber(t, func(p *Prober, c *fakeContainer, _ *eventlog.Log) {
		spec := podWith(v1.Container{
			StartupProbe:   execProbe(func(p *v1.Probe) { p.PeriodSeconds = 3 }),
			ReadinessProbe: execProbe(func(p *v1.Probe) { p.PeriodSeconds = 7 }),
		})
		c.set(1, nil)
		began := time.Now()
		have := seen("1", began)
		p.Sync(podplan.View{Pod: spec, Have: have}, nil, false)
		time.Sleep(5 * time.Second)
		c.set(0, nil)
		time.Sleep(time.Second)
		synctest.Wait()
		if r := p.Result(spec, have.Containers[0]); !r.Started || !r.Ready {
			t.Errorf("result when the startup probe succeeds = %+v, want started and ready", r)
		}
		time.Sleep(15 * time.Second)
		synctest.Wait()
		var at []int
		for _, when := range c.asked() {
			at = append(at, int(when.Sub(began).Seconds()))
		}
		if want := []int{0, 3, 6, 6, 13, 20}; !slices.Equal(at, want) {
			t.Errorf("asked after %v s, want %v: startup until 6 s, readiness from then on", at, want)
		}
	})
}

func TestInitialDelayFromContainerStart(t *testing.T) {
	parity.Differs(t, "PROBE-05", "0125")
	withProber(t, func(p *Prober, c *fakeContainer, _ *eventlog.Log) {
		// A tick of every 7 s would be 21 s after the probe was made.
		spec := podWith(v1.Container{
			ReadinessProbe: execProbe(func(p *v1.Probe) { p.InitialDelaySeconds, p.PeriodSeconds = 30, 7 }),
		})
		p.Sync(podplan.View{Pod: spec, Have: seen("1", time.Now().Add(-10*time.Second))}, nil, false)
		time.Sleep(19 * time.Second)
		synctest.Wait()
		if n := len(c.asked()); n != 0 {
			t.Errorf("asked %d times within the delay", n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(c.asked()); n != 1 {
			t.Errorf("asked %d times after the delay, want 1", n)
		}
	})
}

func TestThresholds(t *testing.T) {
	parity.ProvesPart(t, 3, "PROBE-07")
	parity.ProvesPart(t, 2, "PROBE-06")
	withProber(t, func(p *Prober, c *fakeContainer, n *eventlog.Log) {
		spec := podWith(v1.Container{
			LivenessProbe:  execProbe(nil),
			ReadinessProbe: execProbe(func(p *v1.Probe) { p.SuccessThreshold = 2 }),
		})
		have := seen("1", time.Now())
		failed := func() bool { return p.Result(spec, have.Containers[0]).LivenessFailed }
		ready := func() bool { return p.Result(spec, have.Containers[0]).Ready }
		p.Sync(podplan.View{Pod: spec, Have: have}, nil, false)
		time.Sleep(5 * time.Second)
		if ready() {
			t.Error("ready after one success of two")
		}
		time.Sleep(10 * time.Second)
		if !ready() {
			t.Error("not ready after two successes")
		}
		c.set(1, nil)
		time.Sleep(20 * time.Second) // two failures
		if failed() || !ready() {
			t.Error("two failures moved a result with threshold 3")
		}
		time.Sleep(10 * time.Second)
		if !failed() || ready() {
			t.Error("three failures did not move the results")
		}
		asked := len(c.asked())
		time.Sleep(10 * time.Second)
		if got := len(c.asked()) - asked; got != 1 {
			t.Errorf("asked %d times after liveness failed, want readiness alone", got)
		}
		// The next instance is probed again.
		p.Sync(podplan.View{Pod: spec, Have: seen("2", time.Now())}, nil, false)
		asked = len(c.asked())
		time.Sleep(25 * time.Second)
		if got := len(c.asked()) - asked; got != 5 {
			t.Errorf("the next instance was asked %d times in 25 s, want 3 times for readiness and 2 for liveness", got)
		}
		if ev := n.Lines(); len(ev) == 0 || ev[0] != "p/c Warning Unhealthy Liveness probe failed: out" &&
			ev[0] != "p/c Warning Unhealthy Readiness probe failed: out" {
			t.Errorf("events = %q", ev)
		}
	})
}

func TestErroredProbeDoesNotCount(t *testing.T) {
	parity.Proves(t, "PROBE-08", "PROBE-09")
	parity.ProvesPart(t, 2, "PROBE-27")
	withProber(t, func(p *Prober, c *fakeContainer, n *eventlog.Log) {
		spec := podWith(v1.Container{LivenessProbe: execProbe(nil)})
		have := seen("1", time.Now())
		c.set(0, errors.New("no runtime"))
		p.Sync(podplan.View{Pod: spec, Have: have}, nil, false)
		time.Sleep(105 * time.Second)
		if p.Result(spec, have.Containers[0]).LivenessFailed {
			t.Error("errors of the probe itself failed the container")
		}
		if got := len(c.asked()); got != 30 {
			t.Errorf("asked %d times in 10 periods, want 3 tries each", got)
		}
		if got := scrape.Of(t, p); len(got) != 0 {
			t.Errorf("counted are %v, want no errors", got)
		}
		if ev := n.Lines(); len(ev) != 10 ||
			ev[0] != "p/c Warning Unhealthy Liveness probe errored and resulted in unknown state: no runtime" {
			t.Errorf("events = %q", ev)
		}
		// An error between failures does not reset their count; each failed probe runs once.
		for i, code := range []int32{1, 1, -1, 1} {
			if p.Result(spec, have.Containers[0]).LivenessFailed {
				t.Errorf("failed before probe %d", i)
			}
			if c.set(code, nil); code < 0 {
				c.set(0, errors.New("no runtime"))
			}
			asked := len(c.asked())
			time.Sleep(10 * time.Second)
			if got, want := len(c.asked())-asked, map[bool]int{true: 1, false: 3}[code > 0]; got != want {
				t.Errorf("probe %d: asked %d times, want %d", i, got, want)
			}
		}
		if !p.Result(spec, have.Containers[0]).LivenessFailed {
			t.Error("three failures with an error between them did not fail the container")
		}
	})
	// A probe is retried only after an error.
	for code, ready := range map[int32]bool{0: true, 1: false} {
		withProber(t, func(p *Prober, c *fakeContainer, _ *eventlog.Log) {
			spec := podWith(v1.Container{ReadinessProbe: execProbe(nil)})
			have := seen("1", time.Now())
			c.set(code, errors.New("not now"))
			c.once = true
			p.Sync(podplan.View{Pod: spec, Have: have}, nil, false)
			synctest.Wait()
			if got := len(c.asked()); got != 2 || p.Result(spec, have.Containers[0]).Ready != ready {
				t.Errorf("code %d after an error: asked %d times, want 2, and ready is to be %v", code, got, ready)
			}
		})
	}
}

// A result changes only after as many consecutive equal outcomes as the threshold.
func TestAlternatingOutcomesChangeNothing(t *testing.T) {
	parity.ProvesPart(t, 3, "PROBE-07")
	withProber(t, func(p *Prober, c *fakeContainer, _ *eventlog.Log) {
		spec := podWith(v1.Container{
			LivenessProbe:  execProbe(nil),
			ReadinessProbe: execProbe(func(p *v1.Probe) { p.SuccessThreshold = 2 }),
		})
		have := seen("1", time.Now())
		p.Sync(podplan.View{Pod: spec, Have: have}, nil, false)
		time.Sleep(15 * time.Second)
		if !p.Result(spec, have.Containers[0]).Ready {
			t.Fatal("not ready after two successes")
		}
		for range 5 {
			for _, code := range []int32{1, 1, 0} {
				c.set(code, nil)
				time.Sleep(10 * time.Second)
				if r := p.Result(spec, have.Containers[0]); !r.Ready || r.LivenessFailed {
					t.Fatalf("two failures and a success made it %+v", r)
				}
			}
		}
		c.set(1, nil)
		time.Sleep(30 * time.Second)
		for range 5 {
			for _, code := range []int32{0, 1} {
				c.set(code, nil)
				time.Sleep(10 * time.Second)
				if p.Result(spec, have.Containers[0]).Ready {
					t.Fatal("ready after one success of two")
				}
			}
		}
	})
}

// Unset fields of a probe have the API's defaults, also for static pods, which the API server has not defaulted.
func TestDefaultsOfAProbe(t *testing.T) {
	parity.ProvesPart(t, 2, "PROBE-02")
	want := settings{period: 10 * time.Second, timeout: time.Second, failures: 3, successes: 1}
	if got := settingsOf(&v1.Probe{}); got != want {
		t.Errorf("settings %+v, want %+v", got, want)
	}
}

// Before its first probe a container is not ready, does not fail, and has started unless it has a startup probe.
func TestInitialResults(t *testing.T) {
	parity.ProvesPart(t, 2, "PROBE-03")
	for _, synced := range []bool{false, true} {
		for _, tc := range []struct {
			name string
			c    v1.Container
			want Result
		}{
			{"no probe", v1.Container{}, Result{Started: true, Ready: true}},
			{"liveness", v1.Container{LivenessProbe: execProbe(nil)}, Result{Started: true, Ready: true}},
			{"readiness", v1.Container{ReadinessProbe: execProbe(nil)}, Result{Started: true}},
			{"startup", v1.Container{StartupProbe: execProbe(nil)}, Result{}},
			{"all", v1.Container{
				StartupProbe:   execProbe(nil),
				LivenessProbe:  execProbe(nil),
				ReadinessProbe: execProbe(nil),
			}, Result{}},
		} {
			withProber(t, func(p *Prober, c *fakeContainer, _ *eventlog.Log) {
				c.hang = true
				spec, have := podWith(tc.c), seen("1", time.Now())
				if synced {
					p.Sync(podplan.View{Pod: spec, Have: have}, nil, false)
					synctest.Wait()
				}
				if got := p.Result(spec, have.Containers[0]); got != tc.want {
					t.Errorf("%s, synced %v: %+v, want %+v", tc.name, synced, got, tc.want)
				}
			})
		}
	}
}

func TestStartupProbeGatesOthers(t *testing.T) {
	parity.ProvesPart(t, 2, "PROBE-03")
	parity.ProvesPart(t, 2, "PROBE-06")
	withProber(t, func(p *Prober, c *fakeContainer, _ *eventlog.Log) {
		spec := podWith(v1.Container{
			StartupProbe:   execProbe(func(p *v1.Probe) { p.FailureThreshold = 5 }),
			LivenessProbe:  execProbe(func(p *v1.Probe) { p.FailureThreshold = 1 }),
			ReadinessProbe: execProbe(nil),
		})
		have := seen("1", time.Now())
		result := func() Result { return p.Result(spec, have.Containers[0]) }
		c.hang = true
		p.Sync(podplan.View{Pod: spec, Have: have}, nil, false)
		time.Sleep(15 * time.Second) // two time-outs
		if r := result(); r.Started || r.Ready || r.LivenessFailed || len(c.asked()) != 2 {
			t.Errorf("before startup: %+v after %d probes", r, len(c.asked()))
		}
		c.mu.Lock()
		c.hang = false
		c.mu.Unlock()
		time.Sleep(6 * time.Second)
		if r := result(); !r.Started || !r.Ready {
			t.Errorf("after startup: %+v, want started and ready at once", r)
		}
		asked := len(c.asked())
		time.Sleep(20 * time.Second)
		if got := len(c.asked()) - asked; got != 4 {
			t.Errorf(
				"asked %d times in two periods, want twice each for liveness and readiness, and no more for startup",
				got)
		}
		c.set(1, nil)
		time.Sleep(10 * time.Second)
		if r := result(); !r.Started || !r.LivenessFailed {
			t.Errorf("later: %+v, want a failed liveness probe of a started container", r)
		}
	})
	withProber(t, func(p *Prober, c *fakeContainer, _ *eventlog.Log) {
		spec := podWith(v1.Container{StartupProbe: execProbe(nil)})
		have := seen("1", time.Now())
		c.set(1, nil)
		p.Sync(podplan.View{Pod: spec, Have: have}, nil, false)
		time.Sleep(25 * time.Second)
		if r := p.Result(spec, have.Containers[0]); !r.StartupFailed || r.Started {
			t.Errorf("result = %+v, want a failed startup probe", r)
		}
		asked := len(c.asked())
		time.Sleep(time.Minute)
		if got := len(c.asked()); got != asked || asked != 3 {
			t.Errorf("asked %d times, and %d times after the startup probe had failed, want 3 and none", asked,
				got-asked)
		}
		c.set(0, nil)
		next := seen("2", time.Now())
		p.Sync(podplan.View{Pod: spec, Have: next}, nil, false)
		synctest.Wait()
		if r := p.Result(spec, next.Containers[0]); !r.Started || r.StartupFailed || len(c.asked()) != 4 {
			t.Errorf("the next instance is %+v after %d probes, want started by one", r, len(c.asked())-asked)
		}
	})
}

// Of a terminating pod regular containers are probed for readiness only; its sidecars are
// probed as before, and failures have no effect.
func TestProbesOfTerminatingPod(t *testing.T) {
	parity.ProvesPart(t, 5, "LIFE-07")
	parity.ProvesPart(t, 2, "PROBE-14")
	parity.ProvesPart(t, 2, "PROBE-27")
	for _, tc := range []struct {
		name    string
		sidecar bool
		started bool // before the pod is terminated
		events  []string
	}{
		{name: "a regular container", started: true, events: []string{"p/c Warning Unhealthy Readiness probe failed: out"}},
		{name: "a regular container that has not started"},
		{
			name:    "a sidecar",
			sidecar: true,
			started: true,
			events: []string{
				"p/c Warning Unhealthy Liveness probe failed: out",
				"p/c Warning Unhealthy Readiness probe failed: out",
			},
		},
		{
			name:    "a sidecar that has not started",
			sidecar: true,
			events:  []string{"p/c Warning Unhealthy Startup probe failed: out"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			withProber(t, func(p *Prober, c *fakeContainer, n *eventlog.Log) {
				spec := podWith(v1.Container{
					StartupProbe:   execProbe(nil),
					LivenessProbe:  execProbe(nil),
					ReadinessProbe: execProbe(nil),
				})
				if tc.sidecar {
					spec.Spec.InitContainers, spec.Spec.Containers = spec.Spec.Containers, nil
					spec.Spec.InitContainers[0].RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
				}
				have := seen("1", time.Now())
				if !tc.started {
					c.set(1, nil)
				}
				p.Sync(podplan.View{Pod: spec, Have: have}, nil, false)
				synctest.Wait()
				c.set(1, nil)
				before := len(n.Lines())
				p.Sync(podplan.View{Pod: spec, Have: have}, nil, true)
				time.Sleep(35 * time.Second)
				reported := slices.Sorted(slices.Values(n.Lines()[before:]))
				if got := slices.Compact(reported); !slices.Equal(got, tc.events) {
					t.Errorf("notified of %q, want %q", got, tc.events)
				}
				r := p.Result(spec, have.Containers[0])
				if r.Started != tc.started || r.StartupFailed || r.LivenessFailed || r.Ready {
					t.Errorf("result = %+v, want one that ends nothing", r)
				}
			})
		})
	}
}

func TestNewInstanceStartsOver(t *testing.T) {
	parity.ProvesPart(t, 2, "PROBE-17")
	parity.ProvesPart(t, 2, "PROBE-15")
	withProber(t, func(p *Prober, c *fakeContainer, _ *eventlog.Log) {
		spec := podWith(v1.Container{ReadinessProbe: execProbe(nil)})
		first := seen("1", time.Now())
		p.Sync(podplan.View{Pod: spec, Have: first}, nil, false)
		synctest.Wait()
		c.set(1, nil)
		second := seen("2", time.Now())
		p.Sync(podplan.View{Pod: spec, Have: second}, nil, false)
		synctest.Wait()
		if p.Result(spec, second.Containers[0]).Ready {
			t.Error("the new instance inherits the result of the old one")
		}
		gone := second
		gone.Containers = []pod.Container{{ID: "2", Name: "c", State: pod.StateExited}}
		p.Sync(podplan.View{Pod: spec, Have: gone}, nil, false)
		if p.Result(spec, gone.Containers[0]).Ready {
			t.Error("an ended container is ready")
		}
		asked := len(c.asked())
		time.Sleep(time.Minute)
		if len(c.asked()) != asked {
			t.Error("an ended container is probed")
		}
	})
}

// A new instance has the initial results of each kind of probe, whatever the results of the one before were.
func TestInitialResultsOfNewInstance(t *testing.T) {
	parity.ProvesPart(t, 2, "PROBE-17")
	once := func(p *v1.Probe) { p.FailureThreshold = 1 }
	for _, tc := range []struct {
		name           string
		c              v1.Container
		code           int32 // of the first instance's probes
		before, atOnce Result
	}{
		{"liveness failed", v1.Container{LivenessProbe: execProbe(once)}, 1,
			Result{Started: true, Ready: true, LivenessFailed: true}, Result{Started: true, Ready: true}},
		{"startup failed", v1.Container{StartupProbe: execProbe(once)}, 1, Result{StartupFailed: true}, Result{}},
		{"startup succeeded", v1.Container{StartupProbe: execProbe(nil)}, 0, Result{Started: true, Ready: true}, Result{}},
		{"readiness succeeded", v1.Container{ReadinessProbe: execProbe(nil)}, 0,
			Result{Started: true, Ready: true}, Result{Started: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			withProber(t, func(p *Prober, c *fakeContainer, _ *eventlog.Log) {
				spec, first, second := podWith(tc.c), seen("1", time.Now()), seen("2", time.Now())
				c.set(tc.code, nil)
				p.Sync(podplan.View{Pod: spec, Have: first}, nil, false)
				time.Sleep(15 * time.Second)
				if got := p.Result(spec, first.Containers[0]); got != tc.before {
					t.Errorf("the first: %+v, want %+v", got, tc.before)
				}
				c.mu.Lock()
				c.hang = true
				c.mu.Unlock()
				p.Sync(podplan.View{Pod: spec, Have: second}, nil, false)
				synctest.Wait()
				if got := p.Result(spec, second.Containers[0]); got != tc.atOnce {
					t.Errorf("the second: %+v, want %+v", got, tc.atOnce)
				}
			})
		})
	}
}

func TestResultsSurviveAgentRestart(t *testing.T) {
	parity.ProvesPart(t, 4, "PROBE-18")
	synctest.Test(t, func(t *testing.T) {
		c := &fakeContainer{code: 1}
		spec := podWith(v1.Container{StartupProbe: execProbe(nil), ReadinessProbe: execProbe(nil)})
		have := seen("abc", time.Now().Add(-time.Hour))
		spec.Status.ContainerStatuses = []v1.ContainerStatus{{
			Name:        "c",
			ContainerID: "containerd://abc",
			Ready:       true,
			Started:     ptr.To(true),
		}}
		p := New(Config{
			Exec:     c,
			Events:   &eventlog.Log{},
			OnChange: func(types.UID) {},
			Workers:  4,
			Version:  "1.36",
			Log:      slog.New(slog.DiscardHandler),
			Now:      time.Now,
		})
		p.Sync(podplan.View{Pod: spec, Have: have}, nil, false)
		if r := p.Result(spec, have.Containers[0]); !r.Ready || !r.Started {
			t.Errorf("result = %+v, want what was stored", r)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		time.Sleep(31 * time.Second)
		if p.Result(spec, have.Containers[0]).Ready {
			t.Error("the readiness probe's failures do not count")
		}
		cancel()
		<-done
	})
}

// Containers that ran before the agent, with stored results, are probed at different times
// within their period. A new one is probed at once.
func TestProbesAreSpreadAfterAgentRestart(t *testing.T) {
	parity.Differs(t, "PROBE-04", "0125")
	withProber(t, func(p *Prober, c *fakeContainer, _ *eventlog.Log) {
		begin := time.Now()
		for i := range 100 {
			spec, id := podWith(v1.Container{ReadinessProbe: execProbe(nil)}), fmt.Sprint("old", i)
			spec.UID = types.UID(id)
			spec.Status.ContainerStatuses = []v1.ContainerStatus{
				{Name: "c", ContainerID: "containerd://" + id, Ready: true},
			}
			p.Sync(podplan.View{Pod: spec, Have: seen(id, begin.Add(-time.Hour))}, nil, false)
		}
		// These have no stored status.
		unrecorded := podWith(v1.Container{ReadinessProbe: execProbe(nil)})
		unrecorded.UID = "unrecorded"
		p.Sync(podplan.View{Pod: unrecorded, Have: seen("unrecorded", begin.Add(-time.Hour))}, nil, false)
		fresh := podWith(v1.Container{ReadinessProbe: execProbe(nil)})
		p.Sync(podplan.View{Pod: fresh, Have: seen("fresh", begin)}, nil, false)
		synctest.Wait()
		if n := len(c.asked()); n < 2 || n > 10 {
			t.Errorf("%d are asked at once, want the two of which nothing is known", n)
		}
		c.mu.Lock()
		if !slices.Contains(c.ids, "unrecorded") || !slices.Contains(c.ids, "fresh") {
			t.Errorf("at once are asked %q", c.ids)
		}
		c.mu.Unlock()
		time.Sleep(10*time.Second - time.Nanosecond)
		asked := c.asked()
		if len(asked) < 102 {
			t.Fatalf("%d are asked within the period, want all", len(asked))
		}
		parts := map[int]bool{}
		for _, at := range asked {
			parts[int(at.Sub(begin)/(2*time.Second))] = true
		}
		if len(parts) != 5 {
			t.Errorf("asked in %d fifths of the period, want in all", len(parts))
		}
	})
}

func TestManyProbesShareFewWorkers(t *testing.T) {
	withProber(t, func(p *Prober, c *fakeContainer, _ *eventlog.Log) {
		c.hang = true
		for i := range 100 {
			spec := podWith(v1.Container{ReadinessProbe: execProbe(nil)})
			spec.UID = types.UID(fmt.Sprint(i))
			p.Sync(podplan.View{Pod: spec, Have: seen(fmt.Sprint(i), time.Now())}, nil, false)
		}
		synctest.Wait()
		if n := len(c.asked()); n != 4 {
			t.Errorf("%d probes at once, want as many as workers", n)
		}
		time.Sleep(26 * time.Second) // 100 probes of a second, four at a time
		if n := len(c.asked()); n < 100 {
			t.Errorf("%d probes were run, want every one", n)
		}
	})
}

func TestStartingContainerIsProbedAgainSoon(t *testing.T) {
	k := &check{
		kind:     kindReadiness,
		probe:    &v1.Probe{ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{}}},
		settings: settings{period: time.Second, failures: 1},
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	k.at = start
	var asked []time.Duration
	var counted int
	for range 7 {
		now := k.at
		asked = append(asked, now.Sub(start))
		if k.counts(failure) {
			counted++
		}
		k.schedule(failure, now)
	}
	want := []time.Duration{
		0, 50 * time.Millisecond, 150 * time.Millisecond, 350 * time.Millisecond, 750 * time.Millisecond, time.Second,
		2 * time.Second,
	}
	if !slices.Equal(asked, want) {
		t.Errorf("asked at %v, want %v", asked, want)
	}
	if counted != 3 {
		t.Errorf("%d failures count, want those of the three ticks", counted)
	}
	k.eager = true
	if !k.counts(success) {
		t.Error("an answer between two ticks does not count")
	}
	k.known = true
	k.pause, k.eager = 0, false
	k.schedule(failure, k.at)
	if k.eager {
		t.Error("a container that has answered before is asked out of turn")
	}
}

func TestLivenessProbeWaitsOnePeriod(t *testing.T) {
	withProber(t, func(p *Prober, c *fakeContainer, _ *eventlog.Log) {
		spec := podWith(v1.Container{LivenessProbe: execProbe(func(p *v1.Probe) { p.FailureThreshold = 1 })})
		have := seen("1", time.Now())
		c.set(1, nil)
		p.Sync(podplan.View{Pod: spec, Have: have}, nil, false)
		time.Sleep(9 * time.Second)
		if p.Result(spec, have.Containers[0]).LivenessFailed {
			t.Error("the container is to be stopped before it had time to begin")
		}
		time.Sleep(2 * time.Second)
		if !p.Result(spec, have.Containers[0]).LivenessFailed {
			t.Error("the failure after the first period does not count")
		}
	})
}

// The clock was set back by two hours after the container had started.
func TestProbesAfterClockSetBack(t *testing.T) {
	withProber(t, func(p *Prober, c *fakeContainer, _ *eventlog.Log) {
		spec := podWith(v1.Container{ReadinessProbe: execProbe(func(p *v1.Probe) { p.InitialDelaySeconds = 5 })})
		// as a runtime reports it
		p.Sync(podplan.View{Pod: spec, Have: seen("1", time.Now().Add(2*time.Hour).Round(0))}, nil, false)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if n := len(c.asked()); n != 0 {
			t.Errorf("asked %d times within the delay", n)
		}
		time.Sleep(22 * time.Second)
		synctest.Wait()
		if n := len(c.asked()); n != 3 {
			t.Errorf("asked %d times in 26 s, want 3", n)
		}
	})
	// The clock of virtual time cannot be set. In real time, only a time with a monotonic reading does not depend on the
	// clock.
	p := handlers()
	p.Sync(podplan.View{
		Pod:  podWith(v1.Container{ReadinessProbe: execProbe(nil)}),
		Have: seen("1", time.Now().Round(0)),
	},
		nil, false)
	k := p.due[0]
	for range 2 {
		if k.at == k.at.Round(0) {
			t.Errorf("a probe is due at %v by a clock that may be set", k.at)
		}
		k.schedule(success, time.Now())
	}
}
