package device

import (
	"cmp"
	"slices"

	"keelson/internal/resources/topology"
)

// choice is what devices are chosen by.
type choice struct {
	free  map[string]Device // well, and nobody's
	reuse map[string]Device // well, and of containers of the pod that have ended by then
	near  topology.Nodes    // where they should be; empty: anywhere
	count int
	// liked are those that the plugin would have, the best first; none: it has not
	// been asked, or it has no say.
	liked []string
}

// choose takes devices: those that the pod has already, then those at the wanted
// nodes, then those at others, then those that are nowhere in particular. Among equals
// the plugin has a say. There are fewer than asked for if there are no more.
func choose(in choice) []string {
	var out []string
	for _, ids := range [][]string{sorted(in.reuse, in.liked), in.at(nearby), in.at(elsewhere), in.at(nowhere)} {
		out = append(out, ids[:min(len(ids), in.count-len(out))]...)
	}
	slices.Sort(out)
	return out
}

// site is where a device is as seen from the wanted nodes.
type site int

const (
	nearby site = iota
	elsewhere
	nowhere
)

func (in choice) site(d Device) site {
	switch at := topology.NodesOf(d.Nodes...); {
	case in.near == 0:
		return nearby
	case at == 0:
		return nowhere
	case at&in.near != 0:
		return nearby
	}
	return elsewhere
}

// at are the free devices of one site, in the order in which they are taken.
func (in choice) at(at site) []string {
	these := map[string]Device{}
	for id, d := range in.free {
		if in.site(d) == at {
			these[id] = d
		}
	}
	return sorted(these, in.liked)
}

// candidates are the devices that a plugin may choose from: those that choose would
// take, and all that are as good as the last of them.
func candidates(in choice) (available, must []string) {
	must = sorted(in.reuse, nil)
	must = must[:min(len(must), in.count)]
	available = slices.Clone(must)
	for at := nearby; at <= nowhere && len(available) < in.count; at++ {
		available = append(available, in.at(at)...)
	}
	return available, must
}

// sorted are the IDs of devices, those that are liked first.
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
