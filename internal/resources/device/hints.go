package device

import (
	"maps"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/resources/topology"
)

// Hints implements resource.Provider.
func (p *Pool) Hints(po *v1.Pod, c *v1.Container) topology.Hints {
	p.mu.Lock()
	defer p.mu.Unlock()
	hints := topology.Hints{}
	for name, count := range p.asksLocked(c) {
		var held []string
		if h := p.holdingLocked(po.UID, c.Name, name); h != nil {
			held = h.ids
		}
		p.hintLocked(hints, name, count, held, p.reusableLocked(po, c, name))
	}
	return hints
}

// PodHints implements resource.Provider. Init containers run one after another, and
// sidecars beside all that comes after them.
func (p *Pool) PodHints(po *v1.Pod) topology.Hints {
	p.mu.Lock()
	defer p.mu.Unlock()
	together, beside, most := map[string]int{}, map[string]int{}, map[string]int{}
	held := map[string][]string{}
	for kind, c := range pod.Containers(po) {
		for name, count := range p.asksLocked(c) {
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
			if h := p.holdingLocked(po.UID, c.Name, name); h != nil {
				held[name] = append(held[name], h.ids...)
			}
		}
	}
	hints := topology.Hints{}
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

// hintLocked tells where so many devices of a resource could be had. What is held
// already is where it is; devices of which no place is known have no say.
func (p *Pool) hintLocked(hints topology.Hints, name string, count int, held []string, reuse map[string]Device) {
	r := p.resources[name]
	if r == nil {
		return // Assign says so
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
	hints[name] = []topology.Hint{}
	if len(from) < count {
		return
	}
	least := 0 // nodes that would do if all devices were free
	for nodes := range p.cfg.Nodes.Subsets() {
		if within(r.devices, nodes) >= count && (least == 0 || nodes.Count() < least) {
			least = nodes.Count()
		}
		if within(from, nodes) >= count {
			hints[name] = append(hints[name], topology.Hint{Nodes: nodes})
		}
	}
	for i := range hints[name] {
		hints[name][i].Preferred = hints[name][i].Nodes.Count() == least
	}
}

// within is how many of the devices are at some of the nodes.
func within(devices map[string]Device, nodes topology.Nodes) (n int) {
	for _, d := range devices {
		if topology.NodesOf(d.Nodes...)&nodes != 0 {
			n++
		}
	}
	return n
}
