package cpu

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"

	"keelson/internal/host/machine"
	"keelson/internal/pods/pod"
	"keelson/internal/resources/numa"
	"keelson/internal/resources/topology"
	"keelson/test/kit/parity"
	"keelson/test/kit/placement"
)

// poolFor is a Manager for a recorded scene, on a directory.
func poolFor(t *testing.T, s placement.Scene, dir string) (*Manager, error) {
	t.Helper()
	layout, err := machine.ReadLayout(s.Machine.Files(), machine.Info{})
	if err != nil {
		t.Fatal(err)
	}
	o, err := ParseOptions(s.Config.CPU, s.Config.CPUOptions, Gates{
		Beta:  beta(s),
		Alpha: s.Config.Gates["CPUManagerPolicyAlphaOptions"],
	})
	if err != nil {
		return nil, err
	}
	var reserved int64
	if q := s.Config.KubeReserved["cpu"]; q != "" {
		reserved = ptr.To(resource.MustParse(q)).MilliValue()
	}
	set, err := cpuset.Parse(s.Config.ReservedCPUs)
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{
		Dir:          dir,
		Policy:       s.Config.CPU,
		Options:      o,
		Machine:      layout,
		ReservedCPUs: set,
		Reserved:     reserved,
		Running:      unknown,
		SingleNode:   s.Config.Topology == string(topology.SingleNUMANode),
		CountAligned: func(string, bool) {},
		OnChange:     func() {},
		Log:          slog.New(slog.DiscardHandler),
	})
}

func beta(s placement.Scene) bool {
	on, set := s.Config.Gates["CPUManagerPolicyBetaOptions"]
	return on || !set
}

// place allocates CPUs to the pod, as the topology manager does with the policy none.
func (p *Manager) place(of *v1.Pod) error {
	for kind, c := range pod.Containers(of) {
		if kind == pod.Ephemeral {
			continue
		}
		if err := p.Allocate(of, c, numa.Hint{}); err != nil {
			return err
		}
	}
	return nil
}

// TestAllocationMatchesUpstream replays what was recorded from upstream's agent.
func TestAllocationMatchesUpstream(t *testing.T) {
	parity.Proves(t, "RES-27", "RES-28")
	scenes, err := placement.Load("../../../test/kit/placement/testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scenes {
		if s.Start != "" || s.Config.Topology != "" || s.Config.Memory != "" || s.Config.CPU != PolicyStatic ||
			len(s.Steps) == 0 || s.Config.Gates["PodLevelResourceManagers"] {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			dir := t.TempDir()
			p, err := poolFor(t, s, dir)
			if err != nil {
				t.Fatal(err)
			}
			for i, step := range s.Steps {
				if step.Add != nil {
					err := p.place(step.Add.Spec())
					if (err != nil) != (step.Reason != "") {
						t.Fatalf("step %d: %v, upstream %s", i, err, step.Message)
					}
					if err != nil {
						p.Release(types.UID(step.Add.Name))
					}
				} else {
					p.Release(types.UID(step.Remove))
				}
				if step.CPUs == nil {
					continue
				}
				got, err := os.ReadFile(filepath.Join(dir, fileState))
				var want bytes.Buffer
				if err == nil {
					err = json.Compact(&want, step.CPUs)
				}
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, want.Bytes()) {
					t.Fatalf("step %d %+v:\n%s\nupstream:\n%s", i, step.Add, got, want.String())
				}
			}
		})
	}
}

// TestRestoreLaterFormat restores checkpoints that upstream's agent writes with a feature gate that this agent does not
// have.
func TestRestoreLaterFormat(t *testing.T) {
	parity.Differs(t, "RES-30", "0101")
	scenes, err := placement.Load("../../../test/kit/placement/testdata")
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, s := range scenes {
		for _, step := range s.Steps {
			if !s.Config.Gates["PodLevelResourceManagers"] || step.CPUs == nil {
				continue
			}
			read++
			dir := t.TempDir()
			var content bytes.Buffer
			if err := errors.Join(json.Compact(&content, step.CPUs),
				os.WriteFile(filepath.Join(dir, fileState), content.Bytes(), 0o600)); err != nil {
				t.Fatal(err)
			}
			p, err := poolFor(t, s, dir)
			if err != nil {
				t.Errorf("%s: %v\n%s", s.Name, err, content.Bytes())
				continue
			}
			if len(p.assigned) == 0 {
				t.Errorf("%s: no container has CPUs by %s", s.Name, content.Bytes())
			}
		}
	}
	if read < 3 {
		t.Errorf("%d states were read", read)
	}
}
