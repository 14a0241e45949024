package observed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
	"keelson/test/kit/scrape"
)

// rig is a cache at work on a fake runtime, in virtual time.
type rig struct {
	*Cache
	fake *fakeRuntime

	mu      sync.Mutex
	changes []types.UID
}

func (r *rig) changed() []types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.changes
	r.changes = nil
	return c
}

// after waits for d, and then for all that happens without further waiting.
func (r *rig) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// kept is how many entries and owners the cache holds, once it is at rest.
func (r *rig) kept() (entries, owners int) {
	synctest.Wait()
	r.Cache.mu.Lock()
	defer r.Cache.mu.Unlock()
	return len(r.pods), len(r.owners)
}

func inTime(t *testing.T, setup func(*fakeRuntime), test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{fake: newFake()}
		if setup != nil {
			setup(r.fake)
		}
		r.Cache = New(Config{
			Runtime: r.fake,
			OnChange: func(uid types.UID) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.changes = append(r.changes, uid)
			},
			Log: slog.New(slog.DiscardHandler),
			Now: time.Now,
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		synctest.Wait()
		test(t, r)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (r *rig) state(t *testing.T, uid types.UID, name string) pod.State {
	t.Helper()
	have, ok := r.Get(uid)
	if !ok {
		t.Fatalf("pod %s is not known", uid)
	}
	c, ok := have.Latest(name)
	if !ok {
		t.Fatalf("pod %s has no container %s: %+v", uid, name, have)
	}
	return c.State
}

func TestFirstListFindsRunningPods(t *testing.T) {
	inTime(t, func(f *fakeRuntime) {
		f.run("u1", "s1")
		f.start("u1", "s1", "main", "c1")
		f.containers["foreign"] = &runtimeapi.ContainerStatus{Id: "foreign"}
	}, func(t *testing.T, r *rig) {
		select {
		case <-r.Synced():
		default:
			t.Fatal("not synced after the first list")
		}
		have, ok := r.Get("u1")
		if !ok || have.Name != "pod-u1" || have.Namespace != "ns" || len(have.Sandboxes) != 1 ||
			have.Sandboxes[0].IPs[0] != "10.0.0.1" {
			t.Errorf("Get = %+v, %v", have, ok)
		}
		if got := r.state(t, "u1", "main"); got != pod.StateRunning {
			t.Errorf("main is %v, want running", got)
		}
		if got := r.UIDs(); !slices.Equal(got, []types.UID{"u1"}) {
			t.Errorf("UIDs = %v, want u1 alone", got)
		}
		if have, ok := r.Get("u2"); !ok || !have.Empty() {
			t.Errorf("Get of a pod that is not there = %+v, %v; want to know that there is nothing", have, ok)
		}
	})
}

func TestEventsNeedNoCall(t *testing.T) {
	parity.Differs(t, "RT-23", "0061")
	inTime(t, nil, func(t *testing.T, r *rig) {
		r.after(5 * time.Second) // the stream is relied on
		before := r.fake.total()
		r.fake.run("u1", "s1")
		r.fake.start("u1", "s1", "main", "c1")
		r.after(0)
		if got := r.state(t, "u1", "main"); got != pod.StateRunning {
			t.Errorf("main is %v, want running", got)
		}
		r.fake.exit("c1", 3)
		r.after(0)
		have, _ := r.Get("u1")
		if c, _ := have.Latest("main"); c.State != pod.StateExited || c.ExitCode != 3 || have.Name != "pod-u1" {
			t.Errorf("after the exit: %+v", have)
		}
		if n := r.fake.total() - before; n != 0 {
			t.Errorf("%d calls for a pod whose events are complete, want none: %v", n, r.fake.calls)
		}
		if len(r.changed()) == 0 {
			t.Error("OnChange was not called")
		}
	})
}

func TestExitIsObservedAtOnce(t *testing.T) {
	for _, noStream := range []bool{false, true} {
		t.Run(fmt.Sprintf("noStream=%v", noStream), func(t *testing.T) {
			inTime(t, func(f *fakeRuntime) {
				f.noStream = noStream
				f.run("u1", "s1")
				f.start("u1", "s1", "main", "c1")
			}, func(t *testing.T, r *rig) {
				r.after(5 * time.Second)
				r.changed()
				r.fake.exit("c1", 0)
				if noStream {
					r.after(PollPeriod)
				} else {
					r.after(0)
				}
				if got := r.state(t, "u1", "main"); got != pod.StateExited {
					t.Errorf("main is %v, want exited", got)
				}
				if got := r.changed(); !slices.Equal(got, []types.UID{"u1"}) {
					t.Errorf("OnChange called for %v, want u1 once", got)
				}
			})
		})
	}
}

func TestIdlePodsNeedNoCalls(t *testing.T) {
	parity.Differs(t, "RT-22", "0061")
	many := func(f *fakeRuntime) {
		for i := range 50 {
			uid, s := fmt.Sprintf("u%d", i), fmt.Sprintf("s%d", i)
			f.run(uid, s)
			f.start(uid, s, "main", "c"+s)
		}
	}
	t.Run("with a stream one audit a minute", func(t *testing.T) {
		inTime(t, many, func(t *testing.T, r *rig) {
			r.after(30 * time.Second)
			r.fake.forgetCalls()
			r.after(10 * time.Minute)
			if n := r.fake.total(); n < 18 || n > 22 {
				t.Errorf("%d calls in ten minutes, want a list of each kind a minute: %v", n, r.fake.calls)
			}
		})
	})
	t.Run("without a stream two lists a second", func(t *testing.T) {
		inTime(t, func(f *fakeRuntime) { f.noStream = true; many(f) }, func(t *testing.T, r *rig) {
			r.after(30 * time.Second)
			r.fake.forgetCalls()
			r.after(10 * time.Second)
			if n := r.fake.total(); n < 18 || n > 22 {
				t.Errorf("%d calls in ten seconds, want two lists a second: %v", n, r.fake.calls)
			}
		})
	})
	t.Run("without a stream a change costs one pod", func(t *testing.T) {
		inTime(t, func(f *fakeRuntime) { f.noStream = true; many(f) }, func(t *testing.T, r *rig) {
			r.after(30 * time.Second)
			r.fake.forgetCalls()
			r.fake.exit("cs7", 1)
			r.after(3 * time.Second)
			if n := r.fake.called("ContainerStatus"); n != 1 {
				t.Errorf("%d statuses read, want the one that changed", n)
			}
			if n := r.fake.called("PodSandboxStatus"); n != 0 {
				t.Errorf("%d sandboxes read, want none", n)
			}
		})
	})
}

func TestAuditFindsMissedEvents(t *testing.T) {
	parity.Differs(t, "RT-23", "0061")
	inTime(t, func(f *fakeRuntime) {
		f.run("u1", "s1")
		f.start("u1", "s1", "main", "c1")
	}, func(t *testing.T, r *rig) {
		r.after(5 * time.Second)
		r.changed()
		r.fake.set(func() { r.fake.silent = true })
		r.fake.remove("c1")
		r.after(DefaultAudit)
		if have, _ := r.Get("u1"); len(have.Containers) != 0 || len(r.changed()) != 1 {
			t.Errorf("a container that was removed without an event is still known: %+v", have)
		}
		r.fake.remove("s1")
		r.after(DefaultAudit)
		if entries, owners := r.kept(); len(r.UIDs()) != 0 || entries != 0 || owners != 0 {
			t.Errorf("left over: %v, %d entries, %d owners", r.UIDs(), entries, owners)
		}
	})
}

func TestBrokenStreamFallsBackToRelists(t *testing.T) {
	inTime(t, func(f *fakeRuntime) {
		f.run("u1", "s1")
		f.start("u1", "s1", "main", "c1")
	}, func(t *testing.T, r *rig) {
		r.after(5 * time.Second)
		r.fake.set(func() { r.fake.down = errors.New("runtime is gone") })
		r.fake.breakStream()
		r.after(3 * time.Second)
		r.fake.exit("c1", 0) // its event is lost
		r.fake.set(func() { r.fake.down = nil })
		r.after(PollPeriod)
		if got := r.state(t, "u1", "main"); got != pod.StateExited {
			t.Errorf("main is %v a second after the runtime's return, want exited", got)
		}
		r.after(15 * time.Second)
		r.fake.forgetCalls()
		r.after(50 * time.Second)
		if n := r.fake.total(); n > 4 {
			t.Errorf("%d calls once the stream was back, want an audit at most: %v", n, r.fake.calls)
		}
	})
}

func TestRemovedSandboxThatIsStillListed(t *testing.T) {
	inTime(t, func(f *fakeRuntime) { f.run("u1", "s1") }, func(t *testing.T, r *rig) {
		r.after(5 * time.Second)
		r.fake.set(func() { r.fake.linger["s1"] = 3 })
		r.fake.remove("s1")
		r.after(2 * time.Second)
		if got := r.UIDs(); len(got) != 0 {
			t.Errorf("UIDs = %v, want none: the event came before the removal", got)
		}
	})
}

func TestRefresh(t *testing.T) {
	parity.ProvesPart(t, 2, "RT-24")
	inTime(t, func(f *fakeRuntime) {
		f.run("u1", "s1")
		f.start("u1", "s1", "main", "c1")
	}, func(t *testing.T, r *rig) {
		r.after(5 * time.Second)
		r.changed()
		r.fake.set(func() { r.fake.silent, r.fake.latency = true, 10*time.Millisecond })
		r.fake.exit("c1", 9)
		r.fake.forgetCalls()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				have, err := r.Refresh(t.Context(), "u1")
				if c, _ := have.Latest("main"); err != nil || c.ExitCode != 9 {
					t.Errorf("Refresh = %+v, %v; want what happened before it", have, err)
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		if n := r.fake.called("ListContainers"); n > 2 {
			t.Errorf("%d reads for callers at the same time, want them shared", n)
		}
		if n := r.fake.called("ContainerStatus"); n != 1 {
			t.Errorf("%d statuses read, want one: an ended container does not change", n)
		}
		if got := r.changed(); !slices.Equal(got, []types.UID{"u1"}) {
			t.Errorf("OnChange called for %v, want u1 once", got)
		}
		if have, err := r.Refresh(t.Context(), "u9"); err != nil || !have.Empty() {
			t.Errorf("Refresh of a pod that is not there = %+v, %v", have, err)
		}
		if entries, _ := r.kept(); entries != 1 {
			t.Errorf("%d entries, want no trace of a pod that is not there", entries)
		}
	})
}

// A pod that was acted on is read alone and at once. One that could not be read is read again, even if no event and no
// list shows a change.
func TestFailedReadOfPodIsRetried(t *testing.T) {
	parity.Proves(t, "RT-25")
	inTime(t, func(f *fakeRuntime) {
		for i := range 3 {
			f.run(fmt.Sprintf("u%d", i), fmt.Sprintf("s%d", i))
			f.start(fmt.Sprintf("u%d", i), fmt.Sprintf("s%d", i), "main", fmt.Sprintf("c%d", i))
		}
	}, func(t *testing.T, r *rig) {
		r.after(5 * time.Second)
		r.changed()
		reads := func() float64 { return scrape.Of(t, r.Cache)["kubelet_pleg_pod_relist_duration_seconds"] }
		before := reads()
		r.fake.set(func() { r.fake.silent = true })
		for i := range 3 {
			r.fake.exit(fmt.Sprintf("c%d", i), 1)
		}
		r.fake.forgetCalls()
		if _, err := r.Refresh(t.Context(), "u1"); err != nil {
			t.Fatal(err)
		}
		if got := r.changed(); !slices.Equal(got, []types.UID{"u1"}) || r.state(t, "u0", "main") != pod.StateRunning ||
			r.state(t, "u2", "main") != pod.StateRunning {
			t.Errorf("after one pod was read OnChange called for %v; u0 %v, u2 %v",
				got, r.state(t, "u0", "main"), r.state(t, "u2", "main"))
		}
		if n := r.fake.called("ContainerStatus"); n != 1 || reads() != before+1 {
			t.Errorf("%d statuses and %v pods were read, want one of each", n, reads()-before)
		}
		r.fake.set(func() { r.fake.down = errors.New("busy") })
		if _, err := r.Refresh(t.Context(), "u2"); err == nil {
			t.Error("a pod was read from a runtime that does not answer")
		}
		r.fake.set(func() { r.fake.down = nil })
		r.after(10 * time.Second) // less than is between two lists
		if got := r.state(t, "u2", "main"); got != pod.StateExited {
			t.Errorf("the pod that could not be read is %v, want it read again", got)
		}
		if got := r.state(t, "u0", "main"); got != pod.StateRunning {
			t.Errorf("a pod that was not requested was read: it is %v", got)
		}
	})
}

func TestConfirm(t *testing.T) {
	inTime(t, nil, func(t *testing.T, r *rig) {
		r.after(5 * time.Second)
		r.fake.run("u1", "s1")
		r.fake.start("u1", "s1", "main", "c1")
		r.fake.start("u1", "s1", "side", "c2")
		r.after(0)
		r.fake.forgetCalls()
		runs := pod.Effect{Sandbox: "s1", Container: "c1", State: pod.StateRunning}
		if err := r.Confirm(t.Context(), "u1", runs); err != nil || r.fake.total() != 0 {
			t.Errorf("%v, calls %v; want none for what events reported", err, r.fake.calls)
		}
		r.changed()

		r.fake.set(func() { r.fake.silent = true })
		r.fake.exit("c1", 9)
		ended := pod.Effect{Sandbox: "s1", Container: "c1", State: pod.StateExited}
		if err := r.Confirm(t.Context(), "u1", ended); err != nil || r.state(t, "u1", "main") != pod.StateExited {
			t.Errorf("confirmed the end: %v, but main is %v", err, r.state(t, "u1", "main"))
		}
		if r.fake.total() != 1 || r.fake.called("ContainerStatus") != 1 {
			t.Errorf("calls %v, want the status of the container alone", r.fake.calls)
		}
		if got := r.changed(); !slices.Equal(got, []types.UID{"u1"}) {
			t.Errorf("OnChange called for %v, want u1 once", got)
		}

		r.fake.remove("c1")
		if err := r.Confirm(t.Context(), "u1", pod.Effect{Sandbox: "s1", Container: "c1", Gone: true}); err != nil {
			t.Error(err)
		}
		r.fake.remove("c2")
		r.fake.remove("s1")
		if err := r.Confirm(t.Context(), "u1", pod.Effect{Sandbox: "s1", Gone: true}); err != nil {
			t.Error(err)
		}
		if have, ok := r.Get("u1"); !ok || !have.Empty() {
			t.Errorf("after the sandbox was removed: %+v", have)
		}

		// A pod of which nothing was known.
		r.fake.run("u2", "s2")
		if err := r.Confirm(t.Context(), "u2", pod.Effect{Sandbox: "s2", State: pod.StateRunning}); err != nil {
			t.Error(err)
		}
		if have, _ := r.Get("u2"); have.Name != "pod-u2" || len(have.Sandboxes) != 1 || !have.Sandboxes[0].Ready {
			t.Errorf("a new pod: %+v", have)
		}
	})
}

func TestHungPodDoesNotDelayOthers(t *testing.T) {
	inTime(t, func(f *fakeRuntime) {
		for i := range 3 * slots {
			uid, s := fmt.Sprintf("u%d", i), fmt.Sprintf("s%d", i)
			f.run(uid, s)
			f.start(uid, s, "main", "c"+s)
			f.hang["c"+s] = i > 0
		}
	}, func(t *testing.T, r *rig) {
		r.after(syncTimeout)
		select {
		case <-r.Synced():
		default:
			t.Fatal("pods that cannot be read hold up the start for ever")
		}
		if _, ok := r.Get("u1"); ok {
			t.Error("a pod that could not be read counts as known")
		}
		r.fake.exit("cs0", 0)
		r.after(0)
		if got := r.state(t, "u0", "main"); got != pod.StateExited {
			t.Errorf("main of the healthy pod is %v, want exited", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Refresh(ctx, "u0"); err != nil {
			t.Errorf("Refresh of the healthy pod: %v", err)
		}
		if _, err := r.Refresh(ctx, "u1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Refresh of a hung pod = %v, want its caller's deadline", err)
		}
		r.after(5 * time.Minute)
		if err := r.Healthy(); err != nil {
			t.Errorf("Healthy = %v: hung pods are not the node's fault", err)
		}
	})
}

func TestHealthy(t *testing.T) {
	inTime(t, func(f *fakeRuntime) { f.down = errors.New("not yet") }, func(t *testing.T, r *rig) {
		if err := r.Healthy(); err == nil || err.Error() != "pleg has yet to be successful" {
			t.Errorf("Healthy before the first list = %v", err)
		}
		set := func(err error) { r.fake.set(func() { r.fake.down = err }) }
		set(nil)
		r.after(2 * time.Second)
		if err := r.Healthy(); err != nil {
			t.Errorf("Healthy after a list = %v", err)
		}
		set(errors.New("gone"))
		r.after(Threshold + DefaultAudit)
		err := r.Healthy()
		if err == nil || !strings.HasPrefix(err.Error(), "pleg was last seen active ") ||
			!strings.HasSuffix(err.Error(), "s ago; threshold is 3m0s") {
			t.Errorf("Healthy long after the last list = %v", err)
		}
	})
}

func TestChurnDoesNotLeak(t *testing.T) {
	inTime(t, nil, func(t *testing.T, r *rig) {
		r.after(5 * time.Second)
		for i := range 300 {
			uid, s := fmt.Sprintf("u%d", i), fmt.Sprintf("s%d", i)
			r.fake.run(uid, s)
			r.fake.start(uid, s, "main", "c"+s)
			r.fake.exit("c"+s, 0)
			r.fake.remove("c" + s)
			r.fake.remove(s)
			r.after(time.Millisecond)
		}
		r.after(time.Minute)
		if entries, owners := r.kept(); entries != 0 || owners != 0 || len(r.UIDs()) != 0 {
			t.Errorf("%d entries and %d owners left", entries, owners)
		}
	})
}

// TestRandomHistories creates and removes pods while events are lost, doubled, late and out of order. The state of a
// container must never go back, and after an audit the cache must show the true state of all pods.
func TestRandomHistories(t *testing.T) {
	for seed := range uint64(60) {
		inTime(t, nil, func(t *testing.T, r *rig) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			r.fake.set(func() {
				r.fake.mangle, r.fake.latency = rand.New(rand.NewPCG(seed,
					2)), time.Duration(seed%4)*20*time.Millisecond
			})
			r.after(5 * time.Second)
			furthest := map[string]pod.State{}
			look := func() {
				for _, uid := range r.UIDs() {
					have, ok := r.Get(uid)
					for _, c := range have.Containers {
						if ok && c.State < furthest[c.ID] {
							t.Errorf("seed %d: container %s went from %v back to %v", seed, c.ID, furthest[c.ID],
								c.State)
						}
						furthest[c.ID] = c.State
					}
				}
			}
			var sandboxes, running, ended []string
			take := func(from *[]string) (string, bool) {
				if len(*from) == 0 {
					return "", false
				}
				i := rnd.IntN(len(*from))
				id := (*from)[i]
				*from = slices.Delete(*from, i, i+1)
				return id, true
			}
			confirm := func(uid types.UID, e pod.Effect) { // as the acting part does, mostly
				if rnd.IntN(3) == 0 {
					return
				}
				if err := r.Confirm(t.Context(), uid, e); err != nil {
					t.Error(err)
				}
				if have, ok := r.Get(uid); !ok || !e.ShownBy(have) {
					t.Errorf("seed %d: confirmed %+v, but known is %+v", seed, e, have)
				}
			}
			owner := map[string]types.UID{}
			for n := range 200 {
				switch rnd.IntN(6) {
				case 0:
					id := fmt.Sprintf("s%d", n)
					owner[id] = types.UID(fmt.Sprintf("u%d", n%7))
					r.fake.run(string(owner[id]), id)
					sandboxes = append(sandboxes, id)
					confirm(owner[id], pod.Effect{Sandbox: id, State: pod.StateRunning})
				case 1, 2:
					if len(sandboxes) > 0 {
						s := sandboxes[rnd.IntN(len(sandboxes))]
						id := fmt.Sprintf("c%d", n)
						owner[id] = owner[s]
						r.fake.start(string(owner[id]), s, "main", id)
						running = append(running, id)
						confirm(owner[id], pod.Effect{Sandbox: s, Container: id, State: pod.StateRunning})
					}
				case 3:
					if id, ok := take(&running); ok {
						r.fake.exit(id, int32(n))
						ended = append(ended, id)
						confirm(owner[id], pod.Effect{Sandbox: r.fake.in[id], Container: id, State: pod.StateExited})
					}
				case 4:
					if id, ok := take(&ended); ok {
						r.fake.remove(id)
						confirm(owner[id], pod.Effect{Sandbox: r.fake.in[id], Container: id, Gone: true})
					}
				case 5:
					if rnd.IntN(3) == 0 {
						if id, ok := take(&sandboxes); ok {
							r.fake.remove(id)
						}
					} else if _, err := r.Refresh(t.Context(), types.UID(fmt.Sprintf("u%d", rnd.IntN(7)))); err != nil {
						t.Error(err)
					}
				}
				r.after(time.Duration(rnd.IntN(200)) * time.Millisecond)
				look()
			}
			r.after(2 * DefaultAudit)
			look()
			known := map[string]pod.State{}
			for _, uid := range r.UIDs() {
				have, _ := r.Get(uid)
				for _, s := range have.Sandboxes {
					known[s.ID] = 0
				}
				for _, c := range have.Containers {
					known[c.ID] = c.State
				}
			}
			want := map[string]pod.State{}
			for _, id := range sandboxes {
				want[id] = 0
			}
			for _, id := range running {
				want[id] = pod.StateRunning
			}
			for _, id := range ended {
				want[id] = pod.StateExited
			}
			if !maps.Equal(known, want) {
				t.Errorf("seed %d: known in the end: %v\nwant: %v", seed, known, want)
			}
		})
	}
}

func TestTerminationMessageIsRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "0badcafe")
	inTime(t, func(f *fakeRuntime) {
		f.run("u1", "s1")
		f.start("u1", "s1", "main", "c1")
		f.containers["c1"].Annotations = map[string]string{
			pod.AnnotationTerminationMessagePath:   "/dev/termination-log",
			pod.AnnotationTerminationMessagePolicy: "File",
		}
		f.containers["c1"].Mounts = []*runtimeapi.Mount{{ContainerPath: "/dev/termination-log", HostPath: file}}
	}, func(t *testing.T, r *rig) {
		r.after(5 * time.Second)
		if err := os.WriteFile(file, []byte("bye"), 0o666); err != nil {
			t.Fatal(err)
		}
		r.fake.exit("c1", 0)
		r.after(0)
		if err := os.WriteFile(file, []byte("later"), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Refresh(t.Context(), "u1"); err != nil {
			t.Fatal(err)
		}
		have, _ := r.Get("u1")
		if c, _ := have.Latest("main"); c.Message != "bye" {
			t.Errorf("message = %q, want what the file held when the container ended", c.Message)
		}
	})
}

func TestTerminationMessage(t *testing.T) {
	parity.Proves(t, "LIFE-92")
	parity.ProvesPart(t, 2, "LIFE-91")
	dir := t.TempDir()
	logFile := filepath.Join(dir, "pods", "p", "main", "0.log")
	if err := os.MkdirAll(filepath.Dir(logFile), 0o755); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for i := range 100 {
		fmt.Fprintf(&b, "2024-01-01T00:00:00Z stdout F line %02d\n", i)
	}
	if err := os.WriteFile(logFile, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	longLog := filepath.Join(filepath.Dir(logFile), "1.log")
	line := strings.Repeat("z", 99)
	lines := strings.Repeat("2024-01-01T00:00:00Z stdout F "+line+"\n", 40)
	if err := os.WriteFile(longLog, []byte(lines), 0o644); err != nil {
		t.Fatal(err)
	}
	write := func(name, content string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		return p
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(write("secret", "secret"), link); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	var tail strings.Builder
	for i := 20; i < 100; i++ {
		fmt.Fprintf(&tail, "line %02d\n", i)
	}
	for _, tc := range []struct {
		name   string
		file   string
		policy v1.TerminationMessagePolicy
		exit   int32
		reason string
		path   string // in the container; empty: /msg
		log    string // empty: 100 short lines
		want   string
		like   string
	}{
		{name: "the file's content", file: write("a", "bye"), policy: v1.TerminationMessageReadFile, want: "bye"},
		{
			name:   "the end of a long file",
			file:   write("b", strings.Repeat("x", 10)+strings.Repeat("y", 4096)),
			policy: v1.TerminationMessageReadFile,
			want:   strings.Repeat("y", 4096),
		},
		{name: "an empty file and the file policy", file: write("c", ""), policy: v1.TerminationMessageReadFile, exit: 1},
		{
			name:   "the log of a failed container without a message",
			file:   write("d", ""),
			policy: v1.TerminationMessageFallbackToLogsOnError,
			exit:   1,
			want:   tail.String(),
		},
		{
			name:   "2048 bytes of a log of long lines",
			file:   write("g", ""),
			policy: v1.TerminationMessageFallbackToLogsOnError,
			exit:   1,
			log:    longLog,
			want:   (line + "\n")[100-48:] + strings.Repeat(line+"\n", 20),
		},
		{
			name:   "no log when there is a message",
			file:   write("e", "oops"),
			policy: v1.TerminationMessageFallbackToLogsOnError,
			exit:   1,
			want:   "oops",
		},
		{
			name:   "no log of a container that succeeded",
			file:   write("f", ""),
			policy: v1.TerminationMessageFallbackToLogsOnError,
		},
		{
			name:   "the log when the file is removed",
			file:   filepath.Join(dir, "none"),
			policy: v1.TerminationMessageFallbackToLogsOnError,
			exit:   2,
			want:   tail.String(),
		},
		{
			name:   "no log of a container that could not run",
			file:   write("h", ""),
			policy: v1.TerminationMessageFallbackToLogsOnError,
			exit:   127,
			reason: "ContainerCannotRun",
		},
		{
			name:   "a path that does not begin at the root",
			file:   write("i", "bye"),
			policy: v1.TerminationMessageReadFile,
			path:   "x/../msg",
			want:   "bye",
		},
		{
			name:   "a removed file has no message",
			file:   filepath.Join(dir, "none"),
			policy: v1.TerminationMessageReadFile,
			exit:   1,
		},
		{
			name:   "a link is not followed",
			file:   link,
			policy: v1.TerminationMessageReadFile,
			like:   "Error on reading termination log ",
		},
		{
			name:   "a pipe is not waited for",
			file:   pipe,
			policy: v1.TerminationMessageReadFile,
			like:   "Error on reading termination log ",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := terminationMessage(t.Context(), pod.Container{
				State:    pod.StateExited,
				ExitCode: tc.exit,
				Reason:   tc.reason,
				LogPath:  cmp.Or(tc.log, logFile),
				Annotations: map[string]string{
					pod.AnnotationTerminationMessagePath:   cmp.Or(tc.path, "/msg"),
					pod.AnnotationTerminationMessagePolicy: string(tc.policy),
				},
				Mounts: []pod.Mount{
					{ContainerPath: "/other", HostPath: "/etc/passwd"},
					{ContainerPath: "/msg", HostPath: tc.file},
				},
			})
			if tc.like != "" && !strings.HasPrefix(got, tc.like) || tc.like == "" && got != tc.want {
				t.Errorf("message = %q, want %q%s", got, tc.want, tc.like)
			}
		})
	}
}

// A listed pod that could not be read is unknown. OnChange is called when it turns out to
// be removed.
func TestRemovalOfUnreadPodIsReported(t *testing.T) {
	inTime(t, func(f *fakeRuntime) {
		f.noStream = true
		f.run("u1", "s1")
		f.sandboxes["s1"].State = 99 // not a defined state
	}, func(t *testing.T, r *rig) {
		r.after(20 * time.Second)
		if _, read := r.Get("u1"); read {
			t.Fatal("a sandbox in no state is taken for read")
		}
		r.changed()
		r.fake.set(func() { delete(r.fake.sandboxes, "s1") })
		r.after(20 * time.Second)
		if have, read := r.Get("u1"); !read || !have.Empty() {
			t.Errorf("it is gone, and is %+v, %v", have, read)
		}
		if got := r.changed(); !slices.Contains(got, "u1") {
			t.Errorf("notified of %v", got)
		}
	})
}
