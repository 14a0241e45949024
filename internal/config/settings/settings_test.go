package settings

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson/internal/config"
	"keelson/internal/host/cgroup"
	"keelson/internal/host/machine"
	"keelson/internal/host/shutdown"
	"keelson/test/kit/parity"
)

const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// configured loads a configuration of a standalone node that is valid on every machine, with text
// added to the file.
func configured(t *testing.T, text string, flags ...string) *config.Config {
	t.Helper()
	file := t.TempDir() + "/k.yaml"
	if err := os.WriteFile(file,
		[]byte(head+
			"authentication: {webhook: {enabled: false}, anonymous: {enabled: true}}\nauthorization: {mode: AlwaysAllow}\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(append([]string{"--hostname-override=n1", "--config=" + file}, flags...))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCgroupDriver(t *testing.T) {
	parity.Proves(t, "CFG-52")
	for _, tc := range []struct{ text, runtime, want string }{
		{want: "cgroupfs"},
		{text: "cgroupDriver: systemd", want: "systemd"},
		{text: "cgroupDriver: systemd", runtime: "cgroupfs", want: "cgroupfs"},
		{runtime: "systemd", want: "systemd"},
	} {
		k := configured(t, tc.text).Kubelet
		if got := CgroupDriver(&k, tc.runtime); string(got) != tc.want {
			t.Errorf("%q over a runtime that says %q: %s, want %s", tc.text, tc.runtime, got, tc.want)
		}
	}
}

func TestCgroupRoot(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-51")
	for text, want := range map[string]string{
		"":                 "/",
		"cgroupRoot: ''":   "/",
		"cgroupRoot: /a/b": "/a/b",
		"cgroupRoot: /":    "/",
	} {
		if got := cgroupRoot(&configured(t, text).Kubelet); got != want {
			t.Errorf("%q: pods are below %q, want %q", text, got, want)
		}
	}
}

func TestFirstNodeIP(t *testing.T) {
	parity.ProvesPart(t, 4, "LIFE-27")
	for flag, want := range map[string]string{
		"":                   "",
		"192.0.2.1":          "192.0.2.1",
		"fd00::1,192.0.2.1":  "fd00::1",
		"::":                 "::",
		"nonsense":           "",
		"nonsense,192.0.2.1": "192.0.2.1",
	} {
		if got := NodeIP(configured(t, "", "--node-ip="+flag)); got != want {
			t.Errorf("--node-ip=%s: %q, want %q", flag, got, want)
		}
	}
}

func TestReservedCPUsOverrideAmounts(t *testing.T) {
	parity.Proves(t, "CFG-84")
	for _, field := range []string{"systemReservedCgroup", "kubeReservedCgroup"} {
		_, err := config.Load([]string{"--hostname-override=n1", "--config=" + reservedWith(t, field)})
		if err == nil || !strings.Contains(err.Error(), "reservedSystemCPUs: \"0\" cannot be combined with "+field) {
			t.Errorf("with %s: %v", field, err)
		}
	}
	sum, err := Reserved(&configured(
		t,
		"reservedSystemCPUs: 0-1,4\nkubeReserved: {cpu: 100m, memory: 1Gi}\nsystemReserved: {cpu: '1', memory: 1Gi}",
	).Kubelet)
	if err != nil {
		t.Fatal(err)
	}
	cpu, memory := sum["cpu"], sum["memory"]
	if cpu.String() != "3" || memory.String() != "2Gi" {
		t.Errorf("kept: %s CPUs, %s memory", cpu.String(), memory.String())
	}
}

func reservedWith(t *testing.T, field string) string {
	t.Helper()
	file := t.TempDir() + "/k.yaml"
	if err := os.WriteFile(file, []byte(head+"reservedSystemCPUs: '0'\n"+field+": /x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The cgroup of all pods has the capacity of the machine. Reserved resources are subtracted if
// enforceNodeAllocatable has pods.
func TestPodsCgroupValues(t *testing.T) {
	capacity := v1.ResourceList{v1.ResourceCPU: resource.MustParse("8"), v1.ResourceMemory: resource.MustParse("16Gi")}
	for enforce, want := range map[string]cgroup.Values{
		"[pods]":                               {CPUShares: 7 * 1024, Memory: 15 << 30, PIDs: 31000},
		"[pods, system-reserved-compressible]": {CPUShares: 7 * 1024, Memory: 15 << 30, PIDs: 31000},
		"[system-reserved-compressible]":       {CPUShares: 8 * 1024, Memory: 16 << 30, PIDs: 32000},
		"[none]":                               {CPUShares: 8 * 1024, Memory: 16 << 30, PIDs: 32000},
	} {
		k := &configured(t, "systemReserved: {cpu: '1', memory: 1Gi, pid: '1000'}\nsystemReservedCgroup: /system\n"+
			"enforceNodeAllocatable: "+enforce).Kubelet
		reserved, err := Reserved(k)
		if err != nil {
			t.Fatal(err)
		}
		if got := AllPods(k, machine.Info{MaxPIDs: 32000}, reserved)(capacity); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", enforce, got, want)
		}
	}
}

// TestShutdownPeriods: the termination periods of pods during a node shutdown.
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
		{name: "no shutdown grace period by default"},
		{
			name: "the time of critical pods is part of the grace period",
			text: both,
			want: []shutdown.Period{{Priority: 0, Length: 20 * second}, {Priority: 2_000_000_000, Length: 10 * second}},
		},
		{
			name: "periods by priority",
			text: byPriority,
			want: []shutdown.Period{{Priority: 100, Length: 20 * second}, {Priority: 5, Length: 10 * second}},
		},
		{name: "both settings together", text: byPriority + both, refused: "shutdownGracePeriodByPodPriority"},
		{
			name:    "critical period and priorities together",
			text:    byPriority + "shutdownGracePeriod: 30s\n",
			refused: "shutdownGracePeriodByPodPriority",
		},
		{name: "gate off", text: both + "featureGates: {GracefulNodeShutdown: false, GracefulNodeShutdownBasedOnPodPriority: false, WindowsGracefulNodeShutdown: false}\n", refused: "needs the gate GracefulNodeShutdown"},
		{name: "gate of priorities off", text: byPriority + "featureGates: {GracefulNodeShutdownBasedOnPodPriority: false}\n", refused: "needs the gate GracefulNodeShutdownBasedOnPodPriority"},
		{name: "gate of priorities off, no priorities", text: both + "featureGates: {GracefulNodeShutdownBasedOnPodPriority: false}\n", want: []shutdown.Period{{Priority: 0, Length: 20 * second}, {Priority: 2_000_000_000, Length: 10 * second}}},
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
			if got := ShutdownPeriods(cfg); !reflect.DeepEqual(got, c.want) {
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

func TestTurnPatience(t *testing.T) {
	parity.ProvesPart(t, 6, "SRV-13")
	for frequency, want := range map[time.Duration]time.Duration{
		time.Minute:      5 * time.Minute,
		10 * time.Minute: 20 * time.Minute,
	} {
		if got := turnPatience(frequency); got != want {
			t.Errorf("turnPatience(%v) = %v, want %v", frequency, got, want)
		}
	}
}
