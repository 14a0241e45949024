package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"keelson/test/kit/parity"
)

// TestDefaultsOfTheRows: the defaults of the parity inventory. The values are upstream's, as literals.
func TestDefaultsOfTheRows(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-16")
	parity.ProvesPart(t, 2, "CFG-17")
	parity.ProvesPart(t, 2, "CFG-18")
	parity.ProvesPart(t, 3, "CFG-20")
	parity.ProvesPart(t, 2, "CFG-21")
	parity.ProvesPart(t, 3, "CFG-22")
	parity.ProvesPart(t, 2, "CFG-27")
	parity.ProvesPart(t, 2, "CFG-29")
	parity.ProvesPart(t, 3, "CFG-28")
	parity.ProvesPart(t, 2, "CFG-30")
	parity.ProvesPart(t, 3, "CFG-33")
	parity.ProvesPart(t, 2, "CFG-34")
	parity.ProvesPart(t, 2, "CFG-35")
	parity.ProvesPart(t, 2, "CFG-37")
	parity.ProvesPart(t, 3, "CFG-40")
	parity.ProvesPart(t, 3, "CFG-41")
	parity.ProvesPart(t, 2, "CFG-42")
	parity.ProvesPart(t, 2, "CFG-44")
	parity.ProvesPart(t, 3, "CFG-46")
	parity.ProvesPart(t, 3, "CFG-48")
	parity.ProvesPart(t, 3, "CFG-49")
	parity.ProvesPart(t, 2, "CFG-51")
	parity.ProvesPart(t, 3, "CFG-53")
	parity.ProvesPart(t, 2, "CFG-55")
	parity.ProvesPart(t, 3, "CFG-56")
	parity.ProvesPart(t, 2, "CFG-58")
	parity.ProvesPart(t, 2, "CFG-59")
	parity.ProvesPart(t, 2, "CFG-60")
	parity.ProvesPart(t, 2, "CFG-62")
	parity.ProvesPart(t, 2, "CFG-63")
	parity.ProvesPart(t, 3, "CFG-65")
	parity.ProvesPart(t, 2, "CFG-66")
	parity.ProvesPart(t, 2, "CFG-68")
	parity.ProvesPart(t, 2, "CFG-69")
	parity.ProvesPart(t, 3, "CFG-70")
	parity.ProvesPart(t, 3, "CFG-71")
	parity.ProvesPart(t, 2, "CFG-72")
	parity.ProvesPart(t, 2, "CFG-77")
	parity.ProvesPart(t, 3, "CFG-81")
	parity.ProvesPart(t, 2, "CFG-86")
	parity.ProvesPart(t, 5, "CFG-92")
	parity.ProvesPart(t, 2, "CFG-94")
	parity.ProvesPart(t, 3, "CFG-96")
	parity.ProvesPart(t, 2, "CFG-104")
	parity.ProvesPart(t, 2, "CFG-108")
	parity.ProvesPart(t, 3, "CFG-110")
	parity.ProvesPart(t, 3, "CFG-113")
	parity.ProvesPart(t, 3, "SRV-03")
	dir := write(t, map[string]string{
		"k.yaml":     head,
		"empty.yaml": head + "evictionHard: {}\n",
	})
	c := load(t, "--kubeconfig=/kc", "--config="+dir+"/k.yaml")
	shown := document(&c.Kubelet)
	for field, want := range map[string]any{
		"enableServer":                               true,
		"podLogsDir":                                 "/var/log/pods",
		"fileCheckFrequency":                         "20s",
		"httpCheckFrequency":                         "20s",
		"staticPodPath":                              nil, // "" is not written
		"staticPodURL":                               nil,
		"staticPodURLHeader":                         nil,
		"address":                                    "0.0.0.0",
		"port":                                       10250.0,
		"rotateCertificates":                         nil, // false is not written
		"serverTLSBootstrap":                         nil,
		"authentication.webhook.enabled":             true,
		"authentication.x509.clientCAFile":           nil,
		"authentication.webhook.cacheTTL":            "2m0s",
		"authorization.webhook.cacheAuthorizedTTL":   "5m0s",
		"authorization.webhook.cacheUnauthorizedTTL": "30s",
		"registryPullQPS":                            5.0,
		"registryBurst":                              10.0,
		"imagePullCredentialsVerificationPolicy":     "NeverVerifyPreloadedImages",
		"eventRecordQPS":                             50.0,
		"eventBurst":                                 100.0,
		"healthzPort":                                10248.0,
		"healthzBindAddress":                         "127.0.0.1",
		"oomScoreAdj":                                -999.0,
		"nodeStatusUpdateFrequency":                  "10s",
		"nodeLeaseDurationSeconds":                   40.0,
		"imageGCHighThresholdPercent":                85.0,
		"imageGCLowThresholdPercent":                 80.0,
		"volumeStatsAggPeriod":                       "1m0s",
		"cgroupsPerQOS":                              true,
		"cgroupRoot":                                 nil,
		"cpuManagerPolicy":                           "none",
		"cpuManagerPolicyOptions":                    nil,
		"cpuManagerReconcilePeriod":                  "10s",
		"memoryManagerPolicy":                        "None",
		"reservedMemory":                             nil,
		"topologyManagerPolicy":                      "none",
		"topologyManagerScope":                       "container",
		"topologyManagerPolicyOptions":               nil,
		"runtimeRequestTimeout":                      "2m0s",
		"hairpinMode":                                "promiscuous-bridge",
		"maxPods":                                    110.0,
		"podPidsLimit":                               -1.0,
		"resolvConf":                                 "/etc/resolv.conf",
		"clusterDomain":                              nil, // "" is not written
		"clusterDNS":                                 nil,
		"cpuCFSQuota":                                true,
		"cpuCFSQuotaPeriod":                          "100ms",
		"nodeStatusMaxImages":                        50.0,
		"contentType":                                "application/vnd.kubernetes.protobuf",
		"kubeAPIQPS":                                 50.0,
		"kubeAPIBurst":                               100.0,
		"serializeImagePulls":                        true,
		"maxParallelImagePulls":                      nil,
		"evictionSoft":                               nil,
		"evictionSoftGracePeriod":                    nil,
		"evictionMinimumReclaim":                     nil,
		"evictionPressureTransitionPeriod":           "5m0s",
		"evictionMaxPodGracePeriod":                  nil, // 0 is not written
		"iptablesMasqueradeBit":                      14.0,
		"iptablesDropBit":                            15.0,
		"containerLogMaxSize":                        "10Mi",
		"containerLogMaxFiles":                       5.0,
		"containerLogMaxWorkers":                     1.0,
		"containerLogMonitorInterval":                "10s",
		"systemReservedCgroup":                       nil,
		"kubeReservedCgroup":                         nil,
		"enforceNodeAllocatable":                     []any{"pods"},
		"logging.format":                             "text",
		"logging.flushFrequency":                     "5s",
		"logging.verbosity":                          0.0,
		"logging.vmodule":                            nil,
		"shutdownGracePeriod":                        "0s",
		"shutdownGracePeriodCriticalPods":            "0s",
		"crashLoopBackOff.maxContainerRestartPeriod": "5m0s",
		"containerRuntimeEndpoint":                   "unix:///run/containerd/containerd.sock",
		"imageServiceEndpoint":                       nil,
	} {
		if got := at(shown, field); !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %v, want %v", field, got, want)
		}
	}
	if c.Flags.RootDir != "/var/lib/kubelet" || c.Flags.CertDir != "/var/lib/kubelet/pki" {
		t.Errorf("directories %s, %s", c.Flags.RootDir, c.Flags.CertDir)
	}
	bare := &Config{}
	setDefaults(&bare.Kubelet, nil)
	fs := newFlagSet(bare)
	for _, name := range []string{"config", "config-dir", "bootstrap-kubeconfig"} {
		if f := fs.Lookup(name); f == nil || f.DefValue != "" {
			t.Errorf("--%s: %+v, want it empty by default", name, f)
		}
	}
	if k := load(t, "--kubeconfig=/kc", "--config="+dir+"/empty.yaml").Kubelet; len(k.EvictionHard) != 0 {
		t.Errorf("evictionHard: {} is %v", k.EvictionHard)
	}
}

