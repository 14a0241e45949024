package topology

import (
	"testing"

	"keelson/internal/host/machine"
	"keelson/test/kit/parity"
)

// TestClosestNodesUseMachineDistances checks that the option uses the NUMA distances of the machine, and is an error
// on a machine without them.
func TestClosestNodesUseMachineDistances(t *testing.T) {
	parity.ProvesPart(t, 3, "RES-41")
	closest := map[string]string{"prefer-closest-numa-nodes": "true"}
	reported := machine.Layout{Nodes: []machine.Node{
		{ID: 0, Distances: []int{10, 21}},
		{ID: 1, Distances: []int{31, 10}},
	}}
	rules, err := RulesOf(BestEffort, closest, reported)
	if err != nil {
		t.Fatal(err)
	}
	if there, back := rules.Distance(0, 1), rules.Distance(1, 0); there != 21 || back != 31 {
		t.Errorf("from node 0 to 1 it is %d, and back %d, want 21 and 31", there, back)
	}
	unknown := machine.Layout{Nodes: []machine.Node{{ID: 0}, {ID: 1}}}
	const want = "cannot discover NUMA topology: error getting NUMA distances from cadvisor"
	if _, err := RulesOf(BestEffort, closest, unknown); err == nil || err.Error() != want {
		t.Errorf("without distances: %v, want %s", err, want)
	}
	if rules, err := RulesOf(BestEffort, nil, unknown); err != nil || rules.Distance != nil {
		t.Errorf("without the option: %v", err)
	}
}
