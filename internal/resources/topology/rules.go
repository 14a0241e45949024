package topology

import (
	"errors"
	"fmt"
	"slices"

	"keelson/internal/host/machine"
	"keelson/internal/resources/numa"
)

// RulesOf returns the rules of a policy with its options, for a machine. It fails if the policy cannot serve the
// machine.
func RulesOf(policy Policy, given map[string]string, layout machine.Layout) (Rules, error) {
	rules := Rules{Policy: policy}
	if policy == None {
		return rules, nil
	}
	options, err := ParseOptions(given)
	if err != nil {
		return rules, err
	}
	unknown := func(n machine.Node) bool { return len(n.Distances) == 0 }
	if options.PreferClosest && slices.ContainsFunc(layout.Nodes, unknown) {
		return rules, errors.New("cannot discover NUMA topology: error getting NUMA distances from cadvisor")
	}
	if n := len(layout.Nodes); n > options.MaxNodes {
		return rules, fmt.Errorf("unsupported on machines with more than %d NUMA Nodes", options.MaxNodes)
	}
	distance := map[[2]int]int{}
	for _, from := range layout.Nodes {
		rules.Nodes |= numa.NodesOf(from.ID)
		for i, to := range layout.Nodes {
			if i < len(from.Distances) {
				distance[[2]int{from.ID, to.ID}] = from.Distances[i]
			}
		}
	}
	if options.PreferClosest {
		rules.Distance = func(a, b int) int { return distance[[2]int{a, b}] }
	}
	return rules, nil
}
