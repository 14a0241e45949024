package topology_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"keelson/internal/host/machine"
	"keelson/internal/pods/pod"
	"keelson/internal/resources/cpu"
	"keelson/internal/resources/memory"
	"keelson/internal/resources/numa"
	"keelson/internal/resources/topology"
	"keelson/test/kit/parity"
	"keelson/test/kit/placement"
)

// node has the topology manager, the CPU manager and the memory manager for a recorded scene.
type node struct {
	*topology.Manager
	dir string
}

func nodeFor(t *testing.T, s placement.Scene) (n node, err error) {
	t.Helper()
	c := s.Config
	layout, err := machine.ReadLayout(s.Machine.Files(), machine.Info{})
	if err != nil {
		t.Fatal(err)
	}
	n.dir = t.TempDir()
	options, err := topology.ParseOptions(c.TopologyOptions)
	if err != nil && c.Topology != "" {
		return n, err
	}
	rules := topology.Rules{Policy: topology.Policy(c.Topology)}
	if c.Topology == "" {
		rules.Policy = topology.None
	}
	for _, node := range layout.Nodes {
		rules.Nodes |= numa.NodesOf(node.ID)
	}
	if options.PreferClosest {
		rules.Distance = func(a, b int) int { return layout.Nodes[a].Distances[b] }
	}
	o, err := cpu.ParseOptions(c.CPU, c.CPUOptions, cpu.Gates{Beta: true, Alpha: true})
	if err != nil {
		return n, err
	}
	named, err := cpuset.Parse(c.ReservedCPUs)
	if err != nil {
		t.Fatal(err)
	}
	amount := func(text string) resource.Quantity {
		if text == "" {
			text = "0"
		}
		return resource.MustParse(text)
	}
	reserved := amount(c.KubeReserved["cpu"])
	cpus, err := cpu.New(cpu.Config{
		Dir:          n.dir,
		Policy:       c.CPU,
		Options:      o,
		Machine:      layout,
		ReservedCPUs: named,
		Reserved:     reserved.MilliValue(),
		SingleNode:   rules.Policy == topology.SingleNUMANode,
		CountAligned: func(string, bool) {},
		OnChange:     func() {},
		Log:          slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return n, err
	}
	whole, kept := amount(c.KubeReserved["memory"]), map[int]v1.ResourceList{}
	whole.Add(resource.MustParse("100Mi")) // evictionHard of the recordings
	for id, text := range c.ReservedMemory {
		kept[id] = v1.ResourceList{v1.ResourceMemory: resource.MustParse(text)}
	}
	policy := c.Memory
	if policy == "" {
		policy = memory.PolicyNone
	}
	book, err := memory.New(memory.Config{
		Dir:          n.dir,
		Policy:       policy,
		Nodes:        layout.Nodes,
		PageSizes:    []uint64{2 << 20},
		Reserved:     kept,
		NodeReserved: v1.ResourceList{v1.ResourceMemory: whole},
		Log:          slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return n, err
	}
	scope := c.Scope
	if scope == "" {
		scope = topology.ScopeContainer
	}
	n.Manager = topology.New(topology.Config{
		Rules:     rules,
		Scope:     scope,
		Providers: []topology.Provider{cpus, book},
		Log:       slog.New(slog.DiscardHandler),
		Now:       time.Now,
	})
	return n, nil
}

// TestAdmissionMatchesUpstream replays what was recorded from upstream's agent: rejections and their messages, the CPUs
// and NUMA nodes of containers, and the checkpoints.
func TestAdmissionMatchesUpstream(t *testing.T) {
	parity.Proves(t, "RES-36", "RES-39", "RES-40", "RES-42")
	parity.ProvesPart(t, 3, "RES-34")
	parity.Differs(t, "SRC-37", "0103")
	scenes, err := placement.Load("../../../test/kit/placement/testdata")
	if err != nil {
		t.Fatal(err)
	}
	played := 0
	for _, s := range scenes {
		if s.Start != "" || len(s.Steps) == 0 || s.Config.Gates["PodLevelResourceManagers"] {
			continue
		}
		played++
		t.Run(s.Name, func(t *testing.T) {
			n, err := nodeFor(t, s)
			if err != nil {
				t.Fatal(err)
			}
			for i, step := range s.Steps {
				if step.Add == nil {
					n.Release(types.UID(step.Remove))
					continue
				}
				p := step.Add.Spec()
				if no := n.Admit(p); no != nil || step.Reason != "" {
					n.Release(p.UID)
					if no == nil || no.Reason != step.Reason || "Pod was rejected: "+no.Message != step.Message {
						t.Fatalf("step %d: refused %+v\nupstream: %s %s", i, no, step.Reason, step.Message)
					}
					continue
				}
				for _, c := range pod.Containers(p) {
					got, err := n.Contribution(t.Context(), p, c)
					want := step.Containers[c.Name]
					if err != nil || got.CPUs != want.CPUs || got.Mems != want.Mems {
						t.Errorf("step %d: %s is kept to CPUs %s, nodes %q, %v; upstream: %+v", i, c.Name, got.CPUs,
							got.Mems, err, want)
					}
				}
				n.same(t, i, "cpu_manager_state", step.CPUs)
				n.same(t, i, "memory_manager_state", step.Memory)
			}
		})
	}
	if played < 25 {
		t.Errorf("%d scenes were played", played)
	}
}

func (n node) same(t *testing.T, step int, file string, want json.RawMessage) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(n.dir, file))
	var recorded bytes.Buffer
	if err == nil {
		err = json.Compact(&recorded, want)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, recorded.Bytes()) {
		t.Fatalf("step %d: %s\n%s\nupstream:\n%s", step, file, got, recorded.String())
	}
}

// TestStartErrorsMatchUpstream compares with what upstream's agent logged about memory
// and topology when it did not start.
func TestStartErrorsMatchUpstream(t *testing.T) {
	parity.Proves(t, "RES-35")
	scenes, err := placement.Load("../../../test/kit/placement/testdata")
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, s := range scenes {
		if s.Start == "" && len(s.Steps) == 0 && s.Config.Memory != "" {
			compared++
			if _, err := nodeFor(t, s); err != nil {
				t.Errorf("%s: %v; upstream starts", s.Name, err)
			}
		}
		if s.Start == "" || s.Config.Memory == "" && s.Config.TopologyOptions == nil {
			continue
		}
		compared++
		_, err := nodeFor(t, s)
		if err == nil {
			t.Errorf("%s: it starts; upstream: %s", s.Name, s.Start)
		} else if logged := strings.ReplaceAll(s.Start, `\"`, `"`); !strings.Contains(logged,
			"failed to run Kubelet: "+err.Error()) {
			t.Errorf("%s: %v\nupstream: %s", s.Name, err, logged)
		}
	}
	if compared < 9 {
		t.Errorf("%d scenes were compared", compared)
	}
}
