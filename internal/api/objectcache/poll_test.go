package objectcache

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"keelson/test/kit/await"
)

// polling runs a store that watches nothing; an object is read again after period.
func polling(t *testing.T, f *fakeAPI, how Detection, period *atomic.Int64) (*Store, chan change) {
	t.Helper()
	changes := make(chan change, 100)
	s := New(Config{
		Client: f.client(),
		Log:    slog.New(slog.DiscardHandler),
		Detect: how,
		Period: func() time.Duration { return time.Duration(period.Load()) },
		OnChange: func(pods []types.UID, kind Kind, ns, name string) {
			slices.Sort(pods)
			changes <- change{pods, Ref{kind, ns, name}}
		},
	})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	await.True(t, "the store runs", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.ctx != nil })
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	return s, changes
}

func every(d time.Duration) *atomic.Int64 {
	n := new(atomic.Int64)
	n.Store(int64(d))
	return n
}

func TestPoll(t *testing.T) {
	for _, how := range []Detection{Get, Cache} {
		t.Run(string(how), func(t *testing.T) {
			f := newFakeAPI(t)
			f.put(cm("a", "m", "one"))
			s, changes := polling(t, f, how, every(20*time.Millisecond))
			s.Register(podWith("p1", "a", "m"))
			s.Register(podWith("p2", "a", "m"))
			if got, err := s.ConfigMap(patient(t), "a", "m"); err != nil || got.Data["k"] != "one" {
				t.Fatalf("ConfigMap = %v, %v, want one", got, err)
			}
			f.put(cm("a", "m", "two"))
			if c := next(t, changes); !slices.Equal(c.pods, []types.UID{"p1", "p2"}) || c.ref.Name != "m" {
				t.Errorf("change = %v, want p1 and p2 notified of m", c)
			}
			f.remove(cm("a", "m", ""))
			next(t, changes)
			if _, err := s.ConfigMap(patient(t), "a", "m"); !apierrors.IsNotFound(err) {
				t.Errorf("err = %v, want not found", err)
			}
			f.put(cm("a", "m", "three"))
			next(t, changes)
			if n := f.count("watch"); n != 0 {
				t.Errorf("%d watches", n)
			}
			s.Unregister("p1")
			s.Unregister("p2")
			read := f.count("get") + 1 // one may be on its way
			time.Sleep(100 * time.Millisecond)
			if n := f.count("get"); n > read {
				t.Errorf("%d reads after the last pod went", n-read)
			}
		})
	}
}

// Between two periodic reads, a reader gets the current state with Get. With Cache it gets the last known state, unless
// a pod was registered since.
func TestGetAndCache(t *testing.T) {
	for how, want := range map[Detection]struct{ again, later string }{Get: {"two", "three"}, Cache: {"one", "three"}} {
		t.Run(string(how), func(t *testing.T) {
			f := newFakeAPI(t)
			f.put(cm("a", "m", "one"))
			s, _ := polling(t, f, how, every(time.Hour))
			s.Register(podWith("p1", "a", "m"))
			read := func(want string) {
				t.Helper()
				if got, err := s.ConfigMap(patient(t), "a", "m"); err != nil || got.Data["k"] != want {
					t.Errorf("ConfigMap = %v, %v, want %s", got, err, want)
				}
			}
			read("one")
			// The first periodic read is complete, so that only readers send requests from now on.
			await.True(t, "the first round", func() bool {
				return f.count("get") == map[Detection]int{
					Get:   2,
					Cache: 1,
				}[how]
			})
			f.put(cm("a", "m", "two"))
			read(want.again)
			f.put(cm("a", "m", "three"))
			s.Register(podWith("p2", "a", "m"))
			read(want.later)
			before := f.count("get")
			read("three")
			if n := f.count("get") - before; n != map[Detection]int{Get: 1, Cache: 0}[how] {
				t.Errorf("%d reads for one reader", n)
			}
			f.Close() // the server is unavailable
			got, err := s.ConfigMap(patient(t), "a", "m")
			if how == Get && err == nil || how == Cache && (err != nil || got.Data["k"] != "three") {
				t.Errorf("without a server: %v, %v", got, err)
			}
		})
	}
}
