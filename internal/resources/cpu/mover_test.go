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

// told notes what containers were kept to.
type told struct {
	mu    sync.Mutex
	said  []string
	fails map[string]error
}

func (n *told) update(_ context.Context, id string, cpus cpuset.CPUSet) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.said = append(n.said, id+"="+cpus.String())
	return n.fails[id]
}

func (n *told) take() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	slices.Sort(n.said)
	out := strings.Join(n.said, " ")
	n.said = nil
	return out
}

func TestRunningContainersAreKeptToTheirCPUs(t *testing.T) {
	parity.Proves(t, "RES-31")
	synctest.Test(t, func(t *testing.T) {
		s, n := newStage(t, twoSockets, nil), &told{fails: map[string]error{}}
		var running []Running
		m := NewMover(MoverConfig{Pool: s.Pool, Running: func() []Running { return running }, Update: n.update, Period: 10 * time.Second, Log: s.cfg.Log})
		s.Pool.cfg.OnChange = m.Poke
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error)
		go func() { ended <- m.Run(ctx) }()
		tells := func(what, want string) {
			t.Helper()
			synctest.Wait()
			if got := n.take(); got != want {
				t.Errorf("%s: told %q, want %q", what, got, want)
			}
		}
		tells("nothing runs", "")
		running = []Running{{"old", "c0", "1"}, {"other", "c0", "2"}}
		m.Poke()
		tells("two run", "1=0-15 2=0-15")
		m.Poke()
		tells("nothing has changed", "")
		if err := s.place(whole("new", "2")); err != nil {
			t.Fatal(err)
		}
		tells("two CPUs are somebody's", "1=0,2-8,10-15 2=0,2-8,10-15")
		running = append(running, Running{"new", "c0", "3"})
		m.Poke()
		tells("it runs", "3=1,9")
		n.fails["1"] = errors.New("busy")
		running = running[:2]
		s.Release("new")
		tells("it has ended", "1=0-15 2=0-15")
		m.Poke()
		tells("one could not be told, and something else happens", "")
		time.Sleep(10 * time.Second)
		tells("one could not be told", "1=0-15")
		delete(n.fails, "1")
		time.Sleep(10 * time.Second)
		tells("it still could not", "1=0-15")
		time.Sleep(time.Minute)
		tells("now it was", "")
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestAFewAreToldAtATime leaves the runtime room for pods that start.
func TestAFewAreToldAtATime(t *testing.T) {
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
		m := NewMover(MoverConfig{Pool: s.Pool, Running: func() []Running { return running }, Update: update, Period: time.Minute, Log: s.cfg.Log})
		m.look(t.Context())
		if most != updatesAtOnce || len(m.told) != 20 {
			t.Errorf("%d at once, %d told", most, len(m.told))
		}
	})
}
