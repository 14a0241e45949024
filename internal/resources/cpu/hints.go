package cpu

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"keelson/internal/pods/pod"
	"keelson/internal/resources/topology"
)

// Hints tells from which NUMA nodes the container could have its CPUs.
func (p *Pool) Hints(of *v1.Pod, c *v1.Container) topology.Hints {
	n := p.wants(of, c)
	if n == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	set, has := p.of(of.UID, c.Name)
	return p.hintsLocked(of, n, set, has)
}

// PodHints tells from which NUMA nodes all containers of the pod could have theirs.
func (p *Pool) PodHints(of *v1.Pod) topology.Hints {
	n := p.wantsTogether(of)
	if n == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	set, has := cpuset.New(), false
	for kind, c := range pod.Containers(of) {
		if one, own := p.of(of.UID, c.Name); own && kind != pod.Ephemeral {
			set, has = set.Union(one), true
		}
	}
	return p.hintsLocked(of, n, set, has)
}

func (p *Pool) hintsLocked(of *v1.Pod, n int, set cpuset.CPUSet, has bool) topology.Hints {
	switch {
	case !has:
		return topology.Hints{resourceName: p.layout.hints(p.freeLocked(), p.reusableLocked(of.UID), n, p.cfg.Options.BySocket)}
	case set.Size() != n:
		return topology.Hints{resourceName: {}} // they were given for another request
	}
	return topology.Hints{resourceName: p.layout.hints(set, cpuset.New(), n, p.cfg.Options.BySocket)}
}

// hints are the sets of NUMA nodes that n CPUs can come from, of those that are free
// and those to be used again, all of which it has to have. The narrowest that the
// machine has room for, were it empty, are preferred.
func (l *layout) hints(free, again cpuset.CPUSet, n int, bySocket bool) []topology.Hint {
	all := topology.NodesOf(l.ids(node)...)
	narrowest := all.Count()
	out := []topology.Hint{}
	must, either := l.numa(again), free.Union(again)
	for nodes := range all.Subsets() {
		if l.within(l.all, nodes).Size() >= n {
			narrowest = min(narrowest, nodes.Count())
		}
		if must.Within(nodes) && l.within(either, nodes).Size() >= n {
			out = append(out, topology.Hint{Nodes: nodes})
		}
	}
	for i := range out {
		h := &out[i]
		h.Preferred = h.Nodes.Count() == narrowest || bySocket && l.onFewestSockets(h.Nodes, narrowest)
	}
	return out
}

// onFewestSockets reports whether nodes are on no more sockets than so many nodes
// have to be.
func (l *layout) onFewestSockets(nodes topology.Nodes, narrowest int) bool {
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
