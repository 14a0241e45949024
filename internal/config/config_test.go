package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"keelson/test/kit/parity"
)

const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// standaloneOK makes a configuration with v1beta1 defaults valid without an API
// server.
const standaloneOK = "authentication: {webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n"

// write puts files into a fresh directory; the keys are relative paths.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func load(t *testing.T, args ...string) *Config {
	t.Helper()
	c, err := Load(append([]string{"--hostname-override=node-1"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLegacyDefaultsWithoutAFile(t *testing.T) {
	parity.Proves(t, "CFG-04", "CFG-05", "EVIC-04")
	k := load(t).Kubelet
	if !*k.Authentication.Anonymous.Enabled || *k.Authentication.Webhook.Enabled ||
		k.Authorization.Mode != "AlwaysAllow" || k.ReadOnlyPort != 10255 {
		t.Errorf("without a file: anonymous %v, webhook %v, mode %s, port %d",
			*k.Authentication.Anonymous.Enabled, *k.Authentication.Webhook.Enabled, k.Authorization.Mode,
			k.ReadOnlyPort)
	}
	if len(k.EvictionHard) != 0 {
		t.Errorf("without a file evictionHard = %v, want none", k.EvictionHard)
	}

	dir := write(t, map[string]string{"k.yaml": head})
	k = load(t, "--config="+dir+"/k.yaml", "--kubeconfig=/kc").Kubelet
	if *k.Authentication.Anonymous.Enabled || !*k.Authentication.Webhook.Enabled || k.Authorization.Mode != "Webhook" ||
		k.ReadOnlyPort != 0 {
		t.Errorf("with a file: anonymous %v, webhook %v, mode %s, port %d",
			*k.Authentication.Anonymous.Enabled, *k.Authentication.Webhook.Enabled, k.Authorization.Mode,
			k.ReadOnlyPort)
	}
	if want := map[string]string{
		"memory.available":   "100Mi",
		"nodefs.available":   "10%",
		"nodefs.inodesFree":  "5%",
		"imagefs.available":  "15%",
		"imagefs.inodesFree": "5%",
	}; !reflect.DeepEqual(k.EvictionHard, want) {
		t.Errorf("with a file evictionHard = %v", k.EvictionHard)
	}
	dir = write(t, map[string]string{"k.yaml": head + "evictionHard: {memory.available: 1Gi}\n"})
	k = load(t, "--config="+dir+"/k.yaml", "--kubeconfig=/kc").Kubelet
	if want := map[string]string{"memory.available": "1Gi"}; !reflect.DeepEqual(k.EvictionHard, want) {
		t.Errorf("with one threshold in the file evictionHard = %v", k.EvictionHard)
	}
	dir = write(t, map[string]string{"k.yaml": head + "evictionHard: {}\n"})
	if k = load(t, "--config="+dir+"/k.yaml", "--kubeconfig=/kc").Kubelet; len(k.EvictionHard) != 0 {
		t.Errorf("an empty map leaves evictionHard = %v, want none", k.EvictionHard)
	}
}

// The golden file is the response of the upstream kubelet to /configz with a nearly empty
// configuration file.
func TestDefaultsAreUpstreams(t *testing.T) {
	text, err := os.ReadFile("testdata/configz.json")
	if err != nil {
		t.Fatal(err)
	}
	placed := func(text string) string { return strings.ReplaceAll(text, "<work>", "/srv/node") } // paths are absolute
	var golden struct{ Kubeletconfig map[string]any }
	if err := json.Unmarshal([]byte(placed(string(text))), &golden); err != nil {
		t.Fatal(err)
	}
	dir := write(t, map[string]string{"k.yaml": head + placed(`
staticPodPath: <work>/manifests
tlsCertFile: <work>/kl/pki/kubelet.crt
tlsPrivateKeyFile: <work>/kl/pki/kubelet.key
authentication: {x509: {clientCAFile: <work>/pki/ca.crt}}
registryPullQPS: 0
clusterDomain: cluster.local
clusterDNS: [10.96.0.10]
imageGCHighThresholdPercent: 99
imageGCLowThresholdPercent: 98
maxPods: 250
resolvConf: <work>/resolv.conf
evictionHard: {imagefs.available: 1%, imagefs.inodesFree: 1%, memory.available: 100Mi, nodefs.available: 1%, nodefs.inodesFree: 1%}
failSwapOn: false
containerRuntimeEndpoint: unix://<work>/containerd.sock
failCgroupV1: false
`)})
	c := load(t, "--config="+dir+"/k.yaml", "--kubeconfig=/kc", "--v=2")
	if got := document(&c.Kubelet); !reflect.DeepEqual(got, golden.Kubeletconfig) {
		for k := range golden.Kubeletconfig {
			if !reflect.DeepEqual(got[k], golden.Kubeletconfig[k]) {
				t.Errorf("%s = %v, want %v", k, got[k], golden.Kubeletconfig[k])
			}
			delete(got, k)
		}
		t.Errorf("fields upstream does not show: %v", got)
	}
}

func TestPrecedence(t *testing.T) {
	parity.Proves(t, "CFG-02", "CFG-03")
	parity.ProvesPart(t, 2, "CFG-09") // the other is TestNullInAMap
	dir := write(t, map[string]string{
		"k.yaml": head + standaloneOK +
			"maxPods: 1\npodsPerCore: 1\neventBurst: 1\nclusterDNS: [1.1.1.1]\nsystemReserved: {cpu: '1', memory: 1Gi}\n" +
			"featureGates: {ContainerCheckpoint: false, EnvFiles: false}\nnodeStatusUpdateFrequency: 7s\nkubeReserved: " +
			"{cpu: '1'}\n",
		"d/10.conf": head +
			"podsPerCore: 2\neventBurst: 2\nclusterDNS: [2.2.2.2, 2.2.2.3]\nsystemReserved: {cpu: '2'}\n",
		"d/20/x.conf": head +
			"eventBurst: 3\nclusterDNS: [3.3.3.3]\nsystemReserved: {pid: '100'}\nkubeReserved: null\n",
		"d/30.yaml":     "not: read",
		"d/05.conf.bak": "not: read",
	})
	c := load(t, "--config="+dir+"/k.yaml", "--config-dir="+dir+"/d", "--event-burst=4",
		"--feature-gates=EnvFiles=true,KubeletSeparateDiskGC=false")
	k := c.Kubelet
	if k.MaxPods != 1 || k.PodsPerCore != 2 || k.EventBurst != 4 {
		t.Errorf("file, drop-in, flag: %d %d %d, want 1 2 4", k.MaxPods, k.PodsPerCore, k.EventBurst)
	}
	if !reflect.DeepEqual(k.ClusterDNS, []string{"3.3.3.3"}) {
		t.Errorf("a list is replaced whole: %v", k.ClusterDNS)
	}
	if want := map[string]string{
		"cpu":    "2",
		"memory": "1Gi",
		"pid":    "100",
	}; !reflect.DeepEqual(k.SystemReserved, want) {
		t.Errorf("a map is merged: %v, want %v", k.SystemReserved, want)
	}
	if k.KubeReserved != nil {
		t.Errorf("null deletes: %v", k.KubeReserved)
	}
	if want := map[string]bool{
		"ContainerCheckpoint":   false,
		"EnvFiles":              true,
		"KubeletSeparateDiskGC": false,
	}; !reflect.DeepEqual(k.FeatureGates, want) {
		t.Errorf("gates are merged by name: %v, want %v", k.FeatureGates, want)
	}
	for field, want := range map[string]string{
		"maxPods":               dir + "/k.yaml",
		"podsPerCore":           dir + "/d/10.conf",
		"eventBurst":            "flag --event-burst",
		"systemReserved.memory": dir + "/k.yaml",
		"systemReserved.pid":    dir + "/d/20/x.conf",
		"clusterDNS[0]":         dir + "/d/20/x.conf",
		"port":                  "",
	} {
		if got := c.Origins.Of(field); got != want {
			t.Errorf("origin of %s = %q, want %q", field, got, want)
		}
	}
}

func TestDropInsWithoutFileUseFlagDefaults(t *testing.T) {
	parity.Proves(t, "CFG-10")
	dir := write(t, map[string]string{"d/a.conf": head + "maxPods: 7\n"})
	k := load(t, "--config-dir="+dir+"/d", "--port=1234").Kubelet
	if !*k.Authentication.Anonymous.Enabled || *k.Authentication.Webhook.Enabled ||
		k.Authorization.Mode != "AlwaysAllow" || k.ReadOnlyPort != 10255 {
		t.Errorf("anonymous %v, tokens %v, mode %s, read-only port %d",
			*k.Authentication.Anonymous.Enabled, *k.Authentication.Webhook.Enabled, k.Authorization.Mode,
			k.ReadOnlyPort)
	}
	if k.MaxPods != 7 || k.Port != 1234 {
		t.Errorf("maxPods %d, port %d", k.MaxPods, k.Port)
	}
}

func TestDependentDefaults(t *testing.T) {
	parity.ProvesPart(t, 3, "CFG-70")
	parity.ProvesPart(t, 2, "CFG-72")
	parity.ProvesPart(t, 2, "CFG-62")
	dir := write(t, map[string]string{"k.yaml": head + standaloneOK +
		"nodeStatusUpdateFrequency: 7s\nmaxParallelImagePulls: 2\nevictionPressureTransitionPeriod: 0s\npodPidsLimit: " +
		"-5\nmergeDefaultEvictionSettings: true\nevictionHard: {memory.available: 1Gi}\n"})
	k := load(t, "--config="+dir+"/k.yaml").Kubelet
	if k.NodeStatusReportFrequency.Duration != 7*time.Second || *k.SerializeImagePulls ||
		k.EvictionPressureTransitionPeriod.Duration != 5*time.Minute || *k.PodPidsLimit != -1 {
		t.Errorf("report %v, serialize %v, transition %v, pids %d",
			k.NodeStatusReportFrequency, *k.SerializeImagePulls, k.EvictionPressureTransitionPeriod, *k.PodPidsLimit)
	}
	if k.EvictionHard["memory.available"] != "1Gi" || k.EvictionHard["nodefs.available"] != "10%" {
		t.Errorf("merged evictionHard = %v", k.EvictionHard)
	}
}

// TestUnknownFieldsAndWrongTypesAreReported: Load reports values of a wrong type, unknown fields, and documents that
// are not read.
func TestUnknownFieldsAndWrongTypesAreReported(t *testing.T) {
	dir := write(t, map[string]string{
		"a.yaml": head + standaloneOK + "maxPods: nine\nmaxPodz: 3\nlogging: {verbosity: high, loud: true}\n",
		"b.yaml": "# The first one is empty.\n---\n" + head + standaloneOK + "maxPods: 9\n---\nmaxPods: 8\n---\n",
		"c.yaml": "---\n" + head + standaloneOK + "maxPods: 9\n---\n",
	})
	c, err := Load([]string{"--config=" + dir + "/a.yaml"})
	if err == nil || !strings.Contains(err.Error(), "a.yaml: maxPods: ") ||
		!strings.Contains(err.Error(), "a.yaml: logging.verbosity: ") {
		t.Errorf("misfits: %v", err)
	}
	if len(c.Warnings) == 0 || !strings.Contains(c.Warnings[0], `unknown field "maxPodz"`) ||
		!strings.Contains(c.Warnings[0], `unknown field "logging.loud"`) {
		t.Errorf("warnings beside mismatches: %q", c.Warnings)
	}
	c = load(t, "--config="+dir+"/c.yaml")
	if len(c.Warnings) != 0 || c.Kubelet.MaxPods != 9 {
		t.Errorf("a file with marks around its document: %q, maxPods %d", c.Warnings, c.Kubelet.MaxPods)
	}
	c, err = Load([]string{"--config=" + dir + "/b.yaml"})
	if len(c.Warnings) == 0 || !strings.Contains(c.Warnings[0], "only the first of its 2 documents counts") {
		t.Errorf("a file of two documents: %q, %v", c.Warnings, err)
	}
}

func TestLenientDecoding(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-01")
	dir := write(t, map[string]string{
		"k.yaml": head + standaloneOK + "maxPods: 9\nmaxPodz: 3\nport: 1\nport: 2\n",
		"k.json": `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxPods":8,"authentication":{"webhook":{"enabled":false}},"authorization":{"mode":"AlwaysAllow"}}`,
	})
	c := load(t, "--config="+dir+"/k.yaml")
	if c.Kubelet.MaxPods != 9 {
		t.Errorf("maxPods = %d: an unknown field beside it must not matter", c.Kubelet.MaxPods)
	}
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "Using lenient decoding") ||
		!strings.Contains(c.Warnings[0], `unknown field "maxPodz"`) ||
		!strings.Contains(c.Warnings[0], dir+"/k.yaml") ||
		!strings.Contains(c.Warnings[0], `"port" already set`) {
		t.Errorf("warnings = %q", c.Warnings)
	}
	t.Chdir(dir)
	if c := load(t, "--config=k.json"); c.Kubelet.MaxPods != 8 {
		t.Errorf("a JSON file by a relative path: maxPods = %d", c.Kubelet.MaxPods)
	}
}

func TestBadInputNamesFileFieldAndCause(t *testing.T) {
	parity.Proves(t, "CFG-08")
	parity.ProvesPart(t, 2, "CFG-01")
	parity.ProvesPart(t, 2, "CFG-78")
	for _, tc := range []struct {
		name, file string
		dropIn     string
		args       []string
		want       []string
	}{
		{
			name: "a misspelt kind",
			file: "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: Kubelet\n",
			want: []string{"k.yaml: kind: \"Kubelet\" must be KubeletConfiguration"},
		},
		{
			name: "a foreign version",
			file: "apiVersion: v1\nkind: KubeletConfiguration\n",
			want: []string{"k.yaml: apiVersion: \"v1\" must be kubelet.config.k8s.io/v1beta1"},
		},
		{name: "no YAML at all", file: head + "a: [1\n", want: []string{"k.yaml: yaml: line"}},
		{name: "a list", file: "- a\n", want: []string{"k.yaml", "not a map"}},
		{
			name: "a wrong type and a bad value",
			file: head + "maxPods: many\neventBurst: -1\n",
			args: []string{"--kubeconfig=x"},
			want: []string{"2 problems", `maxPods: "many" must be int32`, "eventBurst: -1 must not be negative"},
		},
		{
			name: "wrong types, all of them",
			args: []string{"--kubeconfig=x"},
			file: head +
				"maxPods: many\nsyncFrequency: soon\nauthentication: {anonymous: {enabled: 3}, webhook: {cacheTTL: x}}\n" +
				"clusterDNS: 1.1.1.1\n",
			want: []string{
				"5 problems", "k.yaml: maxPods: \"many\" must be int32, is a string",
				`k.yaml: syncFrequency: "soon" cannot be read: time: invalid duration "soon"`,
				"k.yaml: authentication.anonymous.enabled: 3 must be bool, is a number",
				"k.yaml: authentication.webhook.cacheTTL",
				"k.yaml: clusterDNS",
			},
		},
		{
			name: "bad values, all of them",
			file: head + "nodeLeaseDurationSeconds: -1\nimageGCLowThresholdPercent: 90\nhealthzBindAddress: here\n",
			args: []string{"--max-pods=-3", "--kubeconfig=x"},
			want: []string{
				"invalid configuration, 4 problems:", "k.yaml: nodeLeaseDurationSeconds: -1 must be greater than 0",
				"k.yaml: imageGCLowThresholdPercent: 90 must be less than imageGCHighThresholdPercent, 85",
				`k.yaml: healthzBindAddress: "here" must be an IP address`,
				"flag --max-pods: maxPods: -3 must not be negative"},
		},
		{
			name:   "a drop-in without a kind",
			file:   head,
			dropIn: "maxPods: 3\n",
			want:   []string{"d/a.conf: apiVersion: must be", "d/a.conf: kind: must be"},
		},
		{
			name:   "a drop-in of a wrong type",
			file:   head,
			dropIn: head + "maxPods: {}\n",
			want:   []string{"d/a.conf: maxPods: \"{}\" must be int32"},
		},
		{
			name: "a missing file",
			args: []string{"--config=/nowhere/k.yaml"},
			want: []string{"read configuration file: open /nowhere/k.yaml: no such file"},
		},
		{
			name: "an unknown flag",
			args: []string{"--dynamic-config-dir=x"},
			want: []string{"failed to parse kubelet flag: unknown flag: --dynamic-config-dir"},
		},
		{name: "a word", args: []string{"foo"}, want: []string{`unknown command "foo"`}},
		{
			name: "an unknown gate",
			args: []string{"--feature-gates=Nope=true"},
			want: []string{"flag --feature-gates: featureGates.Nope: unrecognized feature gate: Nope"},
		},
		{
			name: "gates of a file",
			file: head + "featureGates: {Nope: true, SidecarContainers: false}\n",
			args: []string{"--kubeconfig=x"},
			want: []string{
				"2 problems",
				"k.yaml: featureGates.Nope: unrecognized feature gate: Nope",
				"k.yaml: featureGates.SidecarContainers: cannot set feature gate SidecarContainers to false",
			},
		},
		{
			name: "a locked gate",
			args: []string{"--feature-gates=SidecarContainers=false"},
			want: []string{"cannot set feature gate SidecarContainers to false, feature is locked to true"},
		},
		{name: "webhook without an API server", file: head, want: []string{
			"authentication.webhook.enabled: true needs an API server",
			"authorization.mode: \"Webhook\" needs an API server",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			files := map[string]string{}
			if tc.file != "" {
				files["k.yaml"] = tc.file
			}
			if tc.dropIn != "" {
				files["d/a.conf"] = tc.dropIn
			}
			dir := write(t, files)
			args := append([]string{"--hostname-override=n"}, tc.args...)
			if tc.file != "" {
				args = append(args, "--config="+dir+"/k.yaml")
			}
			if tc.dropIn != "" {
				args = append(args, "--config-dir="+dir+"/d")
			}
			_, err := Load(args)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error does not say %q:\n%v", want, err)
				}
			}
		})
	}
}

