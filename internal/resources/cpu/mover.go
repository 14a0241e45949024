package cpu

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"keelson/internal/node/panics"
)

// Running is a container that runs.
type Running struct {
	UID       types.UID
	Container string
	ID        string
}

// MoverConfig holds what a Mover is built from. Every field is required.
type MoverConfig struct {
	Pool *Pool
	// Running are the containers that the runtime was last seen to run.
	Running func() []Running
	// Update keeps a container to CPUs.
	Update func(ctx context.Context, id string, cpus cpuset.CPUSet) error
	Period time.Duration // of a look at all containers, should an update have failed
	Log    *slog.Logger
}

// updatesAtOnce bounds how many containers are moved side by side: the runtime has
// pods to start, too.
const updatesAtOnce = 4

// Mover keeps running containers to the CPUs that they may be on. It has no lock: its
// own goroutine alone knows what containers were told.
type Mover struct {
	cfg  MoverConfig
	poke chan struct{} // capacity 1: one waiting poke says all there is to say
	told map[string]cpuset.CPUSet
	// failed are the containers that could not be told, and what: they are told again
	// in the next period, not by whatever happens meanwhile.
	failed map[string]cpuset.CPUSet
}

// NewMover makes a Mover. Nothing happens before Run.
func NewMover(cfg MoverConfig) *Mover {
	return &Mover{cfg: cfg, poke: make(chan struct{}, 1), told: map[string]cpuset.CPUSet{}, failed: map[string]cpuset.CPUSet{}}
}

// Poke has all containers looked at. It never blocks.
func (m *Mover) Poke() {
	select {
	case m.poke <- struct{}{}:
	default:
	}
}

// Run looks at the containers when it is poked, and once in a period, until ctx ends.
// What a container was told when it was made does not count: the CPUs may have been
// others by the time it ran.
func (m *Mover) Run(ctx context.Context) error {
	tick := time.NewTicker(m.cfg.Period)
	defer tick.Stop()
	for {
		m.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			clear(m.failed)
		case <-m.poke:
		}
	}
}

// move is one container that has to be told.
type move struct {
	Running
	to  cpuset.CPUSet
	err error
}

func (m *Mover) look(ctx context.Context) {
	moves := m.moves(m.cfg.Running())
	var group sync.WaitGroup
	slots := make(chan struct{}, updatesAtOnce)
	for i := range moves {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			moves[i].err = panics.Try(m.cfg.Log, "CPUs", func() error {
				return m.cfg.Update(ctx, moves[i].ID, moves[i].to)
			})
		})
	}
	group.Wait()
	for _, v := range moves {
		if v.err == nil {
			m.told[v.ID] = v.to
			delete(m.failed, v.ID)
			continue
		}
		m.failed[v.ID] = v.to
		if ctx.Err() == nil {
			m.cfg.Log.Warn("cannot keep a container to its CPUs; it is tried again", "uid", v.UID, "container", v.Container, "cpus", v.to.String(), "err", v.err)
		}
	}
}

// moves are the containers that do not know yet where they may be, and forgets those
// that run no more.
func (m *Mover) moves(running []Running) []move {
	var out []move
	told := make(map[string]cpuset.CPUSet, len(running))
	for _, c := range running {
		to, _ := m.cfg.Pool.Of(c.UID, c.Container)
		was, knows := m.told[c.ID]
		if knows {
			told[c.ID] = was
		}
		tried, failed := m.failed[c.ID]
		if !to.IsEmpty() && !(knows && was.Equals(to)) && !(failed && tried.Equals(to)) {
			out = append(out, move{Running: c, to: to})
		}
	}
	m.told = told
	return out
}
