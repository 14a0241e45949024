package config

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"keelson/test/kit/parity"
)

// TestMergeDefaultEvictionSettings: default thresholds are merged into those of the configuration file, before
// drop-ins and flags are applied.
func TestMergeDefaultEvictionSettings(t *testing.T) {
	parity.Proves(t, "CFG-06")
	dir := write(t, map[string]string{
		"merge.yaml": head + standaloneOK + "mergeDefaultEvictionSettings: true\n" +
			"evictionHard: {memory.available: 1Gi, imagefs.available: 1%}\n",
		"plain.yaml":     head + standaloneOK + "evictionHard: {memory.available: 1Gi}\n",
		"off/a.conf":     head + "mergeDefaultEvictionSettings: false\n",
		"on/a.conf":      head + "mergeDefaultEvictionSettings: true\n",
		"without/a.conf": head + "evictionHard: {nodefs.available: null, pid.available: 5%}\n",
	})
	merged := map[string]string{
		"memory.available": "1Gi", "imagefs.available": "1%", // the file's
		"nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.inodesFree": "5%",
	}
	for _, tc := range []struct {
		args []string
		want map[string]string
	}{
		{
			[]string{"--config=" + dir + "/plain.yaml"},
			map[string]string{"memory.available": "1Gi"},
		},
		{
			[]string{"--config=" + dir + "/merge.yaml"},
			merged,
		},
		{
			[]string{"--config=" + dir + "/merge.yaml", "--config-dir=" + dir + "/off"},
			merged,
		},
		{
			[]string{"--config=" + dir + "/plain.yaml", "--config-dir=" + dir + "/on"},
			map[string]string{"memory.available": "1Gi"},
		},
		{
			[]string{"--config=" + dir + "/merge.yaml", "--config-dir=" + dir + "/without"},
			map[string]string{
				"memory.available": "1Gi", "imagefs.available": "1%",
				"nodefs.inodesFree": "5%", "imagefs.inodesFree": "5%", "pid.available": "5%",
			},
		},
		{
			[]string{"--config=" + dir + "/merge.yaml", "--eviction-hard=memory.available<2Gi"},
			map[string]string{"memory.available": "2Gi"},
		},
	} {
		if got := load(t, tc.args...).Kubelet.EvictionHard; !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%v: %v, want %v", tc.args, got, tc.want)
		}
	}
}

// TestNullInAMap: in a drop-in null removes the key, in the configuration file it is an invalid quantity.
func TestNullInAMap(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-09")
	dir := write(t, map[string]string{
		"k.yaml": head + standaloneOK + "systemReserved: {cpu: '1', memory: 1Gi}\n" +
			"evictionHard: {memory.available: 1Gi, nodefs.available: 5%}\n" +
			"featureGates: {EnvFiles: false, ContainerCheckpoint: false}\nclusterDNS: [1.1.1.1]\nmaxPods: 7\n",
		"null.yaml": head + standaloneOK + "evictionHard: {memory.available: null}\n",
		"d/a.conf": head + "systemReserved: {cpu: null, pid: null, ephemeral-storage: 1Gi}\n" +
			"evictionHard: {memory.available: null}\nfeatureGates: {EnvFiles: null}\n" +
			"kubeReserved: {cpu: null}\nclusterDNS: null\nmaxPods: null\n",
	})
	k := load(t, "--config="+dir+"/k.yaml", "--config-dir="+dir+"/d").Kubelet
	for what, pair := range map[string][2]any{
		"systemReserved": {k.SystemReserved, map[string]string{"memory": "1Gi", "ephemeral-storage": "1Gi"}},
		"evictionHard":   {k.EvictionHard, map[string]string{"nodefs.available": "5%"}},
		"featureGates":   {k.FeatureGates, map[string]bool{"ContainerCheckpoint": false}},
		"kubeReserved":   {len(k.KubeReserved), 0},
		"clusterDNS":     {len(k.ClusterDNS), 0},
		"maxPods":        {k.MaxPods, int32(110)}, // defaults are set again after the merge
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s = %v, want %v", what, pair[0], pair[1])
		}
	}
	_, err := Load([]string{"--hostname-override=n", "--config=" + dir + "/null.yaml"})
	var ps Problems
	if !errors.As(err, &ps) || len(ps) != 1 || ps[0].Field != "evictionHard.memory.available" {
		t.Errorf("null as an amount in the file: %v", err)
	}
}