// flagRow matches the rows of the flag table of the parity inventory.
var flagRow = regexp.MustCompile(`(?m)^\| --([a-z0-9, -]+) \|`)

func TestEveryFlagOfTheInventoryExists(t *testing.T) {
	text, err := os.ReadFile("../../docs/parity/01b-flags-table.md")
	if err != nil {
		t.Fatal(err)
	}
	c := &Config{}
	setDefaults(&c.Kubelet, nil)
	fs := newFlagSet(c)
	rows := flagRow.FindAllStringSubmatch(string(text), -1)
	if len(rows) < 100 {
		t.Fatalf("found only %d flags in the table", len(rows))
	}
	for _, row := range rows {
		for name := range strings.SplitSeq(row[1], ", ") {
			if fs.Lookup(name) == nil {
				t.Errorf("no flag --%s", name)
			}
		}
	}
	for name := range strings.FieldsSeq("minimum-container-ttl-duration maximum-dead-containers-per-container " +
		"maximum-dead-containers experimental-mounter-path experimental-allocatable-ignore-eviction " +
		"housekeeping-interval application-metrics-count-limit boot-id-file container-hints containerd " +
		"containerd-namespace enable-load-reader event-storage-age-limit event-storage-event-limit " +
		"global-housekeeping-interval log-cadvisor-usage machine-id-file storage-driver-user " +
		"storage-driver-password storage-driver-host storage-driver-db storage-driver-table storage-driver-secure " +
		"storage-driver-buffer-duration") {
		if fs.Lookup(name) == nil {
			t.Errorf("no flag --%s", name)
		}
	}
	for name := range strings.FieldsSeq("pod-infra-container-image container-runtime dynamic-config-dir " +
		"network-plugin keep-terminated-pod-volumes register-schedulable") {
		if fs.Lookup(name) != nil {
			t.Errorf("flag --%s was removed and must fail", name)
		}
	}
}

