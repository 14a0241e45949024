package cpu

import (
	"maps"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"keelson/test/kit/parity"
	"keelson/test/kit/placement"
)

// spoil truncates the checkpoint, so that the next agent cannot read it, and sets the containers that the runtime
// reports.
func (s *stage) spoil(running ...Pinned) {
	s.t.Helper()
	if err := os.WriteFile(s.path(), []byte(`{"policyName":"stat`), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.cfg.Running = func() ([]Pinned, error) { return running, nil }
}

// running returns what the runtime reports: the containers of the state with their exclusive CPUs, two that use the
// shared pool, and one without CPUs.
func (s *stage) running() (out []Pinned) {
	for uid, containers := range s.assigned {
		for name, set := range containers {
			out = append(out, Pinned{uid, name, set, int64(set.Size()) * 1024})
		}
	}
	return append(out, Pinned{"shares", "c0", s.shared, 2}, Pinned{"shares", "c1", s.shared, 1024},
		Pinned{"old", "c0", cpuset.New(), 1024})
}

func TestRebuildFromContainers(t *testing.T) {
	parity.Differs(t, "RES-30", "0101")
	for name, spoil := range map[string]func(*stage){
		"unreadable": func(s *stage) { s.spoil(s.running()...) },
		"another policy": func(s *stage) {
			s.rewrite(`static`, `none`)
			s.unsum()
			running := s.running()
			s.cfg.Running = func() ([]Pinned, error) { return running, nil }
		},
		"CPUs do not match": func(s *stage) {
			s.rewrite(`"defaultCpuSet":"0,`, `"defaultCpuSet":"`)
			s.unsum()
			running := s.running()
			s.cfg.Running = func() ([]Pinned, error) { return running, nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, twoSockets, nil)
			for _, p := range []*v1.Pod{whole("p", "2"), whole("q", "1", "3")} {
				if err := s.place(p); err != nil {
					t.Fatal(err)
				}
			}
			before := s.clone()
			spoil(s)
			s.restart()
			s.holds()
			for uid, containers := range before.assigned {
				if !maps.EqualFunc(s.assigned[uid], containers, cpuset.CPUSet.Equals) {
					t.Errorf("%s has %v, and had %v", uid, s.assigned[uid], containers)
				}
			}
			if len(s.unusable) != 1 || !strings.Contains(s.unusable[0].Error(), "it is kept as "+s.path()+".bad") {
				t.Errorf("reported: %v", s.unusable)
			}
			s.restart() // from the checkpoint that it has written
			if len(s.unusable) != 1 || !s.shared.Equals(before.shared) {
				t.Errorf("an agent later: %v shared, reported %v", s.shared, s.unusable)
			}
		})
	}
}

// A container that uses the shared pool can look as if it had exclusive CPUs, if the pool has no reserved CPUs.
func TestRebuildSharedContainers(t *testing.T) {
	strict := func(c *Config) { c.Options.Strict = true }
	s := newStage(t, placement.Machine{Sockets: 1, Nodes: 1, Cores: 4, Threads: 1}, strict)
	looks := Pinned{"b", "c0", cpuset.New(1, 2, 3), 3 * 1024}
	s.spoil(looks, Pinned{"c", "c0", cpuset.New(1, 2, 3), 3 * 1024})
	s.restart()
	if s.holds(); len(s.assigned) > 0 {
		t.Errorf("two that share have %v", s.assigned)
	}

	s.spoil(looks)
	s.restart()
	s.restart() // before a source has delivered the pod
	if err := s.place(whole("new", "1")); err == nil {
		t.Errorf("a container got CPUs that may be another's: %v", s.assigned)
	}
	b := whole("b", "3")
	b.Spec.Containers[0].Resources.Limits[v1.ResourceCPU] = resource.MustParse("4") // Burstable
	if err := s.place(b); err != nil {
		t.Fatal(err)
	}
	if s.holds(); len(s.assigned) > 0 {
		t.Errorf("one that shares has %v", s.assigned)
	}
	if err := s.place(whole("new", "1")); err != nil {
		t.Error(err)
	}
}

// TestRebuildKeepsCPUs makes the checkpoints of random nodes unreadable.
func TestRebuildKeepsCPUs(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 11))
	for range 100 {
		m := placement.Machine{Sockets: 1 + rnd.IntN(2), Nodes: 1, Cores: 2 + rnd.IntN(4), Threads: 1 + rnd.IntN(2)}
		s := newStage(t, m, nil)
		for i := range 5 {
			// A pod that does not fit gets no CPUs.
			_ = s.place(whole(string(rune('a'+i)), []string{"1", "2", "3"}[rnd.IntN(3)]))
		}
		before := s.clone()
		s.spoil(s.running()...)
		s.restart()
		s.holds()
		if !s.shared.Equals(before.shared) || len(s.assigned) != len(before.assigned) {
			t.Fatalf("%+v: shared %v, own %v; before %v, %v", m, s.shared, s.assigned, before.shared, before.assigned)
		}
	}
}
