package config

import (
	"strings"
	"testing"

	"k8s.io/client-go/features"
)

// registered collects the gates of client-go with their specifications.
type registered map[string]features.FeatureSpec

func (r registered) Add(in map[features.Feature]features.FeatureSpec) error {
	for name, spec := range in {
		r[string(name)] = spec
	}
	return nil
}

// TestGatesOfTheClientLibrary: the gates of client-go are gates of the agent, with the same stage and default.
func TestGatesOfTheClientLibrary(t *testing.T) {
	library := registered{}
	if err := features.AddFeaturesToExistingFeatureGates(library); err != nil {
		t.Fatal(err)
	}
	if len(library) == 0 {
		t.Fatal("the library has no gates")
	}
	known := KnownGates()
	for name, spec := range library {
		g, ok := known[name]
		if !ok || string(g.Stage) != string(spec.PreRelease) || g.Default != spec.Default ||
			g.Locked != spec.LockToDefault {
			t.Errorf("%s: known %v, %+v, the library says %+v", name, ok, g, spec)
		}
	}
	c := load(t, "--feature-gates=WatchListClient=false,ClientsAllowCBOR=true,InOrderInformers=true")
	if c.Gates.Enabled("WatchListClient") || !c.Gates.Enabled("ClientsAllowCBOR") ||
		strings.Contains(strings.Join(c.Warnings, "\n"), "without effect") {
		t.Errorf("gates %v, %v, warnings %q", c.Gates["WatchListClient"], c.Gates["ClientsAllowCBOR"], c.Warnings)
	}
	// The agent has no informers with a delta queue, so this gate has no effect.
	logged := strings.Join(load(t, "--feature-gates=UnlockWhileProcessingFIFO=false").Warnings, "\n")
	if !strings.Contains(logged, "settings without effect in this version: featureGates.UnlockWhileProcessingFIFO") {
		t.Errorf("logged %q", logged)
	}
}