// TestFieldsWithoutAFlag: fields that were added after the introduction of the configuration file have no flag.
func TestFieldsWithoutAFlag(t *testing.T) {
	parity.Proves(t, "CFG-124")
	c := &Config{}
	setDefaults(&c.Kubelet, nil)
	fs := newFlagSet(c)
	for _, field := range strings.Fields(
		`memorySwap.swapBehavior shutdownGracePeriod shutdownGracePeriodCriticalPods shutdownGracePeriodByPodPriority
		imageMaximumGCAge maxParallelImagePulls tracing crashLoopBackOff.maxContainerRestartPeriod userNamespaces.idsPerPod
		containerLogMaxWorkers containerLogMonitorInterval enableProfilingHandler podLogsDir tlsCurvePreferences`) {
		for flag, of := range fs.fields {
			if of == field {
				t.Errorf("--%s sets %s", flag, field)
			}
		}
		words := regexp.MustCompile("[A-Z]").ReplaceAllStringFunc(field[strings.LastIndex(field,
			".")+1:], func(s string) string { return "-" + strings.ToLower(s) })
		if fs.Lookup(words) != nil {
			t.Errorf("there is a flag --%s", words)
		}
	}
}

func TestFlagsReachTheirFields(t *testing.T) {
	parity.Proves(t, "CFG-13")
	parity.ProvesPart(t, 2, "CFG-121")
	c := load(t, "--eviction-hard=memory.available<1Gi,nodefs.available<5%",
		"--eviction-soft=memory.available<2Gi", "--eviction-soft-grace-period=memory.available=1m",
		"--register-with-taints=a=b:NoSchedule,c:NoExecute", "--reserved-memory=0:memory=1Gi,hugepages-2Mi=4Mi",
		"--reserved-memory=1:memory=2Gi",
		"--manifest-url-header=X-A:1,X-A:2", "--node_ip=10.0.0.1,fd00::1",
		"--node-labels=a=b,node.kubernetes.io/x=y", "--pod-max-pids=12", "--v=4",
		"--system-reserved=cpu=1", "--system-reserved=memory=1Gi", "--rotate-server-certificates", "--resolv-conf=",
		"--log-flush-frequency=2s", "--housekeeping-interval=5s")
	k := c.Kubelet
	got := []any{
		k.EvictionHard,
		k.RegisterWithTaints[1].Effect,
		k.RegisterWithTaints[0].Value,
		len(k.ReservedMemory),
		k.ReservedMemory[1].NumaNode,
		k.StaticPodURLHeader,
		*k.PodPidsLimit,
		int(k.Logging.Verbosity),
		k.SystemReserved,
		k.ServerTLSBootstrap,
		*k.ResolverConfig,
		c.Flags.NodeLabels["node.kubernetes.io/x"],
	}
	want := []any{
		map[string]string{"memory.available": "1Gi", "nodefs.available": "5%"},
		k.RegisterWithTaints[1].Effect,
		"b",
		2,
		int32(1),
		map[string][]string{"X-A": {"1", "2"}},
		int64(12),
		4,
		map[string]string{"cpu": "1", "memory": "1Gi"},
		true,
		"",
		"y",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if ips, _ := c.NodeIPs(); len(ips) != 2 || ips[0].String() != "10.0.0.1" {
		t.Errorf("node IPs %v", ips)
	}
	all := strings.Join(c.Warnings, "\n")
	for _, flag := range []string{"--pod-max-pids", "--eviction-hard"} {
		if !strings.Contains(all,
			"Flag "+flag+" has been deprecated, This parameter should be set via the config file") {
			t.Errorf("no deprecation of %s in:\n%s", flag, all)
		}
	}
	for _, flag := range []string{"--v ", "--log-flush-frequency", "--node-ip"} {
		if strings.Contains(all, "Flag "+flag) {
			t.Errorf("%s is not deprecated:\n%s", flag, all)
		}
	}
	if n := strings.Count(all, "settings without effect in this version: "); n != 1 ||
		!strings.Contains(all, "in this version: --housekeeping-interval") {
		t.Errorf("%d sentences about settings without effect:\n%s", n, all)
	}
}

func TestHelpAndVersion(t *testing.T) {
	parity.Proves(t, "CFG-11", "CFG-12")
	ask := func(arg string) string {
		t.Helper()
		_, err := Load([]string{arg})
		var a *Answer
		if !errors.As(err, &a) {
			t.Fatalf("%s: %v, want an answer", arg, err)
		}
		return a.Text
	}
	if got := ask("--version"); got != "Kubernetes "+version+"\n" || !strings.HasPrefix(got, "Kubernetes v1.36.") {
		t.Errorf("--version = %q", got)
	}
	if got := ask("--version=raw"); !strings.HasPrefix(got, `version.Info{Major:"1", Minor:"36"`) {
		t.Errorf("--version=raw = %q", got)
	}
	if c := load(t, "--version=v1.36.3-custom"); c.Version != "v1.36.3-custom" {
		t.Errorf("overridden version = %s", c.Version)
	}
	if _, err := Load([]string{"--version=v1.35.0"}); err == nil {
		t.Error("another release is accepted as version")
	}
	help := ask("--help")
	c := &Config{}
	setDefaults(&c.Kubelet, nil)
	fs := newFlagSet(c)
	fs.VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(help, "--"+f.Name+" ") && !strings.Contains(help, "--"+f.Name+"[") {
			t.Errorf("help does not show --%s", f.Name)
		}
	})
	for _, line := range strings.Split(help, "\n") {
		if len(line) > 140 {
			t.Errorf("line of %d characters: %s", len(line), line)
		}
	}
	if _, err := Load([]string{"word"}); err == nil || !strings.Contains(err.Error(), "unknown command") {
		t.Errorf("a word on the command line: %v", err)
	}
}

