package probe

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/test/kit/eventlog"
	"keelson/test/kit/parity"
	"keelson/test/kit/scrape"
)

// fakeRuntime is a runtime with many containers: those whose ID begins with hung never respond, the others do at once.
type fakeRuntime struct {
	mu    sync.Mutex
	asked map[string][]time.Time
	hung  int // runs that hang now
	most  int
}

func (w *fakeRuntime) Exec(
	ctx context.Context, id string, _ []string, timeout time.Duration,
) ([]byte, int32, bool, error) {
	w.mu.Lock()
	w.asked[id] = append(w.asked[id], time.Now())
	w.mu.Unlock()
	if !strings.HasPrefix(id, "hung") {
		return nil, 0, false, nil
	}
	w.mu.Lock()
	w.hung++
	w.most = max(w.most, w.hung)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.hung--
	}()
	select {
	case <-time.After(timeout):
	case <-ctx.Done():
	}
	return nil, 0, true, nil
}

func (w *fakeRuntime) times(id string) []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]time.Time(nil), w.asked[id]...)
}

// admit starts the probe of a pod with one container.
func admit(p *Prober, id string, readiness func(*v1.Probe)) {
	spec := podWith(v1.Container{ReadinessProbe: execProbe(readiness)})
	spec.UID = types.UID(id)
	p.Sync(podplan.View{Pod: spec, Have: seen(id, time.Now())}, nil, false)
}

