package config

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/kit/apiproxy"
	"keelson/test/kit/fakecri"
	"keelson/test/kit/need"
	"keelson/test/kit/parity"
	"keelson/test/script"
)

func TestHeartbeatsFollowTheConfiguration(t *testing.T) {
	parity.Proves(t, "CFG-45")
	parity.ProvesPart(t, 2, "CFG-44")
	for _, tc := range []struct {
		config string
		least  time.Duration
		most   time.Duration
	}{
		// Unless nodeStatusReportFrequency is set, a status is sent with each update.
		{"nodeStatusUpdateFrequency: 3s\n", 3 * time.Second, 3200 * time.Millisecond},
		{"nodeStatusUpdateFrequency: 3s\nnodeStatusReportFrequency: 30s\n", 30 * time.Second, 34 * time.Second},
		{"", 5 * time.Minute, 5*time.Minute + 11*time.Second},
	} {
		script.Settled(t, tc.config, nil, func(t *testing.T, r *script.Run) {
			time.Sleep(10 * time.Minute) // the time of the first report is random
			before := r.Asked("patch", "nodes/status")
			time.Sleep(40 * time.Minute)
			beats := r.Asked("patch", "nodes/status")
			beats = beats[len(before)-1:]
			if len(beats) < 5 {
				t.Fatalf("%q: %d reports", tc.config, len(beats))
			}
			for i := 1; i < len(beats); i++ {
				if gap := beats[i].Start.Sub(beats[i-1].Start); gap < tc.least || gap > tc.most {
					t.Errorf("%q: %v between two reports, want %v to %v", tc.config, gap, tc.least, tc.most)
				}
			}
		})
	}
}

func TestTheNodeIsAsConfigured(t *testing.T) {
	parity.Proves(t, "CFG-73", "CFG-74", "CFG-90")
	parity.ProvesPart(t, 2, "CFG-60")
	parity.ProvesPart(t, 3, "CFG-46")
	parity.ProvesPart(t, 2, "CFG-111")
	parity.ProvesPart(t, 2, "CFG-66")
	parity.ProvesPart(t, 2, "CFG-101")
	three := func(w *script.World) {
		for i := range 3 {
			w.Runtime.AddImage(fakecri.Image{Name: fmt.Sprintf("more:%d", i), Size: uint64(i+2) << 20})
		}
	}
	script.Settled(t,
		"providerID: cloud://7\nregisterWithTaints: [{key: a, value: b, effect: NoSchedule}]\npodsPerCore: 1\nnodeStatusMaxImages: 2\n", three, func(t *testing.T, r *script.Run) {
			n := r.NodeObject()
			if n.Spec.ProviderID != "cloud://7" || len(n.Spec.Taints) != 1 ||
				n.Spec.Taints[0].ToString() != "a=b:NoSchedule" {
				t.Errorf("provider %q, taints %v", n.Spec.ProviderID, n.Spec.Taints)
			}
			if got, want := n.Status.Capacity.Pods().Value(), int64(min(runtime.NumCPU(), 110)); got != want {
				t.Errorf("room for %d pods, want %d", got, want)
			}
			if len(n.Status.Images) != 2 || !slices.Contains(n.Status.Images[0].Names, "docker.io/library/more:2") {
				t.Errorf("images %v", n.Status.Images)
			}
		},
	)
	script.Settled(t, "podsPerCore: 100000\nmaxPods: 7\nnodeStatusMaxImages: -1\nnodeLeaseDurationSeconds: 12\n", three,
		func(t *testing.T, r *script.Run) {
			n := r.NodeObject()
			lease, err := r.API.CoordinationV1().Leases("kube-node-lease").Get(t.Context(), n.Name, metav1.GetOptions{})
			if err != nil || lease.Spec.LeaseDurationSeconds == nil || *lease.Spec.LeaseDurationSeconds != 12 {
				t.Errorf("lease %+v, %v, want one of 12 seconds", lease, err)
			}
			if got := n.Status.Capacity.Pods().Value(); got != 7 || len(n.Status.Images) != 5 ||
				n.Spec.ProviderID != "" || len(n.Spec.Taints) != 0 {
				t.Errorf("room for %d pods, %d images, %+v", got, len(n.Status.Images), n.Spec)
			}
		})
	script.Settled(t, "registerNode: false\n", nil, func(t *testing.T, r *script.Run) {
		time.Sleep(time.Minute)
		if n := r.NodeObject(); n != nil {
			t.Errorf("registered: %v", n)
		}
	})
	const attach = "volumes.kubernetes.io/controller-managed-attach-detach"
	for config, want := range map[string]string{
		"":                                      "true",
		"enableControllerAttachDetach: true\n":  "true",
		"enableControllerAttachDetach: false\n": "",
	} {
		script.Settled(t, config, nil, func(t *testing.T, r *script.Run) {
			if got, there := r.NodeObject().Annotations[attach]; got != want || there != (want != "") {
				t.Errorf("%q: %s is %q", config, attach, got)
			}
		})
	}
	script.Settled(t, "", func(w *script.World) { w.Flags = []string{"--hostname-override= My-Node "} },
		func(t *testing.T, r *script.Run) {
			if n := r.Server.Node("my-node"); n == nil || n.Labels["kubernetes.io/hostname"] != "my-node" {
				t.Errorf("node %+v", n)
			}
		})
	// The annotation is for a cloud controller: an unspecified address is left out, and spaces are removed.
	for given, reported := range map[string]string{
		"192.0.2.7":           "192.0.2.7",
		" 192.0.2.7, fd00::7": "192.0.2.7,fd00::7",
		"here,192.0.2.7":      "192.0.2.7",
		"0.0.0.0":             "",
		"::":                  "",
	} {
		script.Settled(t,
			"", func(w *script.World) { w.Flags = []string{"--cloud-provider=external", "--node-ip=" + given} },
			func(t *testing.T, r *script.Run) {
				n := r.NodeObject()
				got, there := n.Annotations["alpha.kubernetes.io/provided-node-ip"]
				if len(n.Spec.Taints) != 1 ||
					n.Spec.Taints[0].Key != "node.cloudprovider.kubernetes.io/uninitialized" || got != reported ||
					there != (reported != "") {
					t.Errorf("--node-ip=%s: taints %v, annotations %v", given, n.Spec.Taints, n.Annotations)
				}
			})
	}
}

