package cpu

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"keelson/internal/pods/panics"
)

// Running is a running container.
type Running struct {
	UID       types.UID
	Container string
	ID        string
}

// ReconcilerConfig holds the configuration of a Reconciler. All fields are required.
type ReconcilerConfig struct {
	Pool *Manager
	// Running returns the containers that the runtime last reported as running.
	Running func() []Running
	// Update sets the CPUs of a container in the runtime.
	Update func(ctx context.Context, id string, cpus cpuset.CPUSet) error
	Period time.Duration // between full reconciliations, which retry failed updates
	Log    *slog.Logger
}

// maxParallelUpdates bounds concurrent updates, because the runtime also has pods to start.
const maxParallelUpdates = 4

// Reconciler updates the CPUs of running containers. It has no lock: only its own goroutine uses its state.
type Reconciler struct {
	cfg     ReconcilerConfig
	trigger chan struct{}            // capacity 1: one pending trigger is enough
	applied map[string]cpuset.CPUSet // last successful update, by container ID
	// failed are the CPUs of failed updates, by container ID. They are retried in the next period, not by each trigger.
	failed map[string]cpuset.CPUSet
}

// NewReconciler returns a Reconciler. It does nothing before Run.
func NewReconciler(cfg ReconcilerConfig) *Reconciler {
	return &Reconciler{
		cfg:     cfg,
		trigger: make(chan struct{}, 1),
		applied: map[string]cpuset.CPUSet{},
		failed:  map[string]cpuset.CPUSet{},
	}
}

// Trigger requests a reconciliation. It never blocks.
func (m *Reconciler) Trigger() {
	select {
	case m.trigger <- struct{}{}:
	default:
	}
}

// Run reconciles whenever it is triggered, and once per period, until ctx ends. It does not rely on the CPUs with which
// a container was created: they may have changed before the container started.
func (m *Reconciler) Run(ctx context.Context) error {
	tick := time.NewTicker(m.cfg.Period)
	defer tick.Stop()
	for {
		m.reconcile(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			clear(m.failed)
		case <-m.trigger:
		}
	}
}

// update is a pending update of one container.
type update struct {
	Running
	to  cpuset.CPUSet
	err error
}

func (m *Reconciler) reconcile(ctx context.Context) {
	moves := m.pending(m.cfg.Running())
	var group sync.WaitGroup
	slots := make(chan struct{}, maxParallelUpdates)
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
			m.applied[v.ID] = v.to
			delete(m.failed, v.ID)
			continue
		}
		m.failed[v.ID] = v.to
		if ctx.Err() == nil {
			m.cfg.Log.Warn("failed to update CPUs of container",
				"podUID", v.UID, "containerName", v.Container, "containerID", v.ID, "cpuSet", v.to.String(),
				"err", v.err)
		}
	}
}

// pending returns the containers whose CPUs have to be updated. It drops containers that no longer run.
func (m *Reconciler) pending(running []Running) []update {
	var out []update
	applied := make(map[string]cpuset.CPUSet, len(running))
	for _, c := range running {
		to, _ := m.cfg.Pool.CPUs(c.UID, c.Container)
		was, knows := m.applied[c.ID]
		if knows {
			applied[c.ID] = was
		}
		tried, failed := m.failed[c.ID]
		if !to.IsEmpty() && !(knows && was.Equals(to)) && !(failed && tried.Equals(to)) {
			out = append(out, update{Running: c, to: to})
		}
	}
	m.applied = applied
	return out
}
