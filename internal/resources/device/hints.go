package device

import (
	"maps"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/resources/numa"
)

// Hints implements topology.Provider.
func (p *Manager) Hints(po *v1.Pod, c *v1.Container) numa.Hints {
	p.mu.Lock()
	defer p.mu.Unlock()
	hints := numa.Hints{}
	for name, count := range p.requestedLocked(c) {
		var held []string
		if h := p.allocationLocked(po.UID, c.Name, name); h != nil {
			held = h.ids
		}
		p.hintLocked(hints, name, count, held, p.reusableLocked(po, c, name))
	}
	return hints
}

// PodHints implements topology.Provider. Init containers run one after another, and sidecars beside all later
// containers.
func (p *Manager) PodHints(po *v1.Pod) numa.Hints {
	p.mu.Lock()
	defer p.mu.Unlock()
	together, beside, most := map[string]int{}, map[string]int{}, map[string]int{}
	held := map[string][]string{}
	for kind, c := range pod.Containers(po) {
		for name, count := range p.requestedLocked(c) {
			switch kind {
			case pod.Init:
				most[name] = max(most[name], beside[name]+count)
			case pod.Sidecar:
				beside[name] += count
				most[name] = max(most[name], beside[name])
				together[name] += count
			case pod.Regular:
				together[name] += count
			}
			if h := p.allocationLocked(po.UID, c.Name, name); h != nil {
				held[name] = append(held[name], h.ids...)
			}
		}
	}
	hints := numa.Hints{}
	for name := range maps.Keys(merge(together, most)) {
		p.hintLocked(hints, name, max(together[name], most[name]), held[name], nil)
	}
	return hints
}

func merge(a, b map[string]int) map[string]int {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// hintLocked adds the NUMA affinities with which count devices of a resource could be allocated. Allocated devices keep
// their affinity. A resource without known NUMA nodes has no affinity.
func (p *Manager) hintLocked(hints numa.Hints, name string, count int, held []string, reuse map[string]Device) {
	r := p.resources[name]
	if r == nil {
		return // Allocate returns the error
	}
	placed := false
	for _, d := range r.devices {
		placed = placed || len(d.Nodes) > 0
	}
	if !placed {
		return
	}
	from := p.freeLocked(name)
	if len(held) > 0 {
		from, reuse = map[string]Device{}, nil
		for _, id := range held {
			from[id] = r.devices[id]
		}
		count = min(count, len(from))
	}
	maps.Copy(from, reuse)
	hints[name] = []numa.Hint{}
	if len(from) < count {
		return
	}
	least := 0 // minimum number of nodes if all devices were free
	for nodes := range p.cfg.Nodes.Subsets() {
		if within(r.devices, nodes) >= count && (least == 0 || nodes.Count() < least) {
			least = nodes.Count()
		}
		if within(from, nodes) >= count {
			hints[name] = append(hints[name], numa.Hint{Nodes: nodes})
		}
	}
	for i := range hints[name] {
		hints[name][i].Preferred = hints[name][i].Nodes.Count() == least
	}
}

// within returns the number of devices on any of the nodes.
func within(devices map[string]Device, nodes numa.Nodes) (n int) {
	for _, d := range devices {
		if numa.NodesOf(d.Nodes...)&nodes != 0 {
			n++
		}
	}
	return n
}