// TestEvictionThresholdsAreKeptFromPods: eviction thresholds are subtracted from allocatable, unless a flag is set.
func TestEvictionThresholdsAreKeptFromPods(t *testing.T) {
	const thresholds = "evictionHard: {memory.available: 100Mi}\nsystemReserved: {memory: 50Mi}\n"
	for flag, want := range map[string]int64{
		"":       150 << 20,
		"=false": 150 << 20,
		"=true":  50 << 20,
	} {
		script.Settled(t, thresholds, func(w *script.World) {
			if flag != "" {
				w.Flags = []string{"--experimental-allocatable-ignore-eviction" + flag}
			}
		}, func(t *testing.T, r *script.Run) {
			s := r.NodeObject().Status
			if got := s.Capacity.Memory().Value() - s.Allocatable.Memory().Value(); got != want {
				t.Errorf("%q: %d bytes are kept from pods, want %d", flag, got, want)
			}
		})
	}
}

func TestCloudProvidersAreNotBuiltIn(t *testing.T) {
	parity.Proves(t, "CFG-114")
	script.Settled(t, "", func(w *script.World) { w.Flags = []string{"--cloud-provider=external"} },
		func(t *testing.T, r *script.Run) {
			if n := r.NodeObject(); len(n.Spec.Taints) != 1 ||
				n.Spec.Taints[0].Key != "node.cloudprovider.kubernetes.io/uninitialized" {
				t.Errorf("taints %v", n.Spec.Taints)
			}
		})
	for flag, says := range map[string]string{
		"--cloud-provider=aws": `--cloud-provider: "aws" must be empty or external`,
		"--cloud-config=x":     "unknown flag: --cloud-config",
	} {
		w := &script.World{T: t, Dir: t.TempDir(), Flags: []string{flag}}
		if _, err := w.Settings(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

func TestNodeIP(t *testing.T) {
	parity.ProvesPart(t, 3, "CFG-112")
	own := script.SomeAddress()
	if own == "" {
		need.Skip(t, "this machine has no address")
	}
	internal := func(r *script.Run) (ips []string) {
		for _, a := range r.NodeObject().Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				ips = append(ips, a.Address)
			}
		}
		return ips
	}
	for flag, want := range map[string]string{own: own, "nonsense," + own: own, "0.0.0.0": ""} {
		script.Settled(t, "", func(w *script.World) { w.Flags = []string{"--node-ip=" + flag} },
			func(t *testing.T, r *script.Run) {
				ips := internal(r)
				if want == "" && (len(ips) != 1 || !strings.Contains(ips[0], ".")) ||
					want != "" && !slices.Equal(ips, []string{want}) {
					t.Errorf("--node-ip=%s: addresses %v", flag, ips)
				}
			})
	}
	for _, flag := range []string{"10.0.0.1,10.0.0.2", "fd00::1,fd00::2"} {
		w := &script.World{T: t, Dir: t.TempDir(), Flags: []string{"--node-ip=" + flag}}
		if _, err := w.Settings(); err == nil ||
			!strings.Contains(err.Error(), "must contain either a single IP or a dual-stack pair of IPs") {
			t.Errorf("--node-ip=%s: %v", flag, err)
		}
	}
	w := &script.World{T: t, Dir: t.TempDir(), Flags: []string{"--node-ip=nonsense"}}
	if cfg, err := w.Settings(); err != nil ||
		!slices.ContainsFunc(cfg.Warnings,
			func(s string) bool { return strings.Contains(s, `"nonsense" is not an IP address and is ignored`) }) {
		t.Errorf("a bad entry: %v", err)
	}
}

func TestStandaloneAsksNoAPIServer(t *testing.T) {
	parity.Proves(t, "CFG-109")
	script.Settled(t,
		"authentication: {webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\npodCIDR: 10.1.0.0/24\n",
		func(w *script.World) { w.Alone = true }, func(t *testing.T, r *script.Run) {
			r.Scenario.Files["web.yaml"] = script.PlainPod
			r.Must(t, "static", "web.yaml")
			time.Sleep(5 * time.Minute)
			if len(r.Runtime.Pods()) != 1 {
				t.Errorf("pods: %v", r.Runtime.Pods())
			}
			if q := r.Proxy.Requests(); len(q) > 0 {
				t.Errorf("asked for %v", q)
			}
			reported := false
			for _, c := range r.Runtime.Calls(0) {
				reported = reported || c.Method == "UpdateRuntimeConfig"
			}
			if !reported {
				t.Error("the runtime does not get the addresses of pods")
			}
		})
}

func TestStaticPodPath(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-17")
	names := func(r *script.Run) (out []string) {
		for _, p := range r.Runtime.Pods() {
			out = append(out, p.Name)
		}
		slices.Sort(out)
		return out
	}
	write := func(t *testing.T, path, name string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf(
			"apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: default}\nspec: {containers: [{name: main, image: %s}]}\n", name, script.Image)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	write(t, dir+"/a.yaml", "a")
	write(t, dir+"/b.yaml", "b")
	for path, want := range map[string]string{
		dir:             "[default/a-node1 default/b-node1]",
		dir + "/b.yaml": "[default/b-node1]",
	} {
		script.Settled(t, "staticPodPath: "+path+"\n", nil, func(t *testing.T, r *script.Run) {
			if got := fmt.Sprint(names(r)); got != want {
				t.Errorf("staticPodPath %s: %s, want %s", path, got, want)
			}
		})
	}
	script.Settled(t, "staticPodPath: \"\"\n", nil, func(t *testing.T, r *script.Run) {
		r.Scenario.Files["web.yaml"] = script.PlainPod
		r.Must(t, "static", "web.yaml")
		time.Sleep(time.Minute)
		if got := names(r); len(got) != 0 {
			t.Errorf("without a path: %v", got)
		}
	})
}

func TestFilesAreCheckedAsOftenAsConfigured(t *testing.T) {
	parity.ProvesPart(t, 3, "CFG-20")
	for _, every := range []time.Duration{7 * time.Second, 90 * time.Second} {
		script.Settled(t, fmt.Sprintf("fileCheckFrequency: %v\n", every), nil, func(t *testing.T, r *script.Run) {
			time.Sleep(every)
			begin := time.Now()
			r.Scenario.Files["web.yaml"] = script.PlainPod
			r.Must(t, "static", "web.yaml")
			for len(r.Runtime.Pods()) == 0 {
				time.Sleep(100 * time.Millisecond)
				if time.Since(begin) > 2*every {
					t.Fatalf("not seen within %v", 2*every)
				}
			}
			if took := time.Since(begin); took > every+time.Second || took < every/20 {
				t.Errorf("seen after %v, want within %v", took, every)
			}
		})
	}
}

func TestRuntimeCallsEndInTime(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-58")
	script.Settled(t, "runtimeRequestTimeout: 20s\n", nil, func(t *testing.T, r *script.Run) {
		r.Runtime.Inject(fakecri.Fault{Method: "RunPodSandbox", Hang: true, Times: 1})
		begin := time.Now()
		r.Pod(t, "web", script.PlainPod)
		for {
			time.Sleep(time.Second)
			calls := r.Runtime.Calls(0)
			i := slices.IndexFunc(calls,
				func(c fakecri.Call) bool { return c.Method == "RunPodSandbox" && !c.End.IsZero() })
			if i >= 0 {
				// RunPodSandbox has twice the time of other calls. Upstream's minimum of four minutes is not required.
				if took := calls[i].End.Sub(calls[i].Start); took < 20*time.Second || took > 41*time.Second {
					t.Errorf("a call that hangs ended after %v", took)
				}
				break
			}
			if time.Since(begin) > time.Hour {
				t.Fatal("a call that hangs never ended")
			}
		}
		r.Must(t, "wait", "web", "Ready")
		// Other calls have the configured time.
		r.Runtime.Inject(fakecri.Fault{Method: "CreateContainer", Hang: true, Times: 1})
		r.Pod(t, "other", script.PlainPod)
		r.Must(t, "wait", "other", "Ready")
		calls := r.Runtime.Calls(0)
		i := slices.IndexFunc(calls,
			func(c fakecri.Call) bool { return c.Method == "CreateContainer" && c.Pod == script.Namespace+"/other" })
		if took := calls[i].End.Sub(calls[i].Start); took != 20*time.Second {
			t.Errorf("a container that hangs was given up after %v, want 20 s", took)
		}
		// Commands and pulls have no such limit.
		r.Runtime.Inject(fakecri.Fault{Method: "ExecSync", Delay: 10 * time.Minute, Times: 1})
		begin = time.Now()
		r.Pod(t,
			"hooked",
			"spec: {containers: [{name: main, lifecycle: {postStart: {exec: {command: [sh, -c, exit 0]}}}}]}\n")
		r.Must(t, "wait", "hooked", "Ready")
		if took := time.Since(begin); took < 10*time.Minute || took > 11*time.Minute {
			t.Errorf("a pod whose hook takes ten minutes is ready after %v", took)
		}
		r.Runtime.Inject(fakecri.Fault{Method: "PullImage", Delay: 10 * time.Minute, Times: 1})
		r.Pod(t, "big", "spec: {containers: [{name: main, image: 'big:1'}]}\n")
		r.Must(t, "wait", "big", "Ready")
		n := 0
		for _, c := range r.Runtime.Calls(0) {
			if c.Method == "PullImage" && c.Image == "big:1" {
				n++
			}
		}
		if n != 1 {
			t.Errorf("pulled %d times", n)
		}
	})
}

// dns returns the resolver configuration that the runtime gets for a pod.
func dns(t *testing.T, r *script.Run, name string) *cri.DNSConfig {
	t.Helper()
	for _, p := range r.Runtime.Pods() {
		if p.Name == script.Namespace+"/"+name {
			return p.Config.DnsConfig
		}
	}
	t.Fatalf("no pod %s", name)
	return nil
}

func TestResolver(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-42")
	parity.ProvesPart(t, 2, "CFG-63")
	host := t.TempDir() + "/resolv.conf"
	if err := os.WriteFile(host, []byte("nameserver 192.0.2.53\nsearch example.org\noptions rotate\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	both := func(t *testing.T, r *script.Run) (cluster, node *cri.DNSConfig) {
		r.Pod(t, "cluster", script.PlainPod)
		r.Pod(t, "node", "spec: {dnsPolicy: Default, containers: [{name: main}]}\n")
		r.Must(t, "wait", "cluster", "Ready")
		r.Must(t, "wait", "node", "Ready")
		return dns(t, r, "cluster"), dns(t, r, "node")
	}
	script.Settled(t,
		"clusterDNS: [nonsense, 10.0.0.53, 010.0.0.054]\nclusterDomain: my.cluster\nresolvConf: "+host+"\n", nil,
		func(t *testing.T, r *script.Run) {
			c, n := both(t, r)
			if got := fmt.Sprint(c.Servers, c.Searches,
				c.Options); got != "[10.0.0.53 10.0.0.54] [default.svc.my.cluster svc.my.cluster my.cluster example.org] [ndots:5]" {
				t.Errorf("ClusterFirst: %s", got)
			}
			if got := fmt.Sprint(n.Servers, n.Searches, n.Options); got != "[192.0.2.53] [example.org] [rotate]" {
				t.Errorf("Default: %s", got)
			}
			if !strings.Contains(r.Log.String(), "nonsense") {
				t.Error("nothing is logged about the address that is none")
			}
		})
	script.Settled(t, "resolvConf: \"\"\nclusterDNS: []\n", nil, func(t *testing.T, r *script.Run) {
		c, n := both(t, r)
		if got := fmt.Sprint(n.Servers, n.Searches); got != "[127.0.0.1] [.]" {
			t.Errorf("Default, without a file: %s", got)
		}
		if got := fmt.Sprint(c.Servers, c.Searches); got != "[127.0.0.1] [.]" {
			t.Errorf("ClusterFirst, without resolvers of the cluster: %s", got)
		}
	})
}

// TestResolverWithoutAFile: without a resolver on the node, pods get the loopback address as nameserver. Its families
// are those of --node-ip, not those of the addresses that the agent finds.
func TestResolverWithoutAFile(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-75")
	for flag, want := range map[string]string{
		"":        "[127.0.0.1] [.]",
		"0.0.0.0": "[127.0.0.1] [.]",
		"::":      "[::1] [.]",
	} {
		script.Settled(t, "resolvConf: \"\"\n", func(w *script.World) { w.Flags = []string{"--node-ip=" + flag} },
			func(t *testing.T, r *script.Run) {
				r.Pod(t, "web", "spec: {dnsPolicy: Default, containers: [{name: main}]}\n")
				r.Must(t, "wait", "web", "Ready")
				c := dns(t, r, "web")
				if got := fmt.Sprint(c.Servers, c.Searches); got != want {
					t.Errorf("--node-ip=%s: %s, want %s", flag, got, want)
				}
			})
	}
}

func TestSeccompDefault(t *testing.T) {
	parity.Proves(t, "CFG-98", "CFG-118")
	for _, tc := range []struct {
		config, flag string
		want         cri.SecurityProfile_ProfileType
	}{
		{"", "", cri.SecurityProfile_Unconfined},
		{"seccompDefault: true\n", "", cri.SecurityProfile_RuntimeDefault},
		{"", "--seccomp-default", cri.SecurityProfile_RuntimeDefault},
		{"seccompDefault: true\n", "--seccomp-default", cri.SecurityProfile_RuntimeDefault},
	} {
		script.Settled(t, tc.config, func(w *script.World) {
			if tc.flag != "" {
				w.Flags = []string{tc.flag}
			}
		}, func(t *testing.T, r *script.Run) {
			r.Pod(t, "web", script.PlainPod)
			r.Must(t, "wait", "web", "Ready")
			if got := r.Runtime.Pods()[0].Containers[0].Config.Linux.SecurityContext.Seccomp.GetProfileType(); got != tc.want {
				t.Errorf("%q %q: %v, want %v", tc.config, tc.flag, got, tc.want)
			}
		})
	}
}

func TestRates(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-34")
	parity.ProvesPart(t, 2, "CFG-69")
	several := func(t *testing.T, r *script.Run, n int, image string) {
		for i := range n {
			r.Pod(t, fmt.Sprintf("p%d", i),
				fmt.Sprintf("spec: {containers: [{name: main, image: '%s:%d'}]}\n", image, i))
		}
		for i := range n {
			r.Must(t, "wait", fmt.Sprintf("p%d", i), "Ready")
		}
	}
	// A pull above the rate limit fails, and is retried after its back-off.
	for rate, atOnce := range map[string]int{
		"registryPullQPS: 1\nregistryBurst: 2\n": 2,
		"registryPullQPS: 0\nregistryBurst: 1\n": 8,
	} {
		script.Settled(t, rate, nil, func(t *testing.T, r *script.Run) {
			begin := time.Now()
			several(t, r, 8, "remote")
			early := 0
			for _, c := range r.Runtime.Calls(0) {
				if c.Method == "PullImage" && c.Start.Sub(begin) < time.Second {
					early++
				}
			}
			if early != atOnce {
				t.Errorf("%q: %d pulls at once, want %d", rate, early, atOnce)
			}
			// Each of these pulls fails at least once.
			reported := strings.Count(r.ShowEvents(""), `Failed: Failed to pull image "remote:`)
			if reported < 8-atOnce || atOnce == 8 && reported > 0 {
				t.Errorf("%q: %d pulls failed", rate, reported)
			}
		})
	}
	script.Settled(t, "registryPullQPS: 1\nregistryBurst: 1\n", nil, func(t *testing.T, r *script.Run) {
		r.Pod(t, "first", "spec: {containers: [{name: main, image: 'remote:1'}]}\n")
		r.Must(t, "wait", "first", "Ready") // well within a second
		r.Pod(t, "second", "spec: {containers: [{name: main, image: 'remote:2'}]}\n")
		time.Sleep(time.Second / 2)
		if got := r.Must(t, "status", "second"); !strings.Contains(got,
			`main: waiting ErrImagePull "pull QPS exceeded"`) {
			t.Errorf("the second of two pulls, one a second allowed, shows\n%s", got)
		}
		if got := r.Must(t, "events", "second"); !strings.Contains(got,
			`second/main Warning Failed: Failed to pull image "remote:2": pull QPS exceeded`) {
			t.Errorf("events:\n%s", got)
		}
		r.Must(t, "wait", "second", "Ready")
	})
	w := &script.World{T: t, Dir: t.TempDir(), Config: "registryPullQPS: -1\nregistryBurst: -1\n"}
	if _, err := w.Settings(); err == nil ||
		!strings.Contains(err.Error(), "registryPullQPS: -1 must not be negative") ||
		!strings.Contains(err.Error(), "registryBurst: -1 must not be negative") {
		t.Errorf("negative rates: %v", err)
	}
	// Requests to the API server: one status is sent a second.
	for qps, slow := range map[string]bool{"kubeAPIQPS: 1\nkubeAPIBurst: 1\n": true, "": false} {
		script.Settled(t, qps, nil, func(t *testing.T, r *script.Run) {
			time.Sleep(time.Minute) // the rate limit has recovered from the requests of the start
			several(t, r, 10, "app")
			list := r.Asked("patch", "pods/status")
			took := list[len(list)-1].Start.Sub(list[0].Start)
			if slow && took < 8900*time.Millisecond || !slow && took > 5*time.Second {
				t.Errorf("%q: %d statuses within %v", qps, len(list), took)
			}
		})
	}
}

func TestEventRate(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-37")
	for config, slow := range map[string]bool{
		"eventRecordQPS: 1\neventBurst: 1\n": true,
		"eventRecordQPS: 0\neventBurst: 1\n": false,
	} {
		script.Settled(t, config, nil, func(t *testing.T, r *script.Run) {
			time.Sleep(time.Minute)
			before := len(r.Asked("create", "events"))
			for i := range 5 {
				r.Pod(t, fmt.Sprintf("p%d", i), script.PlainPod)
			}
			time.Sleep(time.Minute)
			list := r.Asked("create", "events")[before:]
			if len(list) < 10 {
				t.Fatalf("%d events", len(list))
			}
			took := list[len(list)-1].Start.Sub(list[0].Start)
			if least := time.Duration(len(list)-2) * time.Second; slow && took < least ||
				!slow && took > 3*time.Second {
				t.Errorf("%q: %d events within %v", config, len(list), took)
			}
		})
	}
	w := &script.World{T: t, Dir: t.TempDir(), Config: "eventRecordQPS: -1\neventBurst: -1\n"}
	if _, err := w.Settings(); err == nil ||
		!strings.Contains(err.Error(), "eventRecordQPS: -1 must not be negative") ||
		!strings.Contains(err.Error(), "eventBurst: -1 must not be negative") {
		t.Errorf("negative rates: %v", err)
	}
}

func TestRootAndCertDirectories(t *testing.T) {
	parity.ProvesPart(t, 3, "CFG-113")
	script.Settled(t, "enableServer: true\nport: 1\n", func(w *script.World) {
		// This clears the configuration above, so the server is not enabled. Another test covers listening.
		w.Config = ""
	}, func(t *testing.T, r *script.Run) {
		for path, mode := range map[string]os.FileMode{
			"kubelet":                  0o750,
			"kubelet/pods":             0o750,
			"kubelet/plugins":          0o750,
			"kubelet/plugins_registry": 0o750,
			"kubelet/pod-resources":    0o750,
			"pki":                      0o755,
		} {
			if i, err := os.Stat(r.Path(path)); err != nil || !i.IsDir() || i.Mode().Perm() != mode {
				t.Errorf("%s: %v, %v", path, i, err)
			}
		}
	})
	for _, dir := range []string{"relative", "../relative", ""} {
		w := &script.World{T: t, Dir: t.TempDir(), Flags: []string{"--root-dir=" + dir}}
		if _, err := w.Settings(); err == nil || !strings.Contains(err.Error(), "--root-dir") {
			t.Errorf("--root-dir=%s: %v", dir, err)
		}
	}
}

// TestARootDirectoryIsUsedInItsShortestForm: the path is cleaned, because paths below it are compared as text.
func TestARootDirectoryIsUsedInItsShortestForm(t *testing.T) {
	parity.Proves(t, "RT-55")
	parity.ProvesPart(t, 3, "CFG-113")
	for _, form := range []string{"/kubelet/", "//kubelet", "/./kubelet", "/none/../kubelet"} {
		script.Settled(t, "", func(w *script.World) { w.Flags = []string{"--root-dir=" + w.Dir + form} },
			func(t *testing.T, r *script.Run) {
				r.Pod(t, "web", script.PlainPod)
				r.Must(t, "wait", "web", "Ready")
				if _, err := os.Stat(r.Path("none")); !os.IsNotExist(err) {
					t.Errorf("--root-dir=%s: %v, want that nothing is made beside it", form, err)
				}
				mounts := r.Runtime.Pods()[0].Containers[0].Config.Mounts
				if !slices.ContainsFunc(mounts, func(m *cri.Mount) bool {
					return strings.HasPrefix(m.HostPath, r.Path("kubelet/pods")+"/")
				}) {
					t.Errorf("--root-dir=%s: the runtime gets %v", form, mounts)
				}
				r.Must(t, "delete", "web", "grace=1")
				r.Must(t, "wait", "web", "gone")
				if left := r.Must(t, "left"); left != "nothing\n" {
					t.Errorf("--root-dir=%s: there is left %s", form, left)
				}
			})
	}
}

// TestANodeIsReadOnceMoreForItsLabels: before a pod is rejected because of the node's labels, the node is read again.
// It is not read again for other pods.
func TestANodeIsReadOnceMoreForItsLabels(t *testing.T) {
	parity.ProvesPart(t, 3, "SRC-42")
	script.Settled(t, "", nil, func(t *testing.T, r *script.Run) {
		r.Pod(t, "holds", "spec: {containers: [{name: main, ports: [{containerPort: 80, hostPort: 80}]}]}\n")
		r.Must(t, "wait", "holds", "Ready")
		for _, tc := range []struct {
			name, spec string
			reads      int
		}{
			{"port", "spec: {containers: [{name: main, ports: [{containerPort: 80, hostPort: 80}]}]}\n", 0},
			{"label", "spec: {nodeSelector: {disk: none}, containers: [{name: main}]}\n", 1},
		} {
			before := len(r.Asked("get", "nodes"))
			r.Pod(t, tc.name, tc.spec)
			r.Must(t, "wait", tc.name, "Failed")
			if n := len(r.Asked("get", "nodes")) - before; n != tc.reads {
				t.Errorf("%s: the node was read %d times, want %d", tc.name, n, tc.reads)
			}
		}
	})
}

// TestHeartbeatsGiveUpInTime: a heartbeat that hangs is canceled before the next one.
func TestHeartbeatsGiveUpInTime(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-137")
	for _, config := range []string{
		"nodeStatusUpdateFrequency: 4s\n",
		"nodeStatusUpdateFrequency: 4s\nnodeLeaseDurationSeconds: 40\n",
		"nodeStatusUpdateFrequency: 1m\nnodeLeaseDurationSeconds: 4\n",
	} {
		script.Settled(t, config, nil, func(t *testing.T, r *script.Run) {
			time.Sleep(10 * time.Minute)
			r.Proxy.Inject(apiproxy.Fault{Verb: "patch", Resource: "nodes/status", Hang: true, Times: 1})
			before := len(r.Asked("patch", "nodes/status"))
			time.Sleep(10 * time.Minute)
			list := r.Asked("patch", "nodes/status")[before:]
			if len(list) < 2 {
				t.Fatalf("%q: %d reports", config, len(list))
			}
			if gap := list[1].Start.Sub(list[0].Start); gap < 3900*time.Millisecond || gap > 5*time.Second {
				t.Errorf("%q: the next report %v after one that hangs", config, gap)
			}
		})
	}
}

// TestACgroupRootThatIsNotThere: the agent does not start, because no pod could run below a missing root.
func TestACgroupRootThatIsNotThere(t *testing.T) {
	parity.ProvesPart(t, 3, "RES-03")
	dir := script.NodeDir(t)
	synctest.Test(t, func(t *testing.T) {
		w := script.NewWorld(t, dir, "cgroupsPerQOS: true\ncgroupRoot: /nosuch/root\n", false)
		defer w.Close()
		if err := w.StartFails(); err == nil || !strings.Contains(err.Error(), "use cgroup root /nosuch/root: ") {
			t.Errorf("ended with %v", err)
		}
	})
}

// TestFailedSetupIsReported: an event reports why the agent ended before it started.
func TestFailedSetupIsReported(t *testing.T) {
	parity.ProvesPart(t, 2, "NODE-11")
	dir := script.NodeDir(t)
	synctest.Test(t, func(t *testing.T) {
		w := script.NewWorld(t, dir, "", false)
		defer w.Close()
		if err := os.WriteFile(w.Path("kubelet"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := w.StartFails(); err == nil || !strings.Contains(err.Error(), "make directory "+w.Path("kubelet")) {
			t.Errorf("ended with %v", err)
		}
		events, err := w.API.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(events.Items) != 1 || events.Items[0].Type != "Warning" ||
			events.Items[0].Reason != "KubeletSetupFailed" || events.Items[0].InvolvedObject.Name != script.Node ||
			!strings.Contains(events.Items[0].Message, w.Path("kubelet")) {
			t.Errorf("events %+v, %v", events, err)
		}
	})
}

// TestChainsOfThePacketFilter: the agent maintains the chains if the configuration says so, which is the default. The
// tests of the package that makes them cover the details.
func TestChainsOfThePacketFilter(t *testing.T) {
	parity.Proves(t, "CFG-76")
	for config, want := range map[string]bool{
		"":                                true,
		"makeIPTablesUtilChains: true\n":  true,
		"makeIPTablesUtilChains: false\n": false,
	} {
		var mu sync.Mutex
		made := map[string]int{}
		filter := func(_ context.Context, program string, args ...string) error {
			mu.Lock()
			defer mu.Unlock()
			name := program + " " + strings.Join(args, " ")
			if strings.Contains(name, " -S ") || strings.Contains(name, " -C ") {
				return noSuchChain{}
			}
			made[name]++
			return nil
		}
		script.Settled(t, config, func(w *script.World) { w.Filter = filter }, func(t *testing.T, r *script.Run) {
			mu.Lock()
			defer mu.Unlock()
			for _, name := range []string{"iptables -w 5 -t mangle -N KUBE-IPTABLES-HINT",
				"ip6tables -w 5 -t mangle -N KUBE-IPTABLES-HINT", "iptables -w 5 -t filter -N KUBE-FIREWALL"} {
				if n := made[name]; n != map[bool]int{true: 1}[want] {
					t.Errorf("%q: %s was called %d times", config, name, n)
				}
			}
		})
	}
}

// noSuchChain is the error of a program that found no such chain or rule.
type noSuchChain struct{}

func (noSuchChain) Error() string { return "no chain of that name" }
func (noSuchChain) ExitCode() int { return 1 }

// TestHiddenMetrics: showHiddenMetricsForVersion accepts the previous minor version and adds no metrics. Upstream's
// kubelet v1.36.3 was observed to add none either.
func TestHiddenMetrics(t *testing.T) {
	parity.Proves(t, "CFG-85")
	for _, release := range []string{"1.34", "1.36", "1.35.1", "v1.35", "last"} {
		got := wrongly(t, "showHiddenMetricsForVersion: '"+release+"'\n")
		if !strings.Contains(got, "showHiddenMetricsForVersion: ") ||
			!strings.Contains(got,
				"must be omitted or have the value '1.35'; only the previous minor version is allowed") {
			t.Errorf("%s: %s", release, got)
		}
	}
	shown := func(config string) (names []string) {
		s := script.Listening(t, config, script.Rights)
		code, text := s.Ask(t, "/metrics", "good", nil)
		if code != 200 || !strings.Contains(text, "\nhidden_metrics_total 0\n") {
			t.Errorf("%q: %d, or something is hidden", config, code)
		}
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "# TYPE kubelet_") {
				names = append(names, line)
			}
		}
		s.Stop()
		return names
	}
	if all, plain := shown("showHiddenMetricsForVersion: '1.35'\n"), shown(""); !slices.Equal(all, plain) ||
		len(plain) == 0 {
		t.Errorf("shown when asked for\n%v, and otherwise\n%v", all, plain)
	}
}

// TestThresholdsOfWritableLayersCannotBeSet: they follow from other thresholds. A configured one is ignored, and this
// is logged as an error.
func TestThresholdsOfWritableLayersCannotBeSet(t *testing.T) {
	parity.ProvesPart(t, 2, "EVIC-08")
	config := "evictionHard: {memory.available: 1Mi, containerfs.available: 1Gi, containerfs.inodesFree: 1k}\n"
	script.Settled(t, config, nil, func(t *testing.T, r *script.Run) {
		for _, signal := range []string{"containerfs.available", "containerfs.inodesFree"} {
			if !regexp.MustCompile("level=ERROR msg=\"ignored eviction threshold.* signal=" +
				regexp.QuoteMeta(signal)).MatchString(r.Log.String()) {
				t.Errorf("nothing is logged of %s", signal)
			}
		}
	})
}
