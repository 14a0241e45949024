package config

import (
	"testing"

	"k8s.io/client-go/features"
)

// TestGatesApplyToLibraries: client-go uses the agent's feature gates, and ignores the environment.
func TestGatesApplyToLibraries(t *testing.T) {
	before := features.FeatureGates()
	t.Cleanup(func() { features.ReplaceFeatureGates(before) })
	t.Setenv("KUBE_FEATURE_WatchListClient", "true")
	t.Setenv("KUBE_FEATURE_AtomicFIFO", "false")
	c, err := Load([]string{"--hostname-override=n", "--feature-gates=WatchListClient=false"})
	if err != nil {
		t.Fatal(err)
	}
	c.Gates.ApplyToLibraries()
	for gate, want := range map[features.Feature]bool{
		features.WatchListClient:        false,
		features.AtomicFIFO:             true,
		features.ClientsAllowCARotation: true,
		features.ClientsAllowCBOR:       false,
	} {
		if got := features.FeatureGates().Enabled(gate); got != want {
			t.Errorf("%s is %v, want %v", gate, got, want)
		}
	}
}
