package memory

import (
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/resources/numa"
)

func TestHeldAndAllocatable(t *testing.T) {
	s := newStage(t, 2)
	p := asking("p", 2, 3)
	if err := s.place(p, numa.Hint{Nodes: numa.NodesOf(1), Preferred: true}); err != nil {
		t.Fatal(err)
	}
	for _, life := range []string{"at first", "after a restart"} {
		for name, want := range map[string][]Held{
			"c0":   {{v1.ResourceMemory, 2 * gi, []int{1}}},
			"c1":   {{v1.ResourceMemory, 3 * gi, []int{1}}},
			"none": nil,
		} {
			if got := s.Of(p.UID, name); !reflect.DeepEqual(got, want) {
				t.Errorf("%s %s holds %v, want %v", life, name, got, want)
			}
		}
		want := []Held{
			{"hugepages-2Mi", 0, []int{0}},
			{v1.ResourceMemory, 5 * gi, []int{0}},
			{"hugepages-2Mi", 0, []int{1}},
			{v1.ResourceMemory, 6 * gi, []int{1}},
		}
		if got := s.Allocatable(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s the node has %v, want %v", life, got, want)
		}
		s.restart()
	}
	s.Release(p.UID)
	if got := s.Of(p.UID, "c0"); got != nil {
		t.Errorf("after its end it holds %v", got)
	}
}