// TestDropInsAreFiles: drop-ins are files or symlinks to files, in the order of their paths; symlinks to
// directories are not followed.
func TestDropInsAreFiles(t *testing.T) {
	parity.Proves(t, "CFG-07")
	dir := write(t, map[string]string{
		"k.yaml":             head + standaloneOK,
		"elsewhere/plain":    head + "maxPods: 7\neventBurst: 7\n",
		"elsewhere/far.conf": head + "maxPods: 9\n",
		"d/05.CONF":          "not: read",
		"d/10.conf.bak":      "not: read",
		"d/conf":             "not: read",
		"d/20.conf":          head + "maxPods: 2\npodsPerCore: 2\neventBurst: 2\nkubeAPIBurst: 2\n",
		"d/30.d/1.conf":      head + "podsPerCore: 3\neventBurst: 3\n",
		"d/40.d/a/b/.conf":   head + "eventBurst: 4\n",
		"none/x.yaml":        "not: read",
	})
	link := func(old, name string) {
		t.Helper()
		if err := os.Symlink(dir+"/"+old, dir+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	link("elsewhere/plain", "d/10.conf")
	link("elsewhere", "d/50")
	k := load(t, "--config="+dir+"/k.yaml", "--config-dir="+dir+"/d").Kubelet
	got := []int32{k.MaxPods, k.PodsPerCore, k.EventBurst, k.KubeAPIBurst}
	if !reflect.DeepEqual(got, []int32{2, 3, 4, 2}) {
		t.Errorf("merged: %v, want 2 3 4 2", got)
	}
	link("elsewhere/plain", "d/60.conf")
	if k := load(t, "--config="+dir+"/k.yaml", "--config-dir="+dir+"/d").Kubelet; k.MaxPods != 7 || k.EventBurst != 7 {
		t.Errorf("a link: maxPods %d, eventBurst %d, want 7 and 7", k.MaxPods, k.EventBurst)
	}
	for _, args := range [][]string{{"--config-dir=" + dir + "/none"}, {"--config-dir="}, nil} {
		if k := load(t, append(args, "--config="+dir+"/k.yaml")...).Kubelet; k.MaxPods != 110 {
			t.Errorf("%v: maxPods %d", args, k.MaxPods)
		}
	}
	for old, want := range map[string]string{
		"elsewhere": "70.conf is not a regular file",
		"nowhere":   "70.conf: no such file",
	} {
		link(old, "d/70.conf")
		_, err := Load([]string{"--hostname-override=n", "--config=" + dir + "/k.yaml", "--config-dir=" + dir + "/d"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a link to %s: %v, want %s", old, err, want)
		}
		if err := os.Remove(dir + "/d/70.conf"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReservedMemoryIsRounded: quantities in the configuration file are rounded up to thousandths, as by
// upstream's kubelet v1.36.3.
func TestReservedMemoryIsRounded(t *testing.T) {
	dir := write(t, map[string]string{
		"k.yaml":      head + standaloneOK + "reservedMemory: [{numaNode: 0, limits: {memory: 1u}}]\n",
		"none/a.conf": head,
		"over/a.conf": head + "reservedMemory: [{numaNode: 1, limits: {memory: 2u}}]\n",
	})
	for want, args := range map[string][]string{
		"1m": {"--config=" + dir + "/k.yaml"},
		"2m": {"--config=" + dir + "/k.yaml", "--config-dir=" + dir + "/none", "--reserved-memory=0:memory=2m"},
		"2u": {"--config=" + dir + "/k.yaml", "--config-dir=" + dir + "/over"},
	} {
		q := load(t, args...).Kubelet.ReservedMemory[0].Limits["memory"]
		if q.String() != want {
			t.Errorf("%v: %s, want %s", args, q.String(), want)
		}
	}
}

// TestDropInsKeepOwnFields: an own field of the configuration file is kept when drop-ins without it are merged.
func TestDropInsKeepOwnFields(t *testing.T) {
	dir := write(t, map[string]string{
		"k.yaml":   head + standaloneOK + "keelson.dev/devicePluginRegistrationTimeout: 90s\n",
		"d/a.conf": head + "maxPods: 9\n",
	})
	c := load(t, "--config="+dir+"/k.yaml", "--config-dir="+dir+"/d")
	if got := c.Own.DevicePluginRegistrationTimeout; got != 90*time.Second || c.Kubelet.MaxPods != 9 {
		t.Errorf("timeout %v, maxPods %d, want 1m30s and 9", got, c.Kubelet.MaxPods)
	}
}

// TestConfigz: the response to /configz has the same derived values as that of upstream's kubelet v1.36.3.
func TestConfigz(t *testing.T) {
	dir := write(t, map[string]string{
		"plain.yaml": head + standaloneOK,
		"cpus.yaml": head + standaloneOK + "reservedSystemCPUs: 0-1\ncgroupRoot: /pods\n" +
			"systemReserved: {cpu: 100m, memory: 1Gi}\nkubeReserved: {cpu: 100m, pid: '9'}\n",
		"kube.yaml": head + standaloneOK + "reservedSystemCPUs: 0,2,4\nkubeReserved: {cpu: 100m}\n" +
			"serverTLSBootstrap: true\n",
		"files.yaml": head + standaloneOK + "tlsCertFile: /a.crt\ntlsPrivateKeyFile: /a.key\n",
	})
	for _, tc := range []struct {
		file, driver string
		want         map[string]any
	}{
		{
			file:   "plain.yaml",
			driver: "systemd",
			want: map[string]any{
				"tlsCertFile":       "/certs/kubelet.crt",
				"tlsPrivateKeyFile": "/certs/kubelet.key",
				"cgroupRoot":        nil,
				"cgroupDriver":      "systemd",
				"systemReserved":    nil,
			},
		},
		{
			file:   "cpus.yaml",
			driver: "cgroupfs",
			want: map[string]any{
				"systemReserved": map[string]any{"cpu": "2", "memory": "1Gi"},
				"kubeReserved":   map[string]any{"pid": "9"},
				"cgroupRoot":     "/pods",
				"cgroupDriver":   "cgroupfs",
			},
		},
		{
			file:   "kube.yaml",
			driver: "cgroupfs",
			want: map[string]any{
				"systemReserved":    nil,
				"kubeReserved":      nil,
				"tlsCertFile":       nil,
				"tlsPrivateKeyFile": nil,
			},
		},
		{
			file:   "files.yaml",
			driver: "cgroupfs",
			want:   map[string]any{"tlsCertFile": "/a.crt", "tlsPrivateKeyFile": "/a.key"},
		},
	} {
		c := load(t, "--config="+dir+"/"+tc.file, "--cert-dir=/certs")
		shown := document(c.Configz(&c.Kubelet, tc.driver))
		for field, want := range tc.want {
			if !reflect.DeepEqual(shown[field], want) {
				t.Errorf("%s: %s is shown as %v, want %v", tc.file, field, shown[field], want)
			}
		}
	}
}

// TestDeprecatedFlagsWithoutAField: deprecated flags without a field have their effect, or a warning says that they
// have none.
func TestDeprecatedFlagsWithoutAField(t *testing.T) {
	parity.Proves(t, "CFG-120")
	const useEviction = "Use --eviction-hard or --eviction-soft instead. Will be removed in a future version."
	for _, tc := range []struct {
		flag, value, why string
		noEffect         bool
	}{
		{"minimum-container-ttl-duration", "5m0s", useEviction, true},
		{"minimum-container-ttl-duration", "0s", useEviction, false},
		{"maximum-dead-containers", "9", useEviction, true},
		{"maximum-dead-containers", "-1", useEviction, false},
		{"maximum-dead-containers-per-container", "3", useEviction, false},
		{"experimental-mounter-path", "/mounter", "will be removed in 1.25 or later. in favor of using CSI.", true},
		{"experimental-allocatable-ignore-eviction", "true", "will be removed in 1.25 or later.", false},
	} {
		logged := strings.Join(load(t, "--"+tc.flag+"="+tc.value).Warnings, "\n")
		if !strings.Contains(logged, "Flag --"+tc.flag+" has been deprecated, "+tc.why) {
			t.Errorf("--%s: logged %q", tc.flag, logged)
		}
		if got := strings.Contains(logged, "settings without effect in this version: --"+tc.flag); got != tc.noEffect {
			t.Errorf("--%s=%s: reported as without effect %v, want %v: %q", tc.flag, tc.value, got, tc.noEffect, logged)
		}
	}
	none := load(t).CommandLine
	for flag, want := range map[string]string{
		"minimum-container-ttl-duration":           "0s",
		"maximum-dead-containers-per-container":    "1",
		"maximum-dead-containers":                  "-1",
		"experimental-mounter-path":                "",
		"experimental-allocatable-ignore-eviction": "false",
	} {
		if none[flag] != want {
			t.Errorf("--%s is %q by default, want %q", flag, none[flag], want)
		}
	}
	f := load(t, "--maximum-dead-containers-per-container=3", "--experimental-allocatable-ignore-eviction").Flags
	if f.EndedInstances != 3 || !f.IgnoreEviction {
		t.Errorf("flags %+v", f)
	}
	_, err := Load([]string{"--minimum-container-ttl-duration=-1s"})
	if err == nil || !strings.Contains(err.Error(), "--minimum-container-ttl-duration: -1s must not be negative") {
		t.Errorf("an age below zero: %v", err)
	}
}

// TestWebhooksNeedAnAPIServer: also if the server is disabled.
func TestWebhooksNeedAnAPIServer(t *testing.T) {
	dir := write(t, map[string]string{"k.yaml": head + "enableServer: false\n"})
	_, err := Load([]string{"--hostname-override=n", "--config=" + dir + "/k.yaml"})
	var ps Problems
	if !errors.As(err, &ps) || len(ps) != 2 ||
		ps[0].Field != "authentication.webhook.enabled" || ps[1].Field != "authorization.mode" {
		t.Errorf("accepted without an API server: %v", err)
	}
}

// TestFlagsAreCheckedEachTime: an invalid value is an error even if a later flag overrides it, as upstream.
func TestFlagsAreCheckedEachTime(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string // of the field, or of the error
	}{
		{[]string{"--address=127.0.0.1", "--address="}, "127.0.0.1"},
		{[]string{"--address=here", "--address=127.0.0.1"}, `"here" is not a valid IP address`},
		{[]string{"--healthz-bind-address=here", "--healthz-bind-address=::"}, `"here" is not a valid IP address`},
		{[]string{"--reserved-memory=0:memory=1Gi", "--reserved-memory="}, "0:memory=1Gi"},
		{[]string{"--reserved-memory=0:memory=1Gi,hugepages-2Mi=2Mi"}, "0:hugepages-2Mi=2Mi,memory=1Gi"},
		{[]string{"--reserved-memory=0:cpu=1"}, `"cpu=1": want memory=quantity or hugepages-<size>=quantity`},
		{[]string{"--reserved-memory=0:memory=1Gi:1"}, `"0:memory=1Gi:1": want NUMA-node:type=quantity`},
		{[]string{"--reserved-memory=0: memory=1Gi"}, `" memory=1Gi": want memory=quantity`},
		{[]string{"--register-with-taints=a=b:NoSchedule", "--register-with-taints=c:NoExecute"}, "c:NoExecute"},
		{[]string{"--register-with-taints=a=b:NoSchedule", "--register-with-taints="}, ""},
		{[]string{"--register-with-taints=a=b:NoSchedule,c:NoSchedule-,d-"}, "a=b:NoSchedule"},
		{[]string{"--register-with-taints=a=b:NoSchedule,"}, "invalid taint spec: "},
		{[]string{"--register-with-taints=a=b:NoSchedule,a=c:NoSchedule"}, "duplicated taints with the same key and effect"},
		{[]string{"--register-with-taints=a=b"}, "invalid taint spec: a=b"},
		{[]string{"--register-with-taints=a=b:Never"}, "invalid taint spec: a=b:Never"},
		{[]string{"--register-with-taints=a=b:NoSchedule:NoExecute"}, "invalid taint spec"},
	} {
		flag := strings.TrimPrefix(strings.Split(tc.args[0], "=")[0], "--")
		c, err := Load(append([]string{"--hostname-override=n"}, tc.args...))
		switch {
		case err != nil &&
			!(strings.Contains(err.Error(), "failed to parse kubelet flag") && strings.Contains(err.Error(), tc.want)):
			t.Errorf("%v: %v, want %s", tc.args, err, tc.want)
		case err == nil && c.CommandLine[flag] != tc.want:
			t.Errorf("%v: %q, want %q", tc.args, c.CommandLine[flag], tc.want)
		}
	}
}

// TestUnusableSettings: such settings are rejected at the start. Upstream's kubelet exits later, or ignores
// them.
func TestUnusableSettings(t *testing.T) {
	parity.Differs(t, "CFG-148", "0117")
	refused := func(want string, args ...string) {
		t.Helper()
		_, err := Load(append([]string{"--hostname-override=n"}, args...))
		var ps Problems
		if !errors.As(err, &ps) || len(ps) != 1 || !strings.HasPrefix(ps[0].String(), ps[0].Origin) ||
			!strings.Contains(ps[0].String(), want) {
			t.Errorf("%v: %v, want %s", args, err, want)
		}
	}
	for yaml, want := range map[string]string{
		"address: here":                         `address: "here" must be an IP address`,
		"healthzBindAddress: here":              `healthzBindAddress: "here" must be an IP address`,
		"authorization: {mode: RBAC}":           `authorization.mode: "RBAC" must be one of AlwaysAllow, Webhook`,
		"tlsCertFile: /a.crt":                   `tlsCertFile: "/a.crt" and tlsPrivateKeyFile must be set together`,
		"cgroupDriver: upstart":                 `cgroupDriver: "upstart" must be one of cgroupfs, systemd`,
		"cpuManagerPolicy: dynamic":             `cpuManagerPolicy: "dynamic" must be one of none, static`,
		"memoryManagerPolicy: dynamic":          `memoryManagerPolicy: "dynamic" must be one of None, Static`,
		"fileCheckFrequency: -1s":               "fileCheckFrequency: -1s must be greater than 0",
		"httpCheckFrequency: -1s":               "httpCheckFrequency: -1s must be greater than 0",
		"nodeStatusReportFrequency: -1s":        "nodeStatusReportFrequency: -1s must be greater than 0",
		"runtimeRequestTimeout: -1s":            "runtimeRequestTimeout: -1s must be greater than 0",
		"evictionPressureTransitionPeriod: -1s": "evictionPressureTransitionPeriod: -1s must not be negative",
		"reservedSystemCPUs: '70000'":           `reservedSystemCPUs: "70000" must be a list of CPUs`,
		"registerWithTaints: [{key: a}]":        `registerWithTaints[0].effect: "" must be one of`,

		"reservedMemory: [{numaNode: 0, limits: {}}]": "reservedMemory[0].limits: must name at least one " +
			"kind of memory",
		"reservedMemory: [{numaNode: -1, limits: {memory: 1Gi}}]": "reservedMemory[0].numaNode: -1 must not be negative",
		"reservedMemory: [{numaNode: 0, limits: {memory: -1}}]": "reservedMemory[0].limits.memory: \"-1\" must be " +
			"greater than 0",
		"configMapAndSecretChangeDetectionStrategy: Guess": `configMapAndSecretChangeDetectionStrategy: "Guess" must be one of Get, Cache, Watch`,

		"nodeStatusUpdateFrequency: -1s\nnodeStatusReportFrequency: 1s":                     "nodeStatusUpdateFrequency: -1s must be greater than 0",
		"shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: -1}]": "shutdownGracePeriodByPodPriority[0].shutdownGracePeriodSeconds: -1 must not be negative",
	} {
		auth := standaloneOK
		if strings.HasPrefix(yaml, "authorization") {
			auth = "authentication: {webhook: {enabled: false}}\n"
		}
		dir := write(t, map[string]string{"k.yaml": head + auth + yaml + "\n"})
		refused(want, "--config="+dir+"/k.yaml")
	}
	refused(`--root-dir: "here" must be an absolute path`, "--root-dir=here")
	refused(`--root-dir: "" must be an absolute path`, "--root-dir=")
	refused("--image-credential-provider-bin-dir: must be set with", "--image-credential-provider-config=/x")
}