// TestBoundsOfTheRows: values at the bounds in the parity inventory are accepted, values beyond are rejected.
func TestBoundsOfTheRows(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-18")
	parity.ProvesPart(t, 3, "CFG-22")
	parity.ProvesPart(t, 2, "CFG-23")
	parity.ProvesPart(t, 2, "CFG-25")
	parity.ProvesPart(t, 3, "CFG-41")
	parity.ProvesPart(t, 3, "CFG-46")
	parity.ProvesPart(t, 3, "CFG-48")
	parity.ProvesPart(t, 2, "CFG-59")
	parity.ProvesPart(t, 3, "CFG-65")
	parity.ProvesPart(t, 3, "CFG-70")
	parity.ProvesPart(t, 2, "CFG-77")
	parity.ProvesPart(t, 3, "CFG-80")
	parity.ProvesPart(t, 3, "CFG-81")
	parity.Proves(t, "CFG-83")
	parity.ProvesPart(t, 2, "CFG-86")
	parity.ProvesPart(t, 2, "CFG-94")
	parity.ProvesPart(t, 3, "CFG-96")
	parity.ProvesPart(t, 2, "CFG-101")
	many := "{cpu: '1', memory: 1Gi, ephemeral-storage: 1Gi, pid: '9'}"
	for _, row := range []struct {
		field   string
		taken   []string // YAML of the whole configuration
		refused []string
	}{
		{
			field:   "podLogsDir",
			taken:   []string{"podLogsDir: /a/b", "podLogsDir: ''"}, // which is the default
			refused: []string{"podLogsDir: /a/../b", "podLogsDir: /a//b", "podLogsDir: /a/", "podLogsDir: /ä"},
		},
		{
			field:   "port",
			taken:   []string{"port: 1", "port: 65535", "port: 0"}, // which is the default
			refused: []string{"port: -1", "port: 65536"},
		},
		{
			field:   "readOnlyPort",
			taken:   []string{"readOnlyPort: 0", "readOnlyPort: 1", "readOnlyPort: 65535"},
			refused: []string{"readOnlyPort: -1", "readOnlyPort: 65536"},
		},
		{
			field: "tlsMinVersion",
			taken: []string{
				"tlsMinVersion: VersionTLS10",
				"tlsMinVersion: VersionTLS11",
				"tlsMinVersion: VersionTLS12",
				"tlsMinVersion: VersionTLS13",
				"tlsMinVersion: ''",
			},
			refused: []string{"tlsMinVersion: VersionTLS14", "tlsMinVersion: '1.2'"},
		},
		{
			field:   "oomScoreAdj",
			taken:   []string{"oomScoreAdj: -1000", "oomScoreAdj: 1000", "oomScoreAdj: 0"},
			refused: []string{"oomScoreAdj: -1001", "oomScoreAdj: 1001"},
		},
		{
			field:   "nodeLeaseDurationSeconds",
			taken:   []string{"nodeLeaseDurationSeconds: 1", "nodeLeaseDurationSeconds: 0"}, // which is the default
			refused: []string{"nodeLeaseDurationSeconds: -1"},
		},
		{
			field: "imageGCHighThresholdPercent",
			taken: []string{
				"imageGCHighThresholdPercent: 100",
				"imageGCHighThresholdPercent: 1\nimageGCLowThresholdPercent: 0",
			},
			refused: []string{"imageGCHighThresholdPercent: 101"},
		},
		{
			field: "imageGCLowThresholdPercent",
			taken: []string{"imageGCLowThresholdPercent: 84"},
			refused: []string{
				"imageGCLowThresholdPercent: 85",
				"imageGCLowThresholdPercent: -1",
				"imageGCHighThresholdPercent: 0\nimageGCLowThresholdPercent: 0",
			},
		},
		{
			field:   "hairpinMode",
			taken:   []string{"hairpinMode: promiscuous-bridge", "hairpinMode: hairpin-veth", "hairpinMode: none"},
			refused: []string{"hairpinMode: None"},
		},
		{
			field:   "cpuCFSQuotaPeriod",
			taken:   []string{"cpuCFSQuotaPeriod: 1ms", "cpuCFSQuotaPeriod: 1s"},
			refused: []string{"cpuCFSQuotaPeriod: 999us", "cpuCFSQuotaPeriod: 1001ms"},
		},
		{
			field: "maxParallelImagePulls",
			taken: []string{
				"maxParallelImagePulls: 1",
				"maxParallelImagePulls: 1\nserializeImagePulls: true",
				"maxParallelImagePulls: 2\nserializeImagePulls: false",
				"maxParallelImagePulls: 2",
			},
			refused: []string{
				"maxParallelImagePulls: 0\nserializeImagePulls: false",
				"maxParallelImagePulls: -1",
				"maxParallelImagePulls: 2\nserializeImagePulls: true",
			},
		},
		{
			field:   "iptablesMasqueradeBit",
			taken:   []string{"iptablesMasqueradeBit: 0", "iptablesMasqueradeBit: 31"},
			refused: []string{"iptablesMasqueradeBit: -1", "iptablesMasqueradeBit: 32"},
		},
		{
			field:   "iptablesDropBit",
			taken:   []string{"iptablesDropBit: 0", "iptablesDropBit: 31"},
			refused: []string{"iptablesDropBit: -1", "iptablesDropBit: 32"},
		},
		{
			field: "memorySwap.swapBehavior",
			taken: []string{
				"memorySwap: {swapBehavior: ''}",
				"memorySwap: {swapBehavior: NoSwap}",
				"memorySwap: {swapBehavior: LimitedSwap}",
			},
			refused: []string{"memorySwap: {swapBehavior: UnlimitedSwap}"},
		},
		{
			field:   "containerLogMaxFiles",
			taken:   []string{"containerLogMaxFiles: 2"},
			refused: []string{"containerLogMaxFiles: 1", "containerLogMaxFiles: 0"},
		},
		{
			field:   "containerLogMaxWorkers",
			taken:   []string{"containerLogMaxWorkers: 1"},
			refused: []string{"containerLogMaxWorkers: 0"},
		},
		{
			field:   "containerLogMonitorInterval",
			taken:   []string{"containerLogMonitorInterval: 3s"},
			refused: []string{"containerLogMonitorInterval: 2999ms", "containerLogMonitorInterval: 0s"},
		},
		{
			field:   "containerLogMaxSize",
			taken:   []string{"containerLogMaxSize: '-1'", "containerLogMaxSize: 1k", "containerLogMaxSize: 10Mi"},
			refused: []string{"containerLogMaxSize: big", "containerLogMaxSize: 1m"},
		},
		{
			field: "systemReserved",
			taken: []string{"systemReserved: " + many, ""},
			refused: []string{
				"systemReserved: {hugepages-2Mi: 2Mi}",
				"systemReserved: {cpu: '-1'}",
				"systemReserved: {memory: -1Gi}",
				"systemReserved: {pid: some}",
			},
		},
		{
			field: "kubeReserved",
			taken: []string{"kubeReserved: " + many},
			refused: []string{
				"kubeReserved: {storage: 2Mi}",
				"kubeReserved: {ephemeral-storage: '-1'}",
				"kubeReserved: {pid: '-1'}",
			},
		},
		{
			field: "enforceNodeAllocatable",
			taken: []string{
				"enforceNodeAllocatable: [none]",
				"enforceNodeAllocatable: []",
				"enforceNodeAllocatable: [none]\ncgroupsPerQOS: false",
				"enforceNodeAllocatable: [pods, system-reserved, kube-reserved]\nsystemReservedCgroup: /s\nkubeReservedCgroup: /k",
				"enforceNodeAllocatable: [system-reserved-compressible, kube-reserved-compressible]\n" +
					"systemReservedCgroup: /s\nkubeReservedCgroup: /k",
			},
			refused: []string{
				"enforceNodeAllocatable: [none, pods]", "enforceNodeAllocatable: [everything]", "cgroupsPerQOS: false",
				"enforceNodeAllocatable: [system-reserved, system-reserved-compressible]\nsystemReservedCgroup: /s",
				"enforceNodeAllocatable: [kube-reserved, kube-reserved-compressible]\nkubeReservedCgroup: /k",
			},
		},
		{
			field: "systemReservedCgroup",
			refused: []string{
				"enforceNodeAllocatable: [system-reserved]",
				"enforceNodeAllocatable: [system-reserved-compressible]",
			},
		},
		{
			field: "kubeReservedCgroup",
			refused: []string{"enforceNodeAllocatable: [kube-reserved]",
				"enforceNodeAllocatable: [kube-reserved-compressible]"},
		},
		{
			field:   "shutdownGracePeriod",
			taken:   []string{"shutdownGracePeriod: 0s", "shutdownGracePeriod: 1s"},
			refused: []string{"shutdownGracePeriod: 999ms"},
		},
		{
			field: "shutdownGracePeriodCriticalPods",
			taken: []string{
				"shutdownGracePeriod: 9s\nshutdownGracePeriodCriticalPods: 9s",
				"shutdownGracePeriod: 9s\nshutdownGracePeriodCriticalPods: 1s",
			},
			refused: []string{
				"shutdownGracePeriod: 9s\nshutdownGracePeriodCriticalPods: 10s",
				"shutdownGracePeriod: 9s\nshutdownGracePeriodCriticalPods: 999ms",
			},
		},
		{
			field: "crashLoopBackOff.maxContainerRestartPeriod",
			taken: []string{
				"crashLoopBackOff: {maxContainerRestartPeriod: 1s}",
				"crashLoopBackOff: {maxContainerRestartPeriod: 300s}",
			},
			refused: []string{
				"crashLoopBackOff: {maxContainerRestartPeriod: 999ms}",
				"crashLoopBackOff: {maxContainerRestartPeriod: 301s}",
			},
		},
		{
			field: "registerWithTaints",
			taken: []string{
				"registerWithTaints: [{key: a.b/c, value: d, effect: NoExecute}, {key: e, effect: PreferNoSchedule}]",
			},
			refused: []string{"registerWithTaints: [{key: a, effect: NoSchedule, timeAdded: '2026-01-01T00:00:00Z'}]"},
		},
	} {
		for _, yaml := range row.taken {
			dir := write(t, map[string]string{"k.yaml": head + yaml + "\n"})
			if _, err := Load([]string{"--hostname-override=n", "--kubeconfig=x",
				"--config=" + dir + "/k.yaml"}); err != nil {
				t.Errorf("%q: %v", yaml, err)
			}
		}
		for _, yaml := range row.refused {
			dir := write(t, map[string]string{"k.yaml": head + yaml + "\n"})
			wrong(t, row.field, "--config="+dir+"/k.yaml")
		}
	}
	// A relative path in the configuration file is resolved against its directory. One in a drop-in is not changed, and
	// is rejected.
	for _, path := range []string{"a", "./a", "../a"} {
		dir := write(t, map[string]string{"k.yaml": head, "d/a.conf": head + "podLogsDir: " + path + "\n"})
		wrong(t, "podLogsDir", "--config="+dir+"/k.yaml", "--config-dir="+dir+"/d")
	}
}

