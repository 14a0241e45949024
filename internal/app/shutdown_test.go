package app

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"keelson/internal/config"
	"keelson/internal/node/shutdown"
	"keelson/test/kit/parity"
)

// TestShutdownPeriods reads from the configuration how long pods have before the
// machine shuts down.
func TestShutdownPeriods(t *testing.T) {
	parity.Proves(t, "CFG-95")
	parity.ProvesPart(t, 2, "EVIC-35")
	const byPriority = "shutdownGracePeriodByPodPriority: [{priority: 100, shutdownGracePeriodSeconds: 20}, {priority: 5, shutdownGracePeriodSeconds: 10}]\n"
	const both = "shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s\n"
	second := time.Second
	for _, c := range []struct {
		name, text string
		want       []shutdown.Period
		refused    string
	}{
		{name: "nothing is waited for by default"},
		{name: "what critical pods have is part of the whole", text: both, want: []shutdown.Period{{Priority: 0, Length: 20 * second}, {Priority: 2_000_000_000, Length: 10 * second}}},
		{name: "every priority has its own", text: byPriority, want: []shutdown.Period{{Priority: 100, Length: 20 * second}, {Priority: 5, Length: 10 * second}}},
		{name: "one excludes the other", text: byPriority + both, refused: "shutdownGracePeriodByPodPriority"},
		{name: "so does a part of it", text: byPriority + "shutdownGracePeriod: 30s\n", refused: "shutdownGracePeriodByPodPriority"},
		{name: "it needs its gate", text: both + "featureGates: {GracefulNodeShutdown: false, GracefulNodeShutdownBasedOnPodPriority: false, WindowsGracefulNodeShutdown: false}\n", refused: "needs the gate GracefulNodeShutdown"},
		{name: "so do priorities", text: byPriority + "featureGates: {GracefulNodeShutdownBasedOnPodPriority: false}\n", refused: "needs the gate GracefulNodeShutdownBasedOnPodPriority"},
		{name: "without priorities theirs may be off", text: both + "featureGates: {GracefulNodeShutdownBasedOnPodPriority: false}\n", want: []shutdown.Period{{Priority: 0, Length: 20 * second}, {Priority: 2_000_000_000, Length: 10 * second}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.yaml")
			text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix:///run/x.sock\nauthentication: {webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n" + c.text
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg, err := config.Load([]string{"--config=" + file})
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("error %v, want one about %s", err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			a := &agent{cfg: cfg}
			if got := a.shutdownPeriods(); !reflect.DeepEqual(got, c.want) {
				t.Errorf("periods %v, want %v", got, c.want)
			}
			for _, w := range cfg.Warnings {
				if strings.Contains(w, "hutdown") {
					t.Errorf("warned: %s", w)
				}
			}
		})
	}
}
