package topology

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/internal/resources/numa"
)

// Config holds the configuration of a Manager. All fields are required.
type Config struct {
	Rules     Rules
	Scope     string
	Providers []Provider
	Log       *slog.Logger
	Now       func() time.Time
}

// Manager calls the providers. It is safe for concurrent use.
type Manager struct {
	cfg     Config
	metrics metrics

	mu sync.Mutex // held from the hints to the allocations that follow them
}

// New returns a Manager.
func New(cfg Config) *Manager { return &Manager{cfg: cfg, metrics: newMetrics()} }

// Admit allocates the resources of the pod, or rejects it. What was allocated before a rejection is held until the pod
// is released.
func (m *Manager) Admit(p *v1.Pod) *pod.Rejection {
	began := m.cfg.Now()
	m.metrics.requests.Inc()
	m.mu.Lock()
	err := m.allocate(p, m.cfg.Providers, false)
	m.mu.Unlock()
	m.metrics.duration.Observe(float64(m.cfg.Now().Sub(began).Milliseconds()))
	if err == nil {
		return nil
	}
	m.metrics.errors.Inc()
	return rejection(err)
}

// rejection converts an error of a provider.
func rejection(err error) *pod.Rejection {
	var no *pod.Rejection
	if errors.As(err, &no) {
		return no
	}
	return &pod.Rejection{
		Reason:  ReasonUnexpected,
		Message: fmt.Sprintf("Allocate failed due to %v, which is unexpected", err),
	}
}

// allocate allocates the resources of the pod's containers from the given providers. It stops at the first error, or
// with goOn allocates all it can.
func (m *Manager) allocate(p *v1.Pod, by []Provider, goOn bool) error {
	var errs []error
	var whole numa.Hint
	looks := m.cfg.Rules.Policy != None
	if looks && m.cfg.Scope == ScopePod {
		var err error
		if whole, err = m.mergeHints(ScopePod, func(by Provider) numa.Hints { return by.PodHints(p) }); err != nil {
			return err
		}
	}
	for c := range containersOf(p) {
		at, err := whole, error(nil)
		if looks && m.cfg.Scope != ScopePod {
			at, err = m.mergeHints(ScopeContainer, func(by Provider) numa.Hints { return by.Hints(p, c) })
		}
		if err == nil {
			err = allocateContainer(p, c, by, at, goOn)
		}
		switch {
		case err != nil && !goOn:
			return err
		case err != nil:
			errs = append(errs, err)
		case looks && m.cfg.Scope != ScopePod:
			m.aligned(ScopeContainer)
		}
	}
	if looks && m.cfg.Scope == ScopePod && len(errs) == 0 {
		m.aligned(ScopePod)
	}
	return errors.Join(errs...)
}

// allocateContainer allocates the resources of one container.
func allocateContainer(p *v1.Pod, c *v1.Container, by []Provider, at numa.Hint, goOn bool) error {
	var errs []error
	for _, one := range by {
		switch err := one.Allocate(p, c, at); {
		case err != nil && !goOn:
			return err
		case err != nil:
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// containersOf yields the containers that resources are allocated to, in the order in which they start.
func containersOf(p *v1.Pod) iter.Seq[*v1.Container] {
	return func(yield func(*v1.Container) bool) {
		for kind, c := range pod.Containers(p) {
			if kind != pod.Ephemeral && !yield(c) {
				return
			}
		}
	}
}

// mergeHints merges the hints of all providers.
func (m *Manager) mergeHints(scope string, ask func(Provider) numa.Hints) (numa.Hint, error) {
	var all []numa.Hints
	for _, by := range m.cfg.Providers {
		all = append(all, ask(by))
	}
	at, ok := m.cfg.Rules.Merge(all)
	if ok {
		return at, nil
	}
	if m.cfg.Rules.Policy == SingleNUMANode {
		m.metrics.unaligned.WithLabelValues(scope, BoundaryNode).Inc()
	}
	return at, &pod.Rejection{Reason: ReasonTopology, Message: messageTopology}
}

// aligned counts a successful alignment to a NUMA node, which only the policy single-numa-node guarantees.
func (m *Manager) aligned(scope string) {
	if m.cfg.Rules.Policy == SingleNUMANode {
		m.metrics.aligned.WithLabelValues(scope, BoundaryNode).Inc()
	}
}

// Confirmed reports whether Confirm has nothing to do for the pod.
func (m *Manager) Confirmed(p *v1.Pod) bool {
	for _, by := range m.cfg.Providers {
		if c, asks := by.(Confirmer); asks && !c.Confirmed(p) {
			return false
		}
	}
	return true
}

// Confirm has the providers complete the pod's allocations outside of the agent. It may block, but only for this pod.
func (m *Manager) Confirm(ctx context.Context, p *v1.Pod) *pod.Rejection {
	for _, by := range m.cfg.Providers {
		if c, asks := by.(Confirmer); asks {
			if err := c.Confirm(ctx, p); err != nil {
				return rejection(err)
			}
		}
	}
	return nil
}

// Adopt allocates the resources of a pod that an earlier agent has admitted. Existing allocations are kept, and
// providers that have confirmed the pod are not called, because they may not be able to allocate yet. The pod keeps
// running if something cannot be allocated, and still gets the rest.
func (m *Manager) Adopt(p *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var open []Provider
	for _, by := range m.cfg.Providers {
		if c, asks := by.(Confirmer); !asks || !c.Confirmed(p) {
			open = append(open, by)
		}
	}
	if err := m.allocate(p, open, true); err != nil {
		m.cfg.Log.Warn("failed to allocate some resources of running pod",
			"pod", p.Namespace+"/"+p.Name, "podUID", p.UID, "err", err)
	}
}

// Contribution returns what the providers contribute to the container. It may block, but only for this container.
func (m *Manager) Contribution(ctx context.Context, p *v1.Pod, c *v1.Container) (pod.Contribution, error) {
	var all pod.Contribution
	for _, by := range m.cfg.Providers {
		one, err := by.Contribute(ctx, p, c)
		if err != nil {
			return pod.Contribution{}, err
		}
		all = all.With(one)
	}
	return all, nil
}

// Late returns the device plugins that an admitted pod has to wait for before its containers start.
func (m *Manager) Late(p *v1.Pod) pod.Late {
	for _, by := range m.cfg.Providers {
		if a, awaits := by.(Awaiter); awaits {
			if late := a.LateForRunning(p); late.Waits() {
				return late
			}
		}
	}
	return pod.Late{}
}

// Health returns the health of the resources of the pod's regular containers, the only ones for which it is published.
func (m *Manager) Health(p *v1.Pod) map[string][]v1.ResourceStatus {
	var all map[string][]v1.ResourceStatus
	for _, by := range m.cfg.Providers {
		t, ok := by.(HealthReporter)
		if !ok {
			continue
		}
		for i := range p.Spec.Containers {
			name := p.Spec.Containers[i].Name
			if list := t.ResourceHealth(p.UID, name); len(list) > 0 {
				if all == nil {
					all = map[string][]v1.ResourceStatus{}
				}
				all[name] = append(all[name], list...)
			}
		}
	}
	return all
}

// Release releases all resources of the pod.
func (m *Manager) Release(uid types.UID) {
	for _, by := range m.cfg.Providers {
		by.Release(uid)
	}
}

// Prune releases the resources of pods that no longer exist: they were removed before this agent started.
func (m *Manager) Prune(knows func(types.UID) bool) {
	for _, by := range m.cfg.Providers {
		for _, uid := range by.Holders() {
			if !knows(uid) {
				by.Release(uid)
			}
		}
	}
}