// TestGates: a setting by name overrides AllAlpha and AllBeta. A GA gate is on by default, and can be turned off only
// if it is not locked.
func TestGates(t *testing.T) {
	parity.Proves(t, "CFG-141", "CFG-147")
	parity.ProvesPart(t, 2, "CFG-78")
	g, ps := newGates(map[string]bool{
		"AllAlpha":                true,
		"EventedPLEG":             false,
		"CustomCPUCFSQuotaPeriod": false,
		"SidecarContainers":       true,
	})
	if len(ps) > 0 || !g.Enabled("MemoryQoS") || g.Enabled("EventedPLEG") {
		t.Fatal(ps, g)
	}
	if g, ps = newGates(map[string]bool{
		"AllBeta":                 false,
		"EnvFiles":                true,
		"CustomCPUCFSQuotaPeriod": false,
		"DRAPrioritizedList":      false,
		"SidecarContainers":       true,
	}); len(ps) > 0 {
		t.Fatal(ps)
	}
	for name, want := range map[string]bool{
		"MemoryQoS":               false,
		"EnvFiles":                true,
		"PodLevelResources":       false,
		"SidecarContainers":       true,
		"CustomCPUCFSQuotaPeriod": false,
		"DRAPrioritizedList":      false,
	} {
		if g.Enabled(name) != want {
			t.Errorf("%s = %v, want %v", name, g.Enabled(name), want)
		}
	}
	for _, name := range []string{"CustomCPUCFSQuotaPeriod", "DRAPrioritizedList"} {
		if !KnownGates().Enabled(name) {
			t.Errorf("%s is off by default", name)
		}
	}
	for name := range strings.FieldsSeq(
		"AuthorizeNodeWithSelectors CPUManagerPolicyOptions DynamicResourceAllocation " +
			"ExecProbeTimeout ImageVolume InPlacePodVerticalScaling KubeletFineGrainedAuthz NodeSwap " +
			"PodLifecycleSleepAction PodLifecycleSleepActionAllowZero ProcMountType SidecarContainers " +
			"UserNamespacesSupport VolumeAttributesClass InOrderInformers") {
		if _, ps := newGates(map[string]bool{name: false}); len(ps) != 1 {
			t.Errorf("%s can be turned off: %v", name, ps)
		}
	}
}

