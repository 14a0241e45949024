package memory

import (
	"os"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/host/machine"
	"keelson/internal/resources/numa"
	"keelson/test/kit/parity"
)

// running returns what the runtime reports: the containers of the state with their memory, and one that is not pinned.
func (s *stage) running() (out []Pinned) {
	for uid, containers := range s.assigned {
		for name := range containers {
			out = append(out, Pinned{types.UID(uid), name, s.Of(types.UID(uid), name)})
		}
	}
	return append(out, Pinned{"free", "c0", nil})
}

func TestRebuildFromContainers(t *testing.T) {
	parity.Differs(t, "RES-37", "0101")
	spoil := func(s *stage) {
		if err := os.WriteFile(s.path(), []byte(`{"policyName":"Stat`), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name  string
		spoil func(s *stage, running []Pinned) []Pinned
		says  string
	}{
		{"unreadable", func(s *stage, r []Pinned) []Pinned { spoil(s); return r }, ""},
		{"another policy", func(s *stage, r []Pinned) []Pinned { s.rewrite(`Static`, `None`); return r }, ""},
		{"more memory on a node", func(s *stage, r []Pinned) []Pinned { s.cfg.Nodes[1].Memory += gi; return r }, ""},
		{"less memory on a node than allocated",
			func(s *stage, r []Pinned) []Pinned { s.cfg.Nodes[0].Memory = 3 * gi; return r }, "where 0 are left"},
		{"one node fewer", func(s *stage, r []Pinned) []Pinned {
			s.cfg.Nodes = []machine.Node{s.cfg.Nodes[0]}
			return append(r, Pinned{"x", "c0", []Held{{v1.ResourceMemory, 1, []int{1}}}})
		}, "container c0 of pod x: node 1 has no memory"},
		{"two groups overlap", func(s *stage, r []Pinned) []Pinned {
			spoil(s)
			return append(r, Pinned{"x", "c0", []Held{{v1.ResourceMemory, 1, []int{0, 1}}}})
		}, "its nodes also serve another group"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStage(t, 2)
			for _, name := range []string{"p", "q"} {
				if err := s.place(asking(name, 2), numa.Hint{}); err != nil {
					t.Fatal(err)
				}
			}
			before := s.clone()
			running := tc.spoil(s, s.running())
			s.cfg.Running = func() ([]Pinned, error) { return running, nil }
			b, err := New(s.cfg)
			if (err != nil) != (tc.says != "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("%v, want %q", err, tc.says)
			}
			if err != nil {
				if len(s.unusable) > 0 {
					t.Errorf("reported: %v", s.unusable)
				}
				return
			}
			if !reflect.DeepEqual(b.assigned, before.assigned) {
				t.Errorf("promised are %+v, before %+v", b.assigned, before.assigned)
			}
			if len(s.unusable) != 1 || !strings.Contains(s.unusable[0].Error(), "it is kept as "+s.path()+".bad") {
				t.Errorf("reported: %v", s.unusable)
			}
			s.restart() // from the checkpoint that it has written
			if len(s.unusable) != 1 || !reflect.DeepEqual(s.assigned, before.assigned) {
				t.Errorf("an agent later: %+v, reported %v", s.assigned, s.unusable)
			}
		})
	}
}
