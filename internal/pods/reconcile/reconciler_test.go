package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"keelson/internal/pods/panics"
)

const (
	first = time.Second
	most  = 10 * time.Second
)

// owner requests attempts for keys, and records when they are made.
type owner struct {
	*Reconciler[string]
	mu     sync.Mutex
	life   func()
	result map[string]error         // of the attempts of a key
	hang   map[string]chan struct{} // an attempt of the key ends when this is closed, or with its context
	next   func(key string, r Result) Next
	began  map[string][]time.Duration // since the start
	ended  map[string][]Result
	panics bool // Begin panics
	stop   func()
}

func start(t *testing.T, jitter float64) *owner {
	o := &owner{
		result: map[string]error{},
		hang:   map[string]chan struct{}{},
		began:  map[string][]time.Duration{},
		ended:  map[string][]Result{},
	}
	o.next = func(_ string, r Result) Next { return Next{Retry: r.Err != nil} }
	o.Reconciler = New(Config[string]{
		Part:    "tests",
		Lock:    &o.mu,
		Begin:   o.begin(time.Now()),
		Backoff: wait.Backoff{Duration: first, Factor: 2, Jitter: jitter, Steps: math.MaxInt32, Cap: most},
		Log:     slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	o.stop = func() {
		cancel()
		o.Wait()
	}
	t.Cleanup(o.stop)
	o.life = func() {
		o.Start(ctx)
		synctest.Wait()
	}
	return o
}

func (o *owner) begin(zero time.Time) func(string) Attempt {
	return func(key string) Attempt {
		if o.panics {
			panic("begin")
		}
		o.began[key] = append(o.began[key], time.Since(zero))
		err, hang := o.result[key], o.hang[key]
		return Attempt{
			Do: func(ctx context.Context) error {
				if hang == nil {
					return err
				}
				select {
				case <-hang:
					return err
				case <-ctx.Done():
					return ctx.Err()
				}
			},
			End: func(r Result) Next {
				o.ended[key] = append(o.ended[key], r)
				return o.next(key, r)
			},
		}
	}
}

// do calls f with the lock held and waits until nothing is left to do now.
func (o *owner) do(f func()) {
	o.mu.Lock()
	f()
	o.mu.Unlock()
	synctest.Wait()
}

func (o *owner) request(key string) { o.do(func() { o.RequestLocked(key) }) }

// expect checks when the attempts of a key have begun.
func (o *owner) expect(t *testing.T, key string, want ...time.Duration) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if got := o.began[key]; !slices.Equal(got, want) {
		t.Errorf("attempts of %s began after %v, want %v", key, got, want)
	}
}

var errFailed = errors.New("failed")

func TestRequestsDuringAttemptAreMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := start(t, 0)
		o.life()
		end := make(chan struct{})
		o.hang["a"] = end
		o.request("a")
		o.request("a")
		o.request("a")
		o.expect(t, "a", 0)
		o.do(func() {
			if !o.RunningLocked("a") || o.RunningLocked("b") || !o.ActiveLocked("a") || o.ActiveLocked("b") {
				t.Error("wrong keys are running")
			}
		})
		time.Sleep(time.Minute)
		o.do(func() { delete(o.hang, "a"); close(end) })
		o.expect(t, "a", 0, time.Minute)
		if !o.ended["a"][0].Again || o.ended["a"][1].Again {
			t.Errorf("results %+v", o.ended["a"])
		}
		o.do(func() {
			if len(o.tasks) != 0 {
				t.Errorf("%d tasks of idle keys", len(o.tasks))
			}
		})
	})
}

func TestFailuresAreRetriedAfterTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := start(t, 0)
		o.life()
		o.result["a"] = errFailed
		o.request("a")
		time.Sleep(40 * time.Second)
		s := time.Second
		o.expect(t, "a", 0, s, 3*s, 7*s, 15*s, 25*s, 35*s)
		if got := o.ended["a"][3].Pause; got != 8*s {
			t.Errorf("fourth pause is %v", got)
		}
		o.do(func() { o.result["a"] = nil })
		time.Sleep(time.Hour) // the attempt after 45 s succeeds
		o.do(func() { o.result["a"] = errFailed })
		o.request("a")
		time.Sleep(2 * s)
		at := time.Hour + 40*s
		o.expect(t, "a", 0, s, 3*s, 7*s, 15*s, 25*s, 35*s, 45*s, at, at+s)
	})
}

func TestRequestEndsBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := start(t, 0)
		o.life()
		o.result["a"] = errFailed
		o.request("a")
		time.Sleep(2500 * time.Millisecond) // in the second pause, of two seconds
		o.do(func() {
			if o.RunningLocked("a") || !o.ActiveLocked("a") {
				t.Error("a key that waits is running, or not active")
			}
		})
		o.request("a")
		time.Sleep(3900 * time.Millisecond)
		s := time.Second
		o.expect(t, "a", 0, s, 2500*time.Millisecond) // the timer of the second pause is gone, and the third is of 4 s
		o.do(func() { o.ResetLocked("a"); o.RequestLocked("a") })
		time.Sleep(1100 * time.Millisecond)
		o.expect(t, "a", 0, s, 2500*time.Millisecond, 6400*time.Millisecond, 7400*time.Millisecond)
	})
}

func TestJitterMakesPausesLongerOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := start(t, 0.5)
		o.life()
		o.result["a"] = errFailed
		o.request("a")
		time.Sleep(10 * time.Minute)
		o.mu.Lock()
		defer o.mu.Unlock()
		want, random := first, false
		for i, r := range o.ended["a"] {
			if r.Pause < want || r.Pause > want+want/2 {
				t.Errorf("pause %d is %v, want %v to %v", i, r.Pause, want, want+want/2)
			}
			random = random || r.Pause != want
			if got := append(o.began["a"], 0)[i+1] - o.began["a"][i]; i+1 < len(o.began["a"]) && got != r.Pause {
				t.Errorf("attempt %d follows after %v, want %v", i+1, got, r.Pause)
			}
			want = min(2*want, most)
		}
		if !random {
			t.Error("no pause has jitter")
		}
	})
}

func TestKeysDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := start(t, 0)
		o.life()
		o.hang["a"] = make(chan struct{})
		o.request("a")
		time.Sleep(time.Second)
		o.request("b")
		o.expect(t, "b", time.Second)
		if len(o.ended["b"]) != 1 || len(o.ended["a"]) != 0 {
			t.Errorf("ended: %v", o.ended)
		}
	})
}

func TestAttemptsRunWithinContextOfStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := start(t, 0)
		o.do(func() {
			o.RequestLocked("early")
			o.ScheduleLocked("scheduled", time.Second)
			o.ScheduleLocked("late", time.Minute)
		})
		time.Sleep(2 * time.Second)
		o.expect(t, "early")
		o.expect(t, "scheduled")
		o.do(func() {
			o.hang["running"] = make(chan struct{})
			o.result["failing"] = errFailed
		})
		o.life()
		o.expect(t, "early", 2*time.Second)
		o.expect(t, "scheduled", 2*time.Second)
		o.request("running")
		o.request("running")
		o.request("failing")
		o.stop() // returns when none is running
		if r := o.ended["running"]; len(r) != 1 || !r[0].Cancelled || !errors.Is(r[0].Err, context.Canceled) {
			t.Errorf("running: %+v", r)
		}
		o.request("early")
		o.do(func() { o.ScheduleLocked("late", time.Second) })
		time.Sleep(time.Hour)
		o.expect(t, "early", 2*time.Second)
		o.expect(t, "running", 2*time.Second)
		o.expect(t, "failing", 2*time.Second)
		o.expect(t, "late")
	})
}

func TestForget(t *testing.T) {
	t.Run("is not tried again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o := start(t, 0)
			o.life()
			o.result["a"] = errFailed
			o.request("a")
			o.do(func() { o.ForgetLocked("a"); o.ForgetLocked("unknown") })
			time.Sleep(time.Hour)
			o.expect(t, "a", 0)
		})
	})
	t.Run("is cancelled, and its result ignored", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o := start(t, 0)
			o.life()
			o.hang["a"] = make(chan struct{})
			o.request("a")
			o.request("a")
			o.do(func() { o.ForgetLocked("a") })
			time.Sleep(time.Hour)
			o.expect(t, "a", 0)
			if len(o.ended["a"]) != 0 || len(o.tasks) != 0 {
				t.Errorf("ended: %v; %d tasks", o.ended, len(o.tasks))
			}
		})
	})
	t.Run("that is requested again waits for the cancelled attempt", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o := start(t, 0)
			o.life()
			end := make(chan struct{})
			stubborn := Attempt{
				Do:  func(context.Context) error { <-end; return nil },
				End: func(Result) Next { return Next{} },
			}
			begin := o.cfg.Begin
			o.cfg.Begin = func(string) Attempt { return stubborn }
			o.request("a")
			o.do(func() {
				o.cfg.Begin = begin
				o.ForgetLocked("a")
				o.RequestLocked("a")
			})
			time.Sleep(time.Second)
			o.expect(t, "a")
			close(end)
			synctest.Wait()
			o.expect(t, "a", time.Second)
		})
	})
	t.Run("can be dropped by its own result", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o := start(t, 0)
			o.life()
			o.next = func(string, Result) Next { return Next{Forget: true, Retry: true} }
			o.request("a")
			time.Sleep(time.Hour)
			o.expect(t, "a", 0)
		})
	})
}

func TestRequestAfterCancelledAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := start(t, 0)
		o.life()
		o.next = func(string, Result) Next { return Next{} }
		o.hang["a"] = make(chan struct{})
		o.request("a")
		time.Sleep(time.Second)
		o.do(func() {
			delete(o.hang, "a")
			o.CancelLocked("a")
			o.RequestLocked("a")
			o.CancelLocked("idle")
		})
		o.expect(t, "a", 0, time.Second)
		if r := o.ended["a"]; !r[0].Cancelled || !r[0].Again || r[1].Cancelled || r[1].Err != nil {
			t.Errorf("results %+v", r)
		}
	})
}

func TestScheduledAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := start(t, 0)
		o.life()
		o.do(func() {
			o.ScheduleLocked("a", time.Second)
			o.ScheduleLocked("a", time.Minute) // in its place
		})
		time.Sleep(time.Hour)
		o.expect(t, "a", time.Minute)
		o.next = func(_ string, r Result) Next { return Next{After: 10 * time.Minute} }
		o.request("a")
		time.Sleep(15 * time.Minute)
		o.expect(t, "a", time.Minute, time.Hour, time.Hour+10*time.Minute)
		o.do(func() { o.ForgetLocked("a") })
		o.next = func(_ string, r Result) Next { return Next{Again: len(o.ended["b"]) < 3} }
		o.request("b")
		at := time.Hour + 15*time.Minute
		o.expect(t, "b", at, at, at)
	})
}

func TestThenIsCalledWithoutLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := start(t, 0)
		o.life()
		called := 0
		o.next = func(string, Result) Next {
			return Next{Then: func() {
				o.mu.Lock()
				defer o.mu.Unlock()
				called++
			}}
		}
		o.request("a")
		if called != 1 {
			t.Errorf("called %d times", called)
		}
	})
}

func TestPanics(t *testing.T) {
	t.Run("an attempt that panics has failed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o := start(t, 0)
			o.life()
			begin := o.cfg.Begin
			o.cfg.Begin = func(key string) Attempt {
				a := begin(key)
				a.Do = func(context.Context) error { panic("attempt") }
				return a
			}
			o.request("a")
			time.Sleep(1500 * time.Millisecond)
			o.expect(t, "a", 0, time.Second)
			var panicked *panics.Error
			if !errors.As(o.ended["a"][0].Err, &panicked) {
				t.Errorf("failed with %v", o.ended["a"][0].Err)
			}
		})
	})
	t.Run("an attempt that panics where it begins has failed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o := start(t, 0)
			o.do(func() { o.panics = true })
			o.request("a")
			o.life() // is not affected
			o.do(func() { o.panics = false })
			o.request("b")
			time.Sleep(1500 * time.Millisecond)
			o.expect(t, "a", time.Second)
			o.expect(t, "b", 0)
		})
	})
	t.Run("an attempt that panics where it begins after a failed one has failed, too", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o := start(t, 0)
			o.life()
			o.result["a"] = errFailed
			o.request("a")
			o.do(func() { o.panics = true })
			time.Sleep(1500 * time.Millisecond)
			o.do(func() { o.panics = false })
			time.Sleep(2 * time.Second)
			o.expect(t, "a", 0, 3*time.Second)
		})
	})
}

// Whatever happens, there is one attempt of a key at a time, and one that began after the last request.
func TestRandomRequests(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			var mu sync.Mutex
			running, wanted, seen := map[int]int{}, map[int]int{}, map[int]int{}
			r := New(Config[int]{
				Part:    "tests",
				Lock:    &mu,
				Backoff: wait.Backoff{Duration: first, Factor: 2, Jitter: 0.1, Steps: math.MaxInt32, Cap: most},
				Log:     slog.New(slog.DiscardHandler),
				Begin: func(key int) Attempt {
					if running[key]++; running[key] > 1 {
						t.Errorf("seed %d: two attempts of a key", seed)
					}
					reads, took := wanted[key], time.Duration(rnd.IntN(3000))*time.Millisecond
					var err error
					if rnd.IntN(2) == 0 {
						err = errFailed
					}
					return Attempt{
						Do: func(context.Context) error {
							time.Sleep(took)
							return err
						},
						End: func(res Result) Next {
							running[key]--
							if err == nil {
								seen[key] = reads
							}
							return Next{Retry: err != nil}
						},
					}
				},
			})
			ctx, cancel := context.WithCancel(context.Background())
			r.Start(ctx)
			for range 100 {
				mu.Lock()
				pause, key, what := time.Duration(rnd.IntN(2000))*time.Millisecond, rnd.IntN(3), rnd.IntN(4)
				mu.Unlock()
				time.Sleep(pause)
				mu.Lock()
				switch what {
				case 0:
					r.CancelLocked(key)
				case 1:
					r.ResetLocked(key)
				default:
					wanted[key]++
					r.RequestLocked(key)
				}
				mu.Unlock()
			}
			time.Sleep(time.Hour)
			mu.Lock()
			for key, want := range wanted {
				if seen[key] != want {
					t.Errorf("seed %d: the last attempt of key %d has seen %d of %d requests", seed, key, seen[key],
						want)
				}
			}
			if len(r.tasks) != 0 {
				t.Errorf("seed %d: %d tasks of idle keys", seed, len(r.tasks))
			}
			mu.Unlock()
			cancel()
			r.Wait()
		})
	}
}