func TestNodeName(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-111")
	host := func() (string, error) { return " Machine.Example\n", nil }
	if n, err := nodeName("", host); n != "machine.example" || err != nil {
		t.Errorf("%q %v", n, err)
	}
	if n, _ := nodeName(" My-Node ", host); n != "my-node" {
		t.Errorf("%q", n)
	}
	if _, err := nodeName("  ", host); err == nil {
		t.Error("an empty name is accepted")
	}
}

// A gate whose feature is not implemented is reported as without effect, but only if it is enabled.
func TestAlphaGatesAreNamed(t *testing.T) {
	parity.Differs(t, "SRC-37", "0103")
	parity.Differs(t, "SRV-50", "0103")
	for _, gate := range []string{"PodLevelResourceManagers", "MemoryQoS"} {
		for on, want := range map[bool]string{
			true:  "settings without effect in this version: featureGates." + gate,
			false: "",
		} {
			logged := load(t, fmt.Sprintf("--feature-gates=%s=%v", gate, on)).Warnings
			if got := strings.Join(logged, "\n"); strings.Contains(got, "without effect") != on ||
				!strings.Contains(got, want) {
				t.Errorf("%s=%v: logged %q, want %q", gate, on, got, want)
			}
		}
	}
}

func TestNodeLabelsAreRestricted(t *testing.T) {
	parity.Proves(t, "CFG-115")
	load(t,
		"--node-labels=kubernetes.io/arch=amd64,node.kubernetes.io/any=1,x.kubelet.kubernetes.io/y=1,example.com/free=1,plain=1")
	_, err := Load([]string{"--hostname-override=n", "--node-labels=kubernetes.io/foo=bar,a.k8s.io/b=c"})
	if err == nil ||
		!strings.Contains(err.Error(), "unknown 'kubernetes.io' or 'k8s.io' labels specified: [a.k8s.io/b "+
			"kubernetes.io/foo]") {
		t.Errorf("foreign labels: %v", err)
	}
}