// wrong checks that a command line is rejected because of one field.
func wrong(t *testing.T, field string, args ...string) {
	t.Helper()
	_, err := Load(append([]string{"--hostname-override=n", "--kubeconfig=x"}, args...))
	var ps Problems
	if !errors.As(err, &ps) || len(ps) != 1 || !strings.HasPrefix(ps[0].Field, field) {
		t.Errorf("%v, want one problem with %s", err, field)
	}
}

// TestFlagsOfTheTable: each flag in the table of the parity inventory sets the field in its row, has the default in
// its row, and is deprecated unless it is one of the exceptions.
func TestFlagsOfTheTable(t *testing.T) {
	parity.Proves(t, "CFG-122")
	parity.ProvesPart(t, 2, "CFG-121")
	text, err := os.ReadFile("../../docs/parity/01b-flags-table.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| (--[a-z0-9, -]+) \| ([^|]*) \| ([^|]*) \|$`).
		FindAllStringSubmatch(string(text), -1)
	if len(rows) != 104 {
		t.Fatalf("%d rows in the table", len(rows))
	}
	c := &Config{}
	setDefaults(&c.Kubelet, nil)
	setFlagDefaults(&c.Kubelet)
	fs := newFlagSet(c)
	plain := map[string]bool{
		"v":                   true,
		"vmodule":             true,
		"log-flush-frequency": true,
		"provider-id":         true,
		"fail-cgroupv1":       true,
	}
	for _, row := range rows {
		for name := range strings.SplitSeq(row[1], ", ") {
			name = strings.TrimPrefix(name, "--")
			field, _, _ := strings.Cut(strings.TrimSpace(row[3]), " ")
			f := fs.Lookup(name)
			if f == nil || fs.fields[name] != field && !strings.HasPrefix(field, "logging") {
				t.Errorf("--%s sets %q, want %s", name, fs.fields[name], field)
				continue
			}
			const why = "This parameter should be set via the config file specified by the kubelet's --config flag. " +
				"See https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/ for more information."
			if plain[name] == (fs.deprecated[name] == why) {
				t.Errorf("--%s: deprecated %q", name, fs.deprecated[name])
			}
			if want, known := defaultOf(row[2]); known && field != "logging.options.*" &&
				sameDuration(f, want) != want {
				t.Errorf("--%s is %q by default, want %q", name, f.Value.String(), want)
			}
		}
	}
	var other []string
	fs.VisitAll(func(f *pflag.Flag) {
		if fs.fields[f.Name] != "" && !strings.Contains(string(text), f.Name+" |") &&
			!strings.Contains(string(text), f.Name+",") {
			other = append(other, f.Name)
		}
	})
	if len(other) > 0 {
		t.Errorf("flags that the table does not have: %v", other)
	}
}

// defaultOf is the value in a cell of the table, if there is a plain one.
func defaultOf(cell string) (string, bool) {
	cell, _, _ = strings.Cut(strings.TrimSpace(cell), " ")
	if cell == `""` {
		return "", true
	}
	return cell, regexp.MustCompile(`^[-a-zA-Z0-9./:]+$`).MatchString(cell)
}

// sameDuration returns the flag's value, or want if both are the same duration in different notation.
func sameDuration(f *pflag.Flag, want string) string {
	got := strings.Trim(f.Value.String(), "[]") // of a list
	if f.Value.Type() != "duration" {
		return got
	}
	for _, end := range []string{"m0s", "h0m0s"} {
		if short, ok := strings.CutSuffix(got, end); ok && short+end[:1] == want {
			return want
		}
	}
	return got
}

// TestCadvisorFlags: each cAdvisor flag is accepted, with upstream's warning. --housekeeping-interval has
// no effect, since usage is read on request.
func TestCadvisorFlags(t *testing.T) {
	parity.Differs(t, "CFG-123", "0050")
	const why = "This is a cadvisor flag that was mistakenly registered with the Kubelet. " +
		"Due to legacy concerns, it will follow the standard CLI deprecation timeline before being removed."
	for flag, value := range map[string][2]string{ // the default, and another
		"application-metrics-count-limit": {"100", "9223372036854775807"},
		"boot-id-file":                    {"/proc/sys/kernel/random/boot_id", "/x"},
		"container-hints":                 {"/etc/cadvisor/container_hints.json", "/x"},
		"containerd":                      {"/run/containerd/containerd.sock", "/x"},
		"containerd-namespace":            {"k8s.io", "x"},
		"enable-load-reader":              {"false", "true"},
		"event-storage-age-limit":         {"default=0", "x"},
		"event-storage-event-limit":       {"default=0", "x"},
		"global-housekeeping-interval":    {"1m0s", "2s"},
		"log-cadvisor-usage":              {"false", "true"},
		"machine-id-file":                 {"/etc/machine-id,/var/lib/dbus/machine-id", "/x"},
		"storage-driver-user":             {"root", "x"},
		"storage-driver-password":         {"root", "x"},
		"storage-driver-host":             {"localhost:8086", "x"},
		"storage-driver-db":               {"cadvisor", "x"},
		"storage-driver-table":            {"stats", "x"},
		"storage-driver-secure":           {"false", "true"},
		"storage-driver-buffer-duration":  {"1m0s", "2s"},
	} {
		if got := load(t).CommandLine[flag]; got != value[0] {
			t.Errorf("--%s is %q by default, want %q", flag, got, value[0])
		}
		c := load(t, "--"+flag+"="+value[1])
		want := []string{fmt.Sprintf("Flag --%s has been deprecated, %s", flag, why)}
		if !reflect.DeepEqual(c.Warnings, want) {
			t.Errorf("--%s: warnings %q", flag, c.Warnings)
		}
	}
	got := load(t, "--housekeeping-interval=10s")
	if got.CommandLine["housekeeping-interval"] != "10s" || len(got.Warnings) > 0 {
		t.Errorf("the default: %q", got.Warnings)
	}
	want := []string{"settings without effect in this version: --housekeeping-interval"}
	if got := load(t, "--housekeeping-interval=5s").Warnings; !reflect.DeepEqual(got, want) {
		t.Errorf("--housekeeping-interval: %q", got)
	}
}

// TestRemovedFlagsFail: removed flags are rejected as unknown.
func TestRemovedFlagsFail(t *testing.T) {
	parity.Proves(t, "CFG-125")
	for name := range strings.FieldsSeq("pod-infra-container-image container-runtime dynamic-config-dir " +
		"network-plugin keep-terminated-pod-volumes register-schedulable") {
		_, err := Load([]string{"--" + name + "=x"})
		if err == nil || !strings.Contains(err.Error(), "unknown flag: --"+name) {
			t.Errorf("--%s: %v", name, err)
		}
	}
}
