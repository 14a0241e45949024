package cpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/cpuset"

	"keelson/test/kit/parity"
)

// reported records the CPUs to which containers were updated.
type reported struct {
	mu     sync.Mutex
	logged []string
	fails  map[string]error
}

func (n *reported) update(_ context.Context, id string, cpus cpuset.CPUSet) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.logged = append(n.logged, id+"="+cpus.String())
	return n.fails[id]
}

func (n *reported) take() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	slices.Sort(n.logged)
	out := strings.Join(n.logged, " ")
	n.logged = nil
	return out
}

func TestReconcileUpdatesContainers(t *testing.T) {
	parity.Proves(t, "RES-31")
	synctest.Test(t, func(t *testing.T) {
		s, n := newStage(t, twoSockets, nil), &reported{fails: map[string]error{}}
		var running []Running
		m := NewReconciler(ReconcilerConfig{
			Pool:    s.Manager,
			Running: func() []Running { return running },
			Update:  n.update,
			Period:  10 * time.Second,
			Log:     s.cfg.Log,
		})
		s.Manager.cfg.OnChange = m.Trigger
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error)
		go func() { ended <- m.Run(ctx) }()
		check := func(what, want string) {
			t.Helper()
			synctest.Wait()
			if got := n.take(); got != want {
				t.Errorf("%s: reported %q, want %q", what, got, want)
			}
		}
		check("nothing runs", "")
		running = []Running{{"old", "c0", "1"}, {"other", "c0", "2"}}
		m.Trigger()
		check("two run", "1=0-15 2=0-15")
		m.Trigger()
		check("nothing has changed", "")
		if err := s.place(whole("new", "2")); err != nil {
			t.Fatal(err)
		}
		check("two CPUs are exclusive", "1=0,2-8,10-15 2=0,2-8,10-15")
		running = append(running, Running{"new", "c0", "3"})
		m.Trigger()
		check("it runs", "3=1,9")
		n.fails["1"] = errors.New("busy")
		running = running[:2]
		s.Release("new")
		check("it has ended", "1=0-15 2=0-15")
		m.Trigger()
		check("one could not be updated, and something else happens", "")
		time.Sleep(10 * time.Second)
		check("one could not be updated", "1=0-15")
		delete(n.fails, "1")
		time.Sleep(10 * time.Second)
		check("it still could not", "1=0-15")
		time.Sleep(time.Minute)
		check("now it was", "")
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestReconcileParallelism checks that the number of concurrent updates is bounded, so that the runtime can also start
// pods.
func TestReconcileParallelism(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, twoSockets, nil)
		var running []Running
		for i := range 20 {
			running = append(running, Running{"u", fmt.Sprint(i), fmt.Sprint(i)})
		}
		var mu sync.Mutex
		now, most := 0, 0
		update := func(context.Context, string, cpuset.CPUSet) error {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			now--
			return nil
		}
		m := NewReconciler(ReconcilerConfig{
			Pool:    s.Manager,
			Running: func() []Running { return running },
			Update:  update,
			Period:  time.Minute,
			Log:     s.cfg.Log,
		})
		m.reconcile(t.Context())
		if most != maxParallelUpdates || len(m.applied) != 20 {
			t.Errorf("%d at once, %d updated", most, len(m.applied))
		}
	})
}