func TestParseNodeIPs(t *testing.T) {
	parity.ProvesPart(t, 3, "CFG-112")
	for _, tc := range []struct {
		in, want string
		ignored  int
		bad      bool
	}{
		{in: "", want: "[]"},
		{in: " 10.0.0.1 ", want: "[10.0.0.1]"},
		{in: "::", want: "[::]"},
		{in: "010.0.0.01", want: "[10.0.0.1]"},
		{in: "::ffff:10.0.0.1,fd00::1", want: "[10.0.0.1 fd00::1]"},
		{in: "fe80::1%eth0", want: "[]", ignored: 1},
		{in: "10.0.0.300", want: "[]", ignored: 1},
		{in: "10.0.0.1,fd00::1", want: "[10.0.0.1 fd00::1]"},
		{in: "nonsense,10.0.0.1", want: "[10.0.0.1]", ignored: 1},
		{in: "fd00::1,10.0.0.1", want: "[fd00::1 10.0.0.1]"},
		{in: "10.0.0.2,10.0.0.1", bad: true},
		{in: "10.0.0.2,fd00::1,fd00::2", bad: true},
		{in: "0.0.0.0,::", bad: true},
	} {
		ips, ignored, err := parseNodeIPs(tc.in)
		if (err != nil) != tc.bad || err == nil && (fmt.Sprint(ips) != tc.want || len(ignored) != tc.ignored) {
			t.Errorf("%q: %v ignored %v, %v", tc.in, ips, ignored, err)
		}
	}
}

