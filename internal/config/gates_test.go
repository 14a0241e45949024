package config

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"keelson/test/kit/parity"
)

// contractOf returns the contract of a row of the parity inventory.
func contractOf(t *testing.T, id string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/parity/01-config-and-flags.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^\| ` + id + ` \| P\d \| [^|]* \| ([^|]*) \|`).FindStringSubmatch(string(text))
	if m == nil {
		t.Fatalf("no row %s", id)
	}
	return m[1]
}

// TestGatesAreUpstreams compares the table of gates with that of the parity inventory.
func TestGatesAreUpstreams(t *testing.T) {
	parity.Proves(t, "CFG-142", "CFG-143", "CFG-144", "CFG-145")
	row := func(id string) string { return contractOf(t, id) }
	known := KnownGates()
	check := func(list string, stage Stage, on bool) {
		t.Helper()
		for name := range strings.SplitSeq(list, ",") {
			name, note, _ := strings.Cut(strings.Trim(strings.TrimSpace(name), "."), " ")
			if name == "RuntimeClassInImageCriAPI" {
				name = "RuntimeClassInImageCriApi" // the row has the name of upstream's constant
			}
			g, ok := known[name]
			if !ok || g.Stage != stage || g.Default != on || strings.Contains(note, "locked") != g.Locked {
				t.Errorf("%s: known %v, %+v, want %s %v", name, ok, g, stage, on)
			}
		}
	}
	check(row("CFG-142"), Beta, true)
	check(row("CFG-143"), Beta, false)
	check(row("CFG-144"), Alpha, false)
	on, off, ok := strings.Cut(strings.TrimPrefix(row("CFG-145"), "on: "), ". off: ")
	if !ok {
		t.Fatal("the row of deprecated gates reads otherwise")
	}
	check(on, Deprecated, true)
	check(off, Deprecated, false)
}

// TestLockedGatesCannotBeTurnedOff: for each locked gate of the parity inventory, in a file and by a flag.
// Setting a locked gate to its value is allowed.
func TestLockedGatesCannotBeTurnedOff(t *testing.T) {
	parity.Proves(t, "CFG-140")
	row := strings.ReplaceAll(contractOf(t, "CFG-140"), "PodLifecycleSleepAction(AllowZero)",
		"PodLifecycleSleepAction, PodLifecycleSleepActionAllowZero")
	names := strings.Split(strings.ReplaceAll(strings.TrimSpace(row), " ", ""), ",")
	if len(names) != 35 {
		t.Fatalf("%d gates in the row", len(names))
	}
	for _, name := range names {
		dir := write(t, map[string]string{
			"off.yaml": head + standaloneOK + "featureGates: {" + name + ": false}\n",
			"on.yaml":  head + standaloneOK + "featureGates: {" + name + ": true}\n",
		})
		for _, arg := range []string{"--config=" + dir + "/off.yaml", "--feature-gates=" + name + "=false"} {
			_, err := Load([]string{"--hostname-override=n", arg})
			var ps Problems
			want := fmt.Sprintf("cannot set feature gate %s to false, feature is locked to true", name)
			if !errors.As(err, &ps) || !slices.ContainsFunc(ps, func(p Problem) bool { return p.Why == want }) {
				t.Errorf("%s: %v, want %s", arg, err, want)
			}
		}
		if c := load(t, "--config="+dir+"/on.yaml"); !c.Gates.Enabled(name) || len(c.Warnings) > 0 {
			t.Errorf("%s: on %v, warnings %q", name, c.Gates.Enabled(name), c.Warnings)
		}
	}
}

// builtElsewhere are gates that have an effect although no call in the agent's source names them.
var builtElsewhere = map[string]string{
	"AtomicFIFO":                       "read by client-go",
	"ClientsAllowCARotation":           "read by client-go",
	"ClientsAllowCBOR":                 "read by client-go",
	"ClientsAllowTLSCacheGC":           "read by client-go",
	"ClientsPreferCBOR":                "read by client-go",
	"WatchListClient":                  "read by client-go",
	"AllAlpha":                         "sets the others",
	"AllBeta":                          "sets the others",
	"ClusterTrustBundle":               "needed by ClusterTrustBundleProjection",
	"UserNamespacesHostNetworkSupport": "read for the node's declared features",
}

// TestBuiltGatesAreRead: the gates that are reported as without effect are exactly those that the agent does
// not read.
func TestBuiltGatesAreRead(t *testing.T) {
	asked := map[string]bool{}
	inspect(t, func(n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 1 {
			return
		}
		f, method := call.Fun.(*ast.SelectorExpr)
		name, literal := call.Args[0].(*ast.BasicLit)
		if method && literal && f.Sel.Name == "Enabled" && name.Kind == token.STRING {
			asked[strings.Trim(name.Value, `"`)] = true
		}
	}, ".", "../app", "preflight", "settings", "../../cmd/kubelet")
	known := KnownGates()
	for _, gate := range slices.Sorted(maps.Keys(asked)) {
		if g, ok := known[gate]; !ok || !g.Locked && gate != "MemoryQoS" && !slices.Contains(builtGates, gate) {
			t.Errorf("%s is read, but reported as without effect", gate)
		}
	}
	for _, gate := range builtGates {
		if !asked[gate] && builtElsewhere[gate] == "" {
			t.Errorf("%s is listed as having an effect, but never read", gate)
		}
	}
	for _, gate := range []string{
		"InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingExclusiveCPUs",
		"InPlacePodVerticalScalingExclusiveMemory", "InPlacePodVerticalScalingInitContainers", "NodeDeclaredFeatures",
		"PodLevelResources", "RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport",
		"CustomCPUCFSQuotaPeriod", "LoggingBetaOptions",
	} {
		c := &Config{Gates: KnownGates()}
		setDefaults(&c.Kubelet, nil)
		c.Kubelet.FeatureGates = map[string]bool{gate: !known[gate].Default}
		g := c.Gates[gate]
		g.Enabled = !g.Default
		c.Gates[gate] = g
		if logged := unbuilt(c); logged != "" {
			t.Errorf("%s: %s", gate, logged)
		}
	}
}

