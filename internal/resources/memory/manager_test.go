package memory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/host/machine"
	"keelson/internal/pods/pod"
	"keelson/internal/resources/numa"
	"keelson/test/kit/parity"
	"keelson/test/kit/placement"
	"keelson/test/kit/scrape"
)

const gi = 1 << 30

// stage is a Manager on a machine of nodes with 6 GiB each. 1 GiB of the first node is reserved.
type stage struct {
	*Manager
	t   *testing.T
	cfg Config

	unusable []error
}

// unknown is Config.Running of a runtime that does not answer.
func unknown() ([]Pinned, error) { return nil, errors.New("no answer") }

func newStage(t *testing.T, nodes int) *stage {
	s := &stage{t: t}
	kept := v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
	s.cfg = Config{
		Dir:          t.TempDir(),
		Policy:       PolicyStatic,
		PageSizes:    []uint64{2 << 20},
		Reserved:     map[int]v1.ResourceList{0: kept},
		NodeReserved: kept,
		Running:      unknown,
		OnCorrupt:    func(err error) { s.unusable = append(s.unusable, err) },
		Log:          slog.New(slog.DiscardHandler),
	}
	for id := range nodes {
		s.cfg.Nodes = append(s.cfg.Nodes, machine.Node{ID: id, Memory: 6 * gi})
	}
	s.restart()
	return s
}

func (s *stage) restart() {
	s.t.Helper()
	b, err := New(s.cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Manager = b
}

func asking(name string, amounts ...int) *v1.Pod {
	p := placement.Pod{Name: name}
	for i, n := range amounts {
		p.Containers = append(p.Containers, placement.Container{
			Name:   fmt.Sprint("c", i),
			CPU:    "1",
			Memory: fmt.Sprint(n, "Gi"),
		})
	}
	return p.Spec()
}

func (s *stage) place(p *v1.Pod, at numa.Hint) error {
	for _, c := range pod.Containers(p) {
		if err := s.Allocate(p, c, at); err != nil {
			return err
		}
	}
	return nil
}

// holds fails if the amounts of a node do not add up, if a node is in two groups, or if the assigned memory is not the
// sum of the reserved memory.
func (s *stage) holds() {
	s.t.Helper()
	for id, n := range s.machine {
		for name, a := range n.MemoryMap {
			if a.Free+a.Reserved != a.Allocatable {
				s.t.Fatalf("node %d: %s %+v", id, name, a)
			}
		}
		for _, other := range n.Cells {
			if !reflect.DeepEqual(s.machine[other].Cells, n.Cells) {
				s.t.Fatalf("node %d is of %v, node %d of %v", id, n.Cells, other, s.machine[other].Cells)
			}
		}
	}
	promised, booked := uint64(0), uint64(0)
	for _, containers := range s.assigned {
		for _, blocks := range containers {
			for _, one := range blocks {
				promised += one.Size
			}
		}
	}
	for _, n := range s.machine {
		booked += n.MemoryMap[v1.ResourceMemory].Reserved
	}
	if promised != booked {
		s.t.Fatalf("%d is promised, %d booked", promised, booked)
	}
}

func TestAllocatedMemoryIsDisjoint(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 9))
	for range 60 {
		s := newStage(t, 1+rnd.IntN(4))
		here := map[types.UID]bool{}
		for step := range 40 {
			switch k := rnd.IntN(10); {
			case k < 6:
				p := asking(fmt.Sprint("p", step), 1+rnd.IntN(8))
				at := numa.Hint{Nodes: numa.Nodes(rnd.IntN(2)), Preferred: rnd.IntN(2) == 0}
				if err := s.place(p, at); err != nil {
					s.Release(p.UID)
				} else {
					here[p.UID] = true
				}
			case k < 9:
				for uid := range here {
					s.Release(uid)
					delete(here, uid)
					break
				}
			default:
				s.restart()
			}
			s.holds()
			if len(s.Holders()) != len(here) {
				t.Fatalf("%v hold memory, there are %v", s.Holders(), here)
			}
		}
		for uid := range here {
			s.Release(uid)
		}
		if s.holds(); !reflect.DeepEqual(s.machine,
			newMachineState(s.cfg.Nodes, s.cfg.PageSizes, map[int]map[v1.ResourceName]uint64{
				0: {v1.ResourceMemory: gi},
			})) {
			t.Fatal("when all have ended something is left")
		}
	}
}