func TestValidate(t *testing.T) {
	parity.ProvesPart(t, 3, "RES-34")
	parity.ProvesPart(t, 3, "LIFE-48")
	parity.Proves(t, "CFG-64", "CFG-87")
	for yaml, want := range map[string]string{
		"podLogsDir: logs":                     "podLogsDir",
		"podLogsDir: /var/lögs":                "podLogsDir",
		"podLogsDir: /var/log//pods":           "podLogsDir",
		"podLogsDir: /var/log/pods/":           "podLogsDir",
		"tracing: {endpoint: 'a b'}":           "tracing.endpoint",
		"enforceNodeAllocatable: [pods, pods]": "enforceNodeAllocatable",
		"{featureGates: {GracefulNodeShutdown: false, GracefulNodeShutdownBasedOnPodPriority: false, " +
			"WindowsGracefulNodeShutdown: false}, shutdownGracePeriod: 30s}": "shutdownGracePeriod",
		"{featureGates: {GracefulNodeShutdownBasedOnPodPriority: false}, shutdownGracePeriodByPodPriority: " +
			"[{priority: 0, shutdownGracePeriodSeconds: 5}]}": "shutdownGracePeriodByPodPriority",
		"imageGCHighThresholdPercent: 101": "imageGCHighThresholdPercent",
		"imageMaximumGCAge: 1m":            "imageMaximumGCAge",
		"runOnce: true":                    "runOnce",
		"cpuCFSQuotaPeriod: 2s":            "cpuCFSQuotaPeriod",
		"iptablesDropBit: 32":              "iptablesDropBit",
		"containerLogMaxFiles: 1":          "containerLogMaxFiles",
		"containerLogMaxWorkers: 0":        "containerLogMaxWorkers",
		"containerLogMonitorInterval: 2s":  "containerLogMonitorInterval",
		"containerLogMaxSize: big":         "containerLogMaxSize",
		"containerLogMaxSize: 1m":          "containerLogMaxSize",
		"reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}, " +
			"{numaNode: 0, limits: {memory: 1Gi}}]": "reservedMemory[1].limits.memory",
		"systemReserved: {gpu: '1'}":              "systemReserved.gpu",
		"kubeReserved: {memory: '-1Gi'}":          "kubeReserved.memory",
		"enforceNodeAllocatable: [none, pods]":    "enforceNodeAllocatable",
		"enforceNodeAllocatable: [nodes]":         "enforceNodeAllocatable",
		"enforceNodeAllocatable: [kube-reserved]": "kubeReservedCgroup",
		"{enforceNodeAllocatable: [kube-reserved, kube-reserved-compressible], kubeReservedCgroup: /k}": "enforceNodeAllocatable",
		"cgroupsPerQOS: false":                                            "enforceNodeAllocatable",
		"{reservedSystemCPUs: '0', kubeReservedCgroup: /k}":               "reservedSystemCPUs",
		"reservedSystemCPUs: 3-1":                                         "reservedSystemCPUs",
		"allowedUnsafeSysctls: [kernel.pid_max]":                          "allowedUnsafeSysctls[0]",
		"allowedUnsafeSysctls: ['net.*.x']":                               "allowedUnsafeSysctls[0]",
		"shutdownGracePeriod: 500ms":                                      "shutdownGracePeriod",
		"shutdownGracePeriodCriticalPods: 5s":                             "shutdownGracePeriodCriticalPods",
		"crashLoopBackOff: {maxContainerRestartPeriod: 301s}":             "crashLoopBackOff.maxContainerRestartPeriod",
		"crashLoopBackOff: {maxContainerRestartPeriod: 999ms}":            "crashLoopBackOff.maxContainerRestartPeriod",
		"oomScoreAdj: 1001":                                               "oomScoreAdj",
		"hairpinMode: loop":                                               "hairpinMode",
		"evictionHard: {memory.free: 1Gi}":                                "evictionHard.memory.free",
		"evictionHard: {memory.available: 101%}":                          "evictionHard.memory.available",
		"evictionSoft: {memory.available: 1Gi}":                           "evictionSoft.memory.available",
		"maxParallelImagePulls: 0":                                        "maxParallelImagePulls",
		"{maxParallelImagePulls: 2, serializeImagePulls: true}":           "maxParallelImagePulls",
		"registerWithTaints: [{key: a, effect: Never}]":                   "registerWithTaints[0].effect",
		"userNamespaces: {idsPerPod: 100}":                                "userNamespaces.idsPerPod",
		"tlsMinVersion: VersionTLS9":                                      "tlsMinVersion",
		"tlsCipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, ROT13]": "tlsCipherSuites[1]",
		"tlsCipherSuites: [TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384]":        "tlsCipherSuites",
		"tlsCertFile: /x":                                                 "tlsCertFile",
		"qosReserved: {memory: 50%}":                                      "qosReserved",
		"logging: {format: xml}":                                          "logging.format",
		// a policy for Windows only
		"memoryManagerPolicy: BestEffort": "memoryManagerPolicy",
	} {
		t.Run(yaml, func(t *testing.T) {
			dir := write(t, map[string]string{"k.json": head, "over/a.conf": head + yaml})
			if strings.HasPrefix(yaml, "{") {
				dir = write(t, map[string]string{
					"k.json": head,
					"over/a.conf": "{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, " +
						yaml[1:],
				})
			}
			_, err := Load([]string{
				"--hostname-override=n",
				"--kubeconfig=x",
				"--config=" + dir + "/k.json",
				"--config-dir=" + dir + "/over",
			})
			var ps Problems
			if !errors.As(err, &ps) || len(ps) != 1 || ps[0].Field != want {
				t.Errorf("problems = %v, want one about %s", err, want)
			}
		})
	}
	for _, yaml := range []string{
		"crashLoopBackOff: {maxContainerRestartPeriod: 1s}", "crashLoopBackOff: {maxContainerRestartPeriod: 300s}",
		"memoryManagerPolicy: None", "allowedUnsafeSysctls: ['net.core.*', kernel.msgmax, net/ipv4/tcp_rmem]",
		"reservedSystemCPUs: 0-1,4", "enforceNodeAllocatable: [none]", "enforceNodeAllocatable: []",
		"evictionHard: {memory.available: 5%, pid.available: 0%}",
	} {
		dir := write(t, map[string]string{"k.yaml": head + yaml})
		load(t, "--kubeconfig=x", "--config="+dir+"/k.yaml")
	}
}

func TestHeadersAreMasked(t *testing.T) {
	c := load(t, "--manifest-url-header=Authorization:secret-1,X:secret-2")
	b, err := json.Marshal(c.Masked())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), "secret") || !strings.Contains(string(b), `"Authorization":["\u003cmasked\u003e"]`) {
		t.Errorf("masked: %s", b)
	}
	if c.Kubelet.StaticPodURLHeader["X"][0] != "secret-2" {
		t.Error("masking changed the configuration")
	}
}