// TestSettingsRequiringGates: such settings are rejected while their gate is off.
func TestSettingsRequiringGates(t *testing.T) {
	parity.ProvesPart(t, 3, "CFG-28")
	for yaml, want := range map[string]string{
		"featureGates: {CustomCPUCFSQuotaPeriod: false}\ncpuCFSQuotaPeriod: 50ms":                               "cpuCFSQuotaPeriod: 50ms must be 100ms",
		"featureGates: {KubeletCrashLoopBackOffMax: false}\ncrashLoopBackOff: {maxContainerRestartPeriod: 60s}": "crashLoopBackOff.maxContainerRestartPeriod: 1m0s must not be set",

		"featureGates: {LoggingBetaOptions: false}\nlogging: {format: json}": "logging.format: \"json\" needs the gate",
		"memoryReservationPolicy: TieredReservation":                         "memoryReservationPolicy: \"TieredReservation\" needs the gate",

		"featureGates: {KubeletEnsureSecretPulledImages: false}\npreloadedImagesVerificationAllowlist: [a]":            "preloadedImagesVerificationAllowlist: [a] must not be set",
		"featureGates: {KubeletEnsureSecretPulledImages: false}\nimagePullCredentialsVerificationPolicy: AlwaysVerify": "imagePullCredentialsVerificationPolicy: \"AlwaysVerify\" must not be set",

		"featureGates: {AllBeta: false}\nshutdownGracePeriod: 30s": "shutdownGracePeriod: 30s needs the gate",

		"featureGates: {RotateKubeletServerCertificate: false}\nserverTLSBootstrap: true": "serverTLSBootstrap: true needs the gate",
		"imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: " +
			"['registry.example/a:1']": "preloadedImagesVerificationAllowlist[0]: \"registry.example/a:1\" must be",
	} {
		dir := write(t, map[string]string{"k.yaml": head + standaloneOK + yaml + "\n"})
		_, err := Load([]string{"--hostname-override=n", "--config=" + dir + "/k.yaml"})
		var ps Problems
		if !errors.As(err, &ps) || len(ps) != 1 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", yaml, err, want)
		}
	}
	// Fields that have a default while their gate is on have none while it is off.
	dir := write(t, map[string]string{
		"off.yaml": head + standaloneOK +
			"featureGates: {KubeletCrashLoopBackOffMax: false, KubeletEnsureSecretPulledImages: false}\n",
		"beta.yaml": head + standaloneOK + "featureGates: {AllBeta: false}\n",
		"plain.yaml": head + standaloneOK +
			"imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\n" +
			"preloadedImagesVerificationAllowlist: [" + strings.Repeat("a", 64) + "]\n",
	})
	for _, args := range [][]string{
		{"--config=" + dir + "/off.yaml"},
		{"--config=" + dir + "/beta.yaml"},
	} {
		k := load(t, args...).Kubelet
		if k.CrashLoopBackOff.MaxContainerRestartPeriod != nil || k.ImagePullCredentialsVerificationPolicy != "" {
			t.Errorf("%v: %v, %q", args, k.CrashLoopBackOff.MaxContainerRestartPeriod,
				k.ImagePullCredentialsVerificationPolicy)
		}
	}
	load(t, "--config="+dir+"/plain.yaml")
}