func TestNodesServeOneGroupOnly(t *testing.T) {
	parity.Proves(t, "RES-36")
	s := newStage(t, 3)
	wide := asking("wide", 8)
	if err := s.place(wide, numa.Hint{}); err != nil {
		t.Fatal(err)
	}
	given, err := s.Contribute(t.Context(), wide, &wide.Spec.Containers[0])
	if err != nil || given.Mems != "0,1" {
		t.Errorf("kept to nodes %q, %v", given.Mems, err)
	}
	if err := s.place(asking("own", 1), numa.Hint{Nodes: numa.NodesOf(1)}); err == nil {
		t.Error("a node of a group served one of its own")
	}
	s.Release("own")
	if err := s.place(asking("alone", 1), numa.Hint{}); err != nil || s.machine[2].NumberOfAssignments != 1 {
		t.Errorf("%v: %+v", err, s.machine[2])
	}
	if err := s.place(asking("across", 7), numa.Hint{Nodes: numa.NodesOf(1, 2)}); err == nil {
		t.Error("a node of one group was taken into another")
	}
	loose := placement.Pod{
		Name:       "loose",
		Loose:      true,
		Containers: []placement.Container{{Name: "c0", CPU: "1", Memory: "1Gi"}},
	}
	p := loose.Spec()
	if err := s.place(p, numa.Hint{}); err != nil {
		t.Fatal(err)
	}
	if given, err := s.Contribute(t.Context(), p, &p.Spec.Containers[0]); err != nil || given.Mems != "" {
		t.Errorf("a pod of another kind is kept to %q, %v", given.Mems, err)
	}
}

// If the memory of the running containers is not known, a checkpoint that cannot be used is an error, as with upstream.
func TestCheckpointThatDoesNotMatch(t *testing.T) {
	parity.Differs(t, "RES-37", "0101")
	for _, tc := range []struct {
		name string
		edit func(*stage)
		says string
	}{
		{"unchanged", func(*stage) {}, ""},
		{"policy none", func(s *stage) { s.cfg.Policy = PolicyNone }, ""},
		{"a smaller node", func(s *stage) { s.cfg.Nodes[1].Memory = 5 * gi }, "the expected machine state is different"},
		{"one more node", func(s *stage) { s.cfg.Nodes = append(s.cfg.Nodes, machine.Node{ID: 2}) },
			"the expected machine state is different"},
		{"more memory is reserved", func(s *stage) {
			s.cfg.NodeReserved = v1.ResourceList{v1.ResourceMemory: resource.MustParse("2Gi")}
			s.cfg.Reserved = map[int]v1.ResourceList{0: s.cfg.NodeReserved}
		}, "the expected machine state is different"},
		{"wrong checksum", func(s *stage) { s.rewrite(`"reserved":3`, `"reserved":2`) }, "the checksum is"},
		{"invalid JSON", func(s *stage) { s.rewrite(`{`, ``) }, "decode state"},
		{"checkpoint was deleted", func(s *stage) {
			if err := os.Remove(s.path()); err != nil {
				s.t.Fatal(err)
			}
			s.cfg.Policy = PolicyNone
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStage(t, 2)
			if err := s.place(asking("p", 3), numa.Hint{}); err != nil {
				t.Fatal(err)
			}
			tc.edit(s)
			_, err := New(s.cfg)
			if (err != nil) != (tc.says != "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v, want %q", err, tc.says)
			}
		})
	}
}

func (s *stage) rewrite(from, to string) {
	s.t.Helper()
	b, err := os.ReadFile(s.path())
	if err == nil && !strings.Contains(string(b), from) {
		err = fmt.Errorf("no %s in %s", from, b)
	}
	if err == nil {
		err = os.WriteFile(s.path(), []byte(strings.Replace(string(b), from, to, 1)), 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// TestRestoreLaterFormat decodes a checkpoint that upstream's agent writes with a feature gate that this agent does not
// have.
func TestRestoreLaterFormat(t *testing.T) {
	parity.Differs(t, "RES-37", "0101")
	scenes, err := placement.Load("../../../test/kit/placement/testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scenes {
		if s.Name != "v3-memory" {
			continue
		}
		var content bytes.Buffer
		if err := json.Compact(&content, s.Steps[0].Memory); err != nil {
			t.Fatal(err)
		}
		got, err := decode(PolicyStatic, content.Bytes())
		if err != nil || len(got.assigned["a"]["c0"]) != 1 || got.machine[0].NumberOfAssignments != 1 {
			t.Errorf("%+v, %v", got, err)
		}
		return
	}
	t.Error(errors.New("there is no such scene"))
}

func TestCheckpointOfPolicyNone(t *testing.T) {
	parity.ProvesPart(t, 3, "RES-34")
	s := newStage(t, 2)
	s.cfg.Dir, s.cfg.Policy = t.TempDir(), PolicyNone
	s.restart()
	got, err := os.ReadFile(s.path())
	const want = `{"policyName":"None","machineState":{},"checksum":4236770233}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v; upstream's is %s", got, err, want)
	}
}

func TestMetrics(t *testing.T) {
	parity.Proves(t, "RES-38")
	s := newStage(t, 1)
	if err := s.place(asking("a", 3), numa.Hint{}); err != nil {
		t.Fatal(err)
	}
	if err := s.place(asking("b", 3), numa.Hint{}); err == nil {
		t.Fatal("6 of 5 GiB were had")
	}
	got := scrape.Of(t, s.Manager)
	if got["kubelet_memory_manager_pinning_requests_total"] != 2 ||
		got["kubelet_memory_manager_pinning_errors_total"] != 1 {
		t.Errorf("%v", got)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"policyName":"Static","machineState":{},"checksum":0}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		if s, err := decode(PolicyStatic, content); err == nil {
			if _, err := encode(PolicyStatic, s); err != nil {
				t.Error(err)
			}
		}
	})
}
