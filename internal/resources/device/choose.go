package device

import (
	"cmp"
	"slices"

	"keelson/internal/resources/numa"
)

// choice is the input of the selection of devices.
type choice struct {
	free  map[string]Device // healthy and not allocated
	reuse map[string]Device // healthy, and of init containers of the pod that have terminated by then
	near  numa.Nodes        // preferred NUMA nodes; empty: any
	count int
	// preferred are the devices that the plugin prefers, best first. It is empty if the plugin was not asked.
	preferred []string
}

// choose selects devices: reusable ones first, then those on the preferred nodes, on other nodes, and without a known
// node. Among equals those that the plugin prefers come first. It returns fewer than requested if there are not enough.
func choose(in choice) []string {
	var out []string
	for _, ids := range [][]string{sorted(in.reuse, in.preferred), in.at(nearby), in.at(elsewhere), in.at(nowhere)} {
		out = append(out, ids[:min(len(ids), in.count-len(out))]...)
	}
	slices.Sort(out)
	return out
}

// site is the location of a device relative to the preferred nodes.
type site int

const (
	nearby site = iota
	elsewhere
	nowhere
)

func (in choice) site(d Device) site {
	switch at := numa.NodesOf(d.Nodes...); {
	case in.near == 0:
		return nearby
	case at == 0:
		return nowhere
	case at&in.near != 0:
		return nearby
	}
	return elsewhere
}

// at returns the free devices of one site, in the order in which they are selected.
func (in choice) at(at site) []string {
	these := map[string]Device{}
	for id, d := range in.free {
		if in.site(d) == at {
			these[id] = d
		}
	}
	return sorted(these, in.preferred)
}

// candidates returns the devices from which a plugin may choose: those that choose would select, and all that are as
// good as the last of them.
func candidates(in choice) (available, must []string) {
	must = sorted(in.reuse, nil)
	must = must[:min(len(must), in.count)]
	available = slices.Clone(must)
	for at := nearby; at <= nowhere && len(available) < in.count; at++ {
		available = append(available, in.at(at)...)
	}
	return available, must
}

// sorted returns the IDs of the devices, preferred ones first.
func sorted(devices map[string]Device, liked []string) []string {
	rank := make(map[string]int, len(liked))
	for i, id := range liked {
		rank[id] = len(liked) - i
	}
	out := make([]string, 0, len(devices))
	for id := range devices {
		out = append(out, id)
	}
	slices.SortFunc(out, func(a, b string) int {
		if by := cmp.Compare(rank[b], rank[a]); by != 0 {
			return by
		}
		return cmp.Compare(a, b)
	})
	return out
}
