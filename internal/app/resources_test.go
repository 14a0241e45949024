package app

import (
	"log/slog"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"keelson/internal/host/checkpoint"
	"keelson/internal/host/machine"
	"keelson/internal/resources/topology"
	"keelson/test/kit/parity"
	"keelson/test/kit/placement"
)

// TestRefusedMachinesMatchUpstream compares with what was recorded of upstream's agent on machines of many nodes,
// and with CPUs that do not exist.
func TestRefusedMachinesMatchUpstream(t *testing.T) {
	parity.ProvesPart(t, 3, "RES-41")
	parity.ProvesPart(t, 3, "RES-25")
	scenes, err := placement.Load("../../test/kit/placement/testdata")
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, s := range scenes {
		if !strings.HasPrefix(s.Name, "bad-topology") && s.Name != "bad-reserved-unknown" &&
			s.Name != "bad-no-reserved" {
			continue
		}
		compared++
		t.Run(s.Name, func(t *testing.T) {
			text, err := yaml.Marshal(s.Config)
			if err != nil {
				t.Fatal(err)
			}
			g := &ground{
				cfg:      configured(t, string(text)),
				log:      slog.New(slog.DiscardHandler),
				workers:  &workers{},
				badFiles: &checkpoint.Reporter{},
			}
			g.cfg.Flags.RootDir = t.TempDir()
			h := &host{reserved: v1.ResourceList{}}
			if s.Config.ReservedCPUs != "" {
				h.reserved[v1.ResourceCPU] = resource.MustParse("1")
			}
			layout, err := machine.ReadLayout(s.Machine.Files(), machine.Info{})
			if err != nil {
				t.Fatal(err)
			}
			var rules topology.Rules
			k := &g.cfg.Kubelet
			policy := topology.Policy(k.TopologyManagerPolicy)
			if rules, err = topology.RulesOf(policy, k.TopologyManagerPolicyOptions, layout); err == nil {
				_, err = newCPUs(t.Context(), g, h, &runtimes{}, layout, rules.Policy)
			}
			want := strings.ReplaceAll(s.Start, `\"`, `"`)
			switch {
			case s.Start == "" && err != nil:
				t.Errorf("%v; upstream starts", err)
			case s.Start != "" && (err == nil || !strings.Contains(want, "failed to run Kubelet: "+err.Error())):
				t.Errorf("%v\nupstream: %s", err, want)
			}
		})
	}
	if compared != 9 {
		t.Errorf("%d scenes were compared", compared)
	}
}
