package cpu

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"keelson/internal/pods/pod"
	"keelson/internal/resources/numa"
)

// Hints returns the NUMA affinities with which the container's CPUs could be allocated.
func (p *Manager) Hints(of *v1.Pod, c *v1.Container) numa.Hints {
	n := p.guaranteedCPUs(of, c)
	if n == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	set, has := p.assignedTo(of.UID, c.Name)
	return p.hintsLocked(of, n, set, has)
}

// PodHints returns the NUMA affinities with which the CPUs of all containers of the pod could be allocated.
func (p *Manager) PodHints(of *v1.Pod) numa.Hints {
	n := p.podGuaranteedCPUs(of)
	if n == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	set, has := cpuset.New(), false
	for kind, c := range pod.Containers(of) {
		if one, own := p.assignedTo(of.UID, c.Name); own && kind != pod.Ephemeral {
			set, has = set.Union(one), true
		}
	}
	return p.hintsLocked(of, n, set, has)
}

func (p *Manager) hintsLocked(of *v1.Pod, n int, set cpuset.CPUSet, has bool) numa.Hints {
	switch {
	case !has:
		return numa.Hints{
			resourceName: p.layout.hints(p.freeLocked(), p.reusableLocked(of.UID), n, p.cfg.Options.BySocket),
		}
	case set.Size() != n:
		return numa.Hints{resourceName: {}} // allocated for another request
	}
	return numa.Hints{resourceName: p.layout.hints(set, cpuset.New(), n, p.cfg.Options.BySocket)}
}

// hints returns the sets of NUMA nodes that can provide n CPUs from the free and the reusable CPUs. Every set contains
// the nodes of all reusable CPUs. The sets of the minimum size on an empty machine are preferred.
func (l *layout) hints(free, again cpuset.CPUSet, n int, bySocket bool) []numa.Hint {
	all := numa.NodesOf(l.ids(node)...)
	narrowest := all.Count()
	out := []numa.Hint{}
	must, either := l.nodesOf(again), free.Union(again)
	for nodes := range all.Subsets() {
		if l.inNodes(l.all, nodes).Size() >= n {
			narrowest = min(narrowest, nodes.Count())
		}
		if must.Within(nodes) && l.inNodes(either, nodes).Size() >= n {
			out = append(out, numa.Hint{Nodes: nodes})
		}
	}
	for i := range out {
		h := &out[i]
		h.Preferred = h.Nodes.Count() == narrowest || bySocket && l.onFewestSockets(h.Nodes, narrowest)
	}
	return out
}

// onFewestSockets reports whether nodes span no more sockets than a set of the given size has to.
func (l *layout) onFewestSockets(nodes numa.Nodes, narrowest int) bool {
	perSocket := len(l.ids(node)) / len(l.ids(socket))
	sockets := map[int]bool{}
	for _, c := range l.cpus {
		if nodes.Has(c.Node) {
			sockets[c.Socket] = true
		}
	}
	if perSocket == 0 {
		return false
	}
	return len(sockets) == (narrowest+perSocket-1)/perSocket
}