// TestHeadersAreMaskedInAllOutput: header values are masked in the changes after a reload, and in
// the error for a value of a wrong type.
func TestHeadersAreMaskedInAllOutput(t *testing.T) {
	old, now := load(t, "--manifest-url-header=Authorization:secret-1,X:1"), load(t,
		"--manifest-url-header=Authorization:secret-2,Y:secret-3", "--max-pods=7")
	want := []Change{{"maxPods", "110", "7"}, {"staticPodURLHeader.Authorization", `"<masked>"`, `"<masked>"`},
		{"staticPodURLHeader.X", `"<masked>"`, "null"}, {"staticPodURLHeader.Y", "null", `"<masked>"`}}
	if got := Changes(&old.Kubelet, &now.Kubelet); !slices.Equal(got, want) {
		t.Errorf("changes %q, want %q", got, want)
	}
	dir := write(t, map[string]string{
		"config.yaml": head + "staticPodURLHeader: {Authorization: Bearer secret}\nmaxPods: many\n",
	})
	_, err := Load([]string{"--config", filepath.Join(dir, "config.yaml")})
	if err == nil || strings.Contains(err.Error(), "secret") ||
		!strings.Contains(err.Error(), `staticPodURLHeader.Authorization: "<masked>" must be`) ||
		!strings.Contains(err.Error(), `maxPods: "many"`) {
		t.Errorf("reported: %v", err)
	}
}

// TestRelativePathsAreResolvedFromFile: relative paths in the configuration file are resolved against
// its directory, as by upstream's kubelet v1.36.3. Those in drop-ins and flags are not changed.
func TestRelativePathsAreResolvedFromFile(t *testing.T) {
	dir := write(t, map[string]string{
		"etc/k.yaml": head + standaloneOK[strings.Index(standaloneOK,
			"authorization"):] + "authentication: {webhook: {enabled: false}, x509: {clientCAFile: pki/ca.crt}}\n" +
			"staticPodPath: manifests\nresolvConf: ../run/resolv.conf\ntlsCertFile: tls.crt\ntlsPrivateKeyFile: " +
			"/elsewhere/tls.key\nvolumePluginDir: flex\n",
		"over/a.conf": head + "staticPodPath: dropped\n",
	})
	etc := filepath.Join(dir, "etc")
	t.Chdir(etc)
	shown := func(args ...string) string {
		k := &load(t, args...).Kubelet
		return strings.Join([]string{
			k.StaticPodPath,
			k.Authentication.X509.ClientCAFile,
			k.TLSCertFile,
			k.TLSPrivateKeyFile,
			*k.ResolverConfig,
			k.VolumePluginDir,
		}, " ")
	}
	rest := fmt.Sprintf(
		" %[1]s/etc/pki/ca.crt %[1]s/etc/tls.crt /elsewhere/tls.key %[1]s/run/resolv.conf %[1]s/etc/flex",
		dir)
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--config=" + etc + "/k.yaml"}, etc + "/manifests"},
		{[]string{"--config=k.yaml"}, etc + "/manifests"},
		{[]string{"--config=k.yaml", "--config-dir=../over"}, "dropped"},
		{[]string{"--config=k.yaml", "--pod-manifest-path=given"}, "given"},
	} {
		if got := shown(tc.args...); got != tc.want+rest {
			t.Errorf("%v: %s, want %s", tc.args, got, tc.want+rest)
		}
	}
	none := write(t, map[string]string{"k.yaml": head + standaloneOK + "resolvConf: ''\n"})
	if k := load(t, "--config="+none+"/k.yaml").Kubelet; *k.ResolverConfig != "" || k.StaticPodPath != "" {
		t.Errorf("what is empty became %q, %q", *k.ResolverConfig, k.StaticPodPath)
	}
}

// TestGateDependencies: a gate that is on while a gate that it depends on is off is an error.
func TestGateDependencies(t *testing.T) {
	_, ps := newGates(map[string]bool{"PodLevelResources": false})
	if want := "InPlacePodLevelResourcesVerticalScaling is enabled, but depends on features that are disabled: " +
		"[PodLevelResources]"; len(ps) != 1 || ps[0].Why != want {
		t.Errorf("problems = %v, want %s", ps, want)
	}
	if _, ps := newGates(map[string]bool{"AtomicFIFO": false}); len(ps) != 4 {
		t.Errorf("without what four controllers need: %v", ps)
	}
	if _, ps := newGates(map[string]bool{
		"PodLevelResources":                       false,
		"InPlacePodLevelResourcesVerticalScaling": false,
	}); len(ps) > 0 {
		t.Errorf("both off: %v", ps)
	}
}

// TestConfigurationsRefusedByUpstream: regressions that a comparison of many configurations with
// upstream's kubelet has found.
func TestConfigurationsRefusedByUpstream(t *testing.T) {
	dir := write(t, map[string]string{
		"plain.yaml":  head + standaloneOK,
		"system.yaml": head + standaloneOK + "systemCgroups: /system\n",
		"images.yaml": head + standaloneOK +
			"imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: " +
			"[registry/x.]\n",
		"pulls/1.conf": head + "maxParallelImagePulls: 3\n",
	})
	for want, args := range map[string][]string{
		"systemCgroups": {"--config=" + dir + "/system.yaml"},
		"preloadedImagesVerificationAllowlist[0]": {"--config=" + dir + "/images.yaml"},
		"maxParallelImagePulls": {"--config=" + dir + "/plain.yaml",
			"--config-dir=" + dir + "/pulls"},
		"malformed pair": {"--config=" + dir + "/plain.yaml", "--cpu-manager-policy-options="},
	} {
		if _, err := Load(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want %s", args, err, want)
		}
	}
}
