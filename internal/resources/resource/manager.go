package resource

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
	"keelson/internal/resources/topology"
)

// Config holds what a Manager is built from. Every field is required.
type Config struct {
	Rules     topology.Rules
	Scope     string
	Providers []Provider
	Log       *slog.Logger
	Now       func() time.Time
}

// Manager asks the providers. It is safe for concurrent use.
type Manager struct {
	cfg     Config
	metrics metrics

	mu sync.Mutex // held over hints and what is reserved by them
}

// New makes a Manager.
func New(cfg Config) *Manager { return &Manager{cfg: cfg, metrics: newMetrics()} }

// Admit reserves what the pod asks for, or says why it cannot be had. What was
// reserved by then stays until the pod is released.
func (m *Manager) Admit(p *v1.Pod) *pod.Refusal {
	began := m.cfg.Now()
	m.metrics.requests.Inc()
	m.mu.Lock()
	err := m.assign(p, m.cfg.Providers, false)
	m.mu.Unlock()
	m.metrics.duration.Observe(float64(m.cfg.Now().Sub(began).Milliseconds()))
	if err == nil {
		return nil
	}
	m.metrics.errors.Inc()
	return refusal(err)
}

// refusal is how a pod is refused for an error.
func refusal(err error) *pod.Refusal {
	var no *pod.Refusal
	if errors.As(err, &no) {
		return no
	}
	return &pod.Refusal{Reason: ReasonUnexpected, Message: fmt.Sprintf("Allocate failed due to %v, which is unexpected", err)}
}

// assign has these reserve what the pod asks for, up to the first thing that cannot be
// had, or all but what cannot.
func (m *Manager) assign(p *v1.Pod, by []Provider, goOn bool) error {
	var errs []error
	var whole topology.Hint
	looks := m.cfg.Rules.Policy != topology.None
	if looks && m.cfg.Scope == ScopePod {
		var err error
		if whole, err = m.place(ScopePod, func(by Provider) topology.Hints { return by.PodHints(p) }); err != nil {
			return err
		}
	}
	for c := range placed(p) {
		at, err := whole, error(nil)
		if looks && m.cfg.Scope != ScopePod {
			at, err = m.place(ScopeContainer, func(by Provider) topology.Hints { return by.Hints(p, c) })
		}
		if err == nil {
			err = assignTo(p, c, by, at, goOn)
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

// assignTo reserves what one container asks for.
func assignTo(p *v1.Pod, c *v1.Container, by []Provider, at topology.Hint, goOn bool) error {
	var errs []error
	for _, one := range by {
		switch err := one.Assign(p, c, at); {
		case err != nil && !goOn:
			return err
		case err != nil:
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// placed are the containers that resources are reserved for, in the order in which
// they start.
func placed(p *v1.Pod) iter.Seq[*v1.Container] {
	return func(yield func(*v1.Container) bool) {
		for kind, c := range pod.Containers(p) {
			if kind != pod.Ephemeral && !yield(c) {
				return
			}
		}
	}
}

// place finds the nodes that suit all providers.
func (m *Manager) place(scope string, ask func(Provider) topology.Hints) (topology.Hint, error) {
	var all []topology.Hints
	for _, by := range m.cfg.Providers {
		all = append(all, ask(by))
	}
	at, ok := m.cfg.Rules.Merge(all)
	if ok {
		return at, nil
	}
	if m.cfg.Rules.Policy == topology.SingleNUMANode {
		m.metrics.askew.WithLabelValues(scope, BoundaryNode).Inc()
	}
	return at, &pod.Refusal{Reason: ReasonTopology, Message: saysTopology}
}

// aligned counts what only one policy promises: that all of it is on one node.
func (m *Manager) aligned(scope string) {
	if m.cfg.Rules.Policy == topology.SingleNUMANode {
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

// Confirm has what was reserved for the pod made good outside. It may block, for
// this pod alone.
func (m *Manager) Confirm(ctx context.Context, p *v1.Pod) *pod.Refusal {
	for _, by := range m.cfg.Providers {
		if c, asks := by.(Confirmer); asks {
			if err := c.Confirm(ctx, p); err != nil {
				return refusal(err)
			}
		}
	}
	return nil
}

// TakeOver reserves what a pod asks for that an earlier agent has admitted; what that
// agent has reserved stays, and who has made it good is not asked for it once more: it
// may not be able to yet. A pod that runs is not ended because there is too little left
// for it by now, nor does it do without the rest for that.
func (m *Manager) TakeOver(p *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var open []Provider
	for _, by := range m.cfg.Providers {
		if c, asks := by.(Confirmer); !asks || !c.Confirmed(p) {
			open = append(open, by)
		}
	}
	if err := m.assign(p, open, true); err != nil {
		m.cfg.Log.Warn("not all that a running pod asks for can be reserved; it goes on with what it has", "pod", p.Namespace+"/"+p.Name, "uid", p.UID, "err", err)
	}
}

// Contribution is what the container is given of all that is reserved for it. It may
// block, for this container alone.
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

// Late returns for which device plugins a pod that was admitted has to wait before its containers start.
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

// Health tells how well it is what the pod's regular containers have; of others
// nobody asks.
func (m *Manager) Health(p *v1.Pod) map[string][]v1.ResourceStatus {
	var all map[string][]v1.ResourceStatus
	for _, by := range m.cfg.Providers {
		t, tells := by.(Teller)
		if !tells {
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

// Release gives back all that the pod has.
func (m *Manager) Release(uid types.UID) {
	for _, by := range m.cfg.Providers {
		by.Release(uid)
	}
}

// Prune releases pods that nobody knows: they were gone before this agent came.
func (m *Manager) Prune(knows func(types.UID) bool) {
	for _, by := range m.cfg.Providers {
		for _, uid := range by.Holders() {
			if !knows(uid) {
				by.Release(uid)
			}
		}
	}
}
