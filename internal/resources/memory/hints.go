package memory

import (
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"keelson/internal/pods/pod"
	"keelson/internal/resources/topology"
)

// wants are the kinds of memory that the container is to have from NUMA nodes.
func (b *Book) wants(of *v1.Pod, c *v1.Container) map[v1.ResourceName]uint64 {
	if b.cfg.Policy != PolicyStatic || pod.QOS(of) != v1.PodQOSGuaranteed || resourcehelper.IsPodLevelResourcesSet(of) {
		return nil
	}
	out := map[v1.ResourceName]uint64{}
	for name, q := range c.Resources.Requests {
		if name == v1.ResourceMemory || strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			out[name] = uint64(q.Value())
		}
	}
	return out
}

// wantsTogether is what all containers of the pod are to have at the most demanding
// moment of its life.
func (b *Book) wantsTogether(of *v1.Pod) map[v1.ResourceName]uint64 {
	most, lasting := map[v1.ResourceName]uint64{}, map[v1.ResourceName]uint64{}
	for kind, c := range pod.Containers(of) {
		for name, size := range b.wants(of, c) {
			switch kind {
			case pod.Init:
				most[name] = max(most[name], lasting[name]+size)
			case pod.Ephemeral:
			default:
				lasting[name] += size
			}
		}
	}
	for name, size := range lasting {
		most[name] = max(most[name], size)
	}
	return most
}

// Hints tells from which NUMA nodes the container could have its memory.
func (b *Book) Hints(of *v1.Pod, c *v1.Container) topology.Hints {
	want := b.wants(of, c)
	if len(want) == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if have, ok := b.to[string(of.UID)][c.Name]; ok {
		return same(have)
	}
	return forEach(want, b.hintsLocked(of, want))
}

// PodHints tells from which NUMA nodes all containers of the pod could have theirs.
func (b *Book) PodHints(of *v1.Pod) topology.Hints {
	want := b.wantsTogether(of)
	if len(want) == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range pod.Containers(of) {
		if have, ok := b.to[string(of.UID)][c.Name]; ok {
			return same(have)
		}
	}
	return forEach(want, b.hintsLocked(of, want))
}

// same has a container stay where it is.
func same(have []block) topology.Hints {
	out := topology.Hints{}
	for _, one := range have {
		out[string(one.Type)] = []topology.Hint{{Nodes: topology.NodesOf(one.NUMAAffinity...), Preferred: true}}
	}
	return out
}

// forEach says the same of every kind. Where there are no nodes for it, nothing is
// said: it is Assign that refuses.
func forEach(want map[v1.ResourceName]uint64, hints []topology.Hint) topology.Hints {
	out := topology.Hints{}
	if len(hints) == 0 {
		return out
	}
	for name := range maps.Keys(want) {
		out[string(name)] = hints
	}
	return out
}

// hintsLocked are the sets of nodes that can serve all of it. As many nodes as it
// takes on an empty machine are preferred.
func (b *Book) hintsLocked(of *v1.Pod, want map[v1.ResourceName]uint64) []topology.Hint {
	all := b.machine.nodes()
	fewest := all.Count()
	out := []topology.Hint{}
	for nodes := range all.Subsets() {
		could, can := true, b.machine.serves(nodes)
		for name, size := range want {
			could = could && b.machine.sum(nodes, name, allocatable) >= size
			can = can && b.machine.sum(nodes, name, free)+b.reusableLocked(of.UID, nodes, name) >= size
		}
		if could {
			fewest = min(fewest, nodes.Count())
		}
		if could && can {
			out = append(out, topology.Hint{Nodes: nodes})
		}
	}
	for i := range out {
		out[i].Preferred = out[i].Nodes.Count() == fewest
	}
	return out
}
