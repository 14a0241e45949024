package app

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"keelson/internal/config/settings"
	"keelson/internal/pods/admission"
	"keelson/internal/pods/allocation"
	"keelson/internal/pods/podsync/judge"
	"keelson/internal/runtime/container"
)

// newAllocation creates the ledger, which admits pods and keeps what is allocated to them.
func newAllocation(
	g *ground, h *host, s *apiserver, n *nodes, m *managers, o judge.Occupancy, runner *container.Runner,
) *allocation.Ledger {
	j := judge.Judge{
		Rules:      admissionRules(g, h, n, m),
		Conditions: g.conditions,
		Node:       judgedNode{n},
		Devices:    m.devices,
		Log:        g.log,
	}
	if s.client != nil {
		j.GetNode = func(ctx context.Context) (*v1.Node, error) { return s.client.Nodes.Get(ctx, g.cfg.NodeName) }
	}
	rules := settings.Allocation(g.cfg)
	rules.MaySwap = runner.MaySwap
	l := allocation.New(allocation.Config{
		Dir:                  g.cfg.Flags.RootDir,
		Judge:                j.Admit,
		SecondLook:           j.SecondLook,
		MakeRoom:             j.MakeRoom,
		Release:              m.topology.Release,
		TakeOver:             o.TakeOver,
		Arrivals:             o.Arrivals,
		RunningWithoutSource: o.RunningWithoutSource,
		Vacate:               o.Vacate,
		Rules:                rules,
		Events:               s.events,
		OnChange:             g.workers.Wake,
		Log:                  g.log,
		Now:                  time.Now,
	})
	g.metrics.MustRegister(l)
	return l
}

// admissionRules are the settings of admission that are the same for all pods.
func admissionRules(g *ground, h *host, n *nodes, m *managers) admission.Rules {
	rules := settings.Admission(g.cfg)
	rules.Version, rules.AppArmor, rules.Managers = n.features.Version, admission.AppArmorHost(), m.topology.Admit
	kernel, err := utilversion.ParseGeneric(h.machine.Kernel)
	if err != nil {
		g.log.Warn("failed to parse kernel version, sysctls that need a minimum version count as unsafe",
			"release", h.machine.Kernel, "err", err)
	} else {
		rules.Kernel = kernel
	}
	return rules
}

// judgedNode is the node as pods are admitted to it.
type judgedNode struct{ *nodes }

func (n judgedNode) Node() *v1.Node     { return n.nodes.Node.Node() }
func (n judgedNode) Declared() []string { return n.declared() }
