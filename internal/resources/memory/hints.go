package memory

import (
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"keelson/internal/pods/pod"
	"keelson/internal/resources/numa"
)

// requested returns the memory of each kind that the container needs from NUMA nodes.
func (b *Manager) requested(of *v1.Pod, c *v1.Container) map[v1.ResourceName]uint64 {
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

// podRequested returns the maximum memory that the pod uses at any time.
func (b *Manager) podRequested(of *v1.Pod) map[v1.ResourceName]uint64 {
	most, lasting := map[v1.ResourceName]uint64{}, map[v1.ResourceName]uint64{}
	for kind, c := range pod.Containers(of) {
		for name, size := range b.requested(of, c) {
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

// Hints returns the NUMA affinities with which the container's memory could be allocated.
func (b *Manager) Hints(of *v1.Pod, c *v1.Container) numa.Hints {
	want := b.requested(of, c)
	if len(want) == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if have, ok := b.assigned[string(of.UID)][c.Name]; ok {
		return currentHints(have)
	}
	return hintsForAll(want, b.hintsLocked(of, want))
}

// PodHints returns the NUMA affinities with which the memory of all containers of the pod could be allocated.
func (b *Manager) PodHints(of *v1.Pod) numa.Hints {
	want := b.podRequested(of)
	if len(want) == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range pod.Containers(of) {
		if have, ok := b.assigned[string(of.UID)][c.Name]; ok {
			return currentHints(have)
		}
	}
	return hintsForAll(want, b.hintsLocked(of, want))
}

// currentHints returns the current nodes of a container as its only hint.
func currentHints(have []block) numa.Hints {
	out := numa.Hints{}
	for _, one := range have {
		out[string(one.Type)] = []numa.Hint{{Nodes: numa.NodesOf(one.NUMAAffinity...), Preferred: true}}
	}
	return out
}

// hintsForAll returns the same hints for each kind of memory. Without any hints it returns none, and Allocate fails.
func hintsForAll(want map[v1.ResourceName]uint64, hints []numa.Hint) numa.Hints {
	out := numa.Hints{}
	if len(hints) == 0 {
		return out
	}
	for name := range maps.Keys(want) {
		out[string(name)] = hints
	}
	return out
}

// hintsLocked returns the sets of nodes that can provide all of the memory. Sets of the minimum size on an empty
// machine are preferred.
func (b *Manager) hintsLocked(of *v1.Pod, want map[v1.ResourceName]uint64) []numa.Hint {
	all := b.machine.nodes()
	fewest := all.Count()
	out := []numa.Hint{}
	for nodes := range all.Subsets() {
		could, can := true, b.machine.canServe(nodes)
		for name, size := range want {
			could = could && b.machine.sum(nodes, name, allocatable) >= size
			can = can && b.machine.sum(nodes, name, free)+b.reusableLocked(of.UID, nodes, name) >= size
		}
		if could {
			fewest = min(fewest, nodes.Count())
		}
		if could && can {
			out = append(out, numa.Hint{Nodes: nodes})
		}
	}
	for i := range out {
		out[i].Preferred = out[i].Nodes.Count() == fewest
	}
	return out
}
