package app

import (
	"context"
	"maps"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/resources/machine"
	"keelson/internal/resources/memory"
)

// buildMemory builds who keeps containers to the memory of NUMA nodes.
func (a *agent) buildMemory(ctx context.Context, layout machine.Layout) error {
	k := &a.cfg.Kubelet
	kept := map[int]v1.ResourceList{}
	for _, m := range k.ReservedMemory {
		if kept[int(m.NumaNode)] == nil {
			kept[int(m.NumaNode)] = v1.ResourceList{}
		}
		for name, q := range m.Limits {
			sum := kept[int(m.NumaNode)][name]
			sum.Add(q)
			kept[int(m.NumaNode)][name] = sum
		}
	}
	var err error
	a.memory, err = memory.New(memory.Config{Dir: a.cfg.Flags.RootDir, Policy: k.MemoryManagerPolicy, Nodes: layout.Nodes, PageSizes: a.machine.PageSizes(),
		Kept: kept, Whole: a.keptFromPods(), Running: func() ([]memory.Kept, error) { return a.keptToMemory(ctx) }, Unusable: a.unusable, Log: a.log})
	return err
}

// keptFromPods is what the node as a whole keeps: for the system, and so that nothing
// has to be evicted.
func (a *agent) keptFromPods() v1.ResourceList {
	sum := maps.Clone(a.reserved)
	for name, q := range a.keptFromEviction(a.node.Capacity()) {
		all := sum[name]
		all.Add(q)
		sum[name] = all
	}
	return sum
}