// withAllWorkers runs a prober of as many workers as the agent has, in virtual time.
func withAllWorkers(t *testing.T, f func(p *Prober, w *fakeRuntime)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &fakeRuntime{asked: map[string][]time.Time{}}
		p := New(Config{
			Exec:     w,
			Events:   &eventlog.Log{},
			OnChange: func(types.UID) {},
			Workers:  256,
			Version:  "1.36",
			Log:      slog.New(slog.DiscardHandler),
			Now:      time.Now,
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		time.Sleep(time.Second)
		f(p, w)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestHangingProbesDelayNoOther(t *testing.T) {
	parity.Differs(t, "PROBE-31", "0125")
	const (
		well, hung = 3000, 1000
		period     = 10 * time.Second
	)
	withAllWorkers(t, func(p *Prober, w *fakeRuntime) {
		began := map[string]time.Time{}
		for i := range well { // containers start one after another
			id := fmt.Sprint("well", i)
			began[id] = time.Now()
			admit(p, id, nil)
			if i%(well/hung) == 0 {
				admit(p, fmt.Sprint("hung", i), func(p *v1.Probe) { p.TimeoutSeconds, p.PeriodSeconds = 30, 5 })
			}
			time.Sleep(period / well)
		}
		time.Sleep(2 * time.Minute)
		var worst time.Duration
		for id, start := range began {
			times := w.times(id)
			if len(times) < 12 {
				t.Fatalf("%s was asked %d times in two minutes", id, len(times))
			}
			for i, at := range times {
				worst = max(worst, at.Sub(start.Add(time.Duration(i)*period)))
			}
		}
		if worst != 0 {
			t.Errorf("a probe was asked %v after its time while others hang, want none late", worst)
		}
		for i := 0; i < well; i += well / hung {
			if n := len(w.times(fmt.Sprint("hung", i))); n < 4 || n > 6 {
				t.Errorf("the probe of container %d, of which each run takes 30 s, was asked %d times in two minutes",
					i, n)
			}
		}
		if w.most > hung {
			t.Errorf("%d runs hang at once, more than there are probes that do", w.most)
		}
	})
}

// TestAllProbesAtOnce is the worst case: every probe of the node is due, and those that hang come first.
func TestAllProbesAtOnce(t *testing.T) {
	withAllWorkers(t, func(p *Prober, w *fakeRuntime) {
		for i := range 1000 {
			admit(p, fmt.Sprint("hung", i), func(p *v1.Probe) { p.TimeoutSeconds = 60 })
		}
		time.Sleep(time.Millisecond)
		for i := range 3000 {
			admit(p, fmt.Sprint("well", i), nil)
		}
		begin := time.Now()
		time.Sleep(15 * time.Second)
		for i := range 3000 {
			times := w.times(fmt.Sprint("well", i))
			if late := times[0].Sub(begin); late > 1000/256*slotTimeout {
				t.Fatalf("container %d was first asked after %v", i, late)
			}
			if len(times) != 2 {
				t.Fatalf("container %d was asked %d times in 15 s, want twice", i, len(times))
			}
		}
	})
}

func TestWaitingProbesNeedNoGoroutine(t *testing.T) {
	withAllWorkers(t, func(p *Prober, _ *fakeRuntime) {
		before := runtime.NumGoroutine()
		for i := range 5000 {
			admit(p, fmt.Sprint("well", i), func(p *v1.Probe) { p.InitialDelaySeconds = 60 })
		}
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n > 0 {
			t.Errorf("%d goroutines for 5000 probes that wait, want none", n)
		}
	})
}

func TestTerminatedPodIsNotProbed(t *testing.T) {
	parity.Proves(t, "PROBE-16")
	withAllWorkers(t, func(p *Prober, w *fakeRuntime) {
		spec := podWith(v1.Container{ReadinessProbe: execProbe(nil), LivenessProbe: execProbe(nil)})
		have := seen("well", time.Now())
		p.Sync(podplan.View{Pod: spec, Have: have}, nil, false)
		time.Sleep(25 * time.Second)
		if n := len(scrape.Of(t, p)); n != 4 {
			t.Fatalf("%d series of a pod that runs, want two of each probe", n)
		}
		have.Containers[0].State = pod.StateExited
		p.Sync(podplan.View{Pod: spec, Have: have}, nil, true) // its end ends the pod
		asked := len(w.times("well"))
		time.Sleep(time.Minute)
		if n := len(w.times("well")); n != asked {
			t.Errorf("asked %d times after the end", n-asked)
		}
		series := scrape.Of(t, p)
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(series) != 0 || len(p.due) != 0 || len(p.pods) != 0 {
			t.Errorf("left are the series %v, %d probes on the schedule and %d pods", series, len(p.due), len(p.pods))
		}
	})
}

// TestProbeEndsAfterItsPod: a run that ends after its pod was removed adds no series again.
func TestProbeEndsAfterItsPod(t *testing.T) {
	withAllWorkers(t, func(p *Prober, _ *fakeRuntime) {
		admit(p, "hung", func(p *v1.Probe) { p.TimeoutSeconds = 5 })
		time.Sleep(time.Second)
		p.Forget("hung")
		time.Sleep(time.Minute)
		series := scrape.Of(t, p)
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(series) != 0 || len(p.due) != 0 || len(p.busy) != 0 {
			t.Errorf("left are %v, %d on the schedule, %d under way", series, len(p.due), len(p.busy))
		}
	})
}

func TestEditedProbeNeedsNewContainer(t *testing.T) {
	parity.Proves(t, "PROBE-33")
	withProber(t, func(p *Prober, c *fakeContainer, _ *eventlog.Log) {
		spec := podWith(v1.Container{ReadinessProbe: execProbe(nil)})
		have := seen("1", time.Now())
		p.Sync(podplan.View{Pod: spec, Have: have}, nil, false)
		edited := podWith(v1.Container{
			ReadinessProbe: execProbe(func(p *v1.Probe) { p.PeriodSeconds = 1 }),
			LivenessProbe:  execProbe(func(p *v1.Probe) { p.PeriodSeconds = 1 }),
		})
		p.Sync(podplan.View{Pod: edited, Have: have}, nil, false)
		time.Sleep(25 * time.Second)
		if n := len(c.asked()); n != 3 {
			t.Errorf("asked %d times in 25 s, want 3 by the period that the container was started with", n)
		}
		p.Sync(podplan.View{Pod: edited, Have: seen("2", time.Now())}, nil, false)
		synctest.Wait()
		before := len(c.asked())
		time.Sleep(5500 * time.Millisecond)
		if n := len(c.asked()) - before; n != 10 {
			t.Errorf("the next container was asked %d times in 5.5 s, want once a second by both probes", n)
		}
	})
}

// BenchmarkRun measures what one run of a probe costs without its handler, with many others on the schedule.
func BenchmarkRun(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprint(n, " probes"), func(b *testing.B) {
			now := time.Now()
			p := New(Config{
				Exec:     two{},
				Events:   &eventlog.Log{},
				OnChange: func(types.UID) {},
				Workers:  256,
				Version:  "1.36",
				Log:      slog.New(slog.DiscardHandler),
				Now:      func() time.Time { return now },
			})
			for i := range n {
				spec := podWith(v1.Container{ReadinessProbe: execProbe(nil)})
				spec.UID = types.UID(fmt.Sprint(i))
				p.Sync(podplan.View{
					Pod:  spec,
					Have: seen(fmt.Sprint(i), now.Add(time.Duration(i)*10*time.Second/time.Duration(n))),
				}, nil, false)
			}
			b.ReportAllocs()
			var group sync.WaitGroup
			for b.Loop() { // the probes are due one after the other
				p.launch(b.Context(), &group)
				group.Wait()
				now = p.due[0].at
			}
		})
	}
}
