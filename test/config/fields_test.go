package config

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson/internal/host/cgroup"
	"keelson/test/kit/apiproxy"
	"keelson/test/kit/fakecri"
	"keelson/test/kit/parity"
	"keelson/test/script"
)

// wrongly returns the error of a configuration, or "" if it is valid.
func wrongly(t *testing.T, configuration string, flags ...string) string {
	t.Helper()
	w := &script.World{T: t, Dir: t.TempDir(), Config: configuration, Flags: flags}
	if _, err := w.Settings(); err != nil {
		return err.Error()
	}
	return ""
}

// pulls counts the pulls of an image.
func pulls(w *script.World, image string) int {
	n := 0
	for _, c := range w.Runtime.Calls(0) {
		if c.Method == "PullImage" && c.Image == image {
			n++
		}
	}
	return n
}

// TestCredentialsForImagesOnTheNode: which pods may use an image that is on the node without a pull.
func TestCredentialsForImagesOnTheNode(t *testing.T) {
	parity.Proves(t, "CFG-36")
	parity.ProvesPart(t, 2, "CFG-35")
	const policy = "imagePullCredentialsVerificationPolicy: "
	for config, want := range map[string][2]int{ // pulls of two images that were on the node before
		"":                                      {0, 0},
		policy + "NeverVerify\n":                {0, 0},
		policy + "NeverVerifyPreloadedImages\n": {0, 0},
		policy + "AlwaysVerify\n":               {1, 1},
		policy + "NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: [r.io/one]\n": {0, 1},
		policy + "NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: ['r.io/*']\n": {0, 0},
		policy + "NeverVerifyAllowlistedImages\n":                                                   {1, 1},
		"featureGates: {KubeletEnsureSecretPulledImages: false}\n":                                  {0, 0},
	} {
		there := func(w *script.World) {
			for _, name := range []string{"r.io/one:1", "r.io/two:1"} {
				w.Runtime.AddImage(fakecri.Image{Name: name, Size: 1 << 20})
			}
		}
		script.Settled(t, config, there, func(t *testing.T, r *script.Run) {
			for i, name := range []string{"one", "two"} {
				r.Pod(t, name, "spec: {containers: [{name: main, image: 'r.io/"+name+":1'}]}\n")
				r.Must(t, "wait", name, "Ready")
				if got := pulls(r.World, "r.io/"+name+":1"); got != want[i] {
					t.Errorf("%q: %s was pulled %d times, want %d", config, name, got, want[i])
				}
			}
		})
	}
	for config, want := range map[string]string{
		policy + "Sometimes\n": `imagePullCredentialsVerificationPolicy: "Sometimes" must be one of NeverVerify,`,
		"featureGates: {KubeletEnsureSecretPulledImages: false}\n" + policy +
			"NeverVerify\n": "must not be set while the gate KubeletEnsureSecretPulledImages is off",
		"preloadedImagesVerificationAllowlist: [r.io/one]\n": "is only allowed with imagePullCredentialsVerificationPolicy NeverVerifyAllowlistedImages",
		policy +
			"NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: ['r.io:5000/a', 'r.io/one:1']\n": `preloadedImagesVerificationAllowlist[1]: "r.io/one:1" must be an image without tag or digest`,
		policy + "NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: ['r.io/*', 'r.io/a@sha256:" +
			strings.Repeat("0", 64) + "', 'r.*/a', '']\n": "preloadedImagesVerificationAllowlist[1]: ",
	} {
		if got := wrongly(t, config); !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", config, got, want)
		}
	}
}

// TestAgesOfImages: no image is garbage-collected before its minimum age, however full the disk is. No image is kept
// beyond its maximum age, however empty the disk is.
func TestAgesOfImages(t *testing.T) {
	parity.Proves(t, "CFG-47")
	parity.ProvesPart(t, 3, "CFG-48")
	for _, tc := range []struct {
		config string
		flags  []string
		stays  time.Duration // no image is removed before that
		goes   time.Duration // no image is kept longer; zero means no limit
	}{
		{
			"imageMinimumGCAge: 30m\n",
			[]string{"--image-gc-high-threshold=1", "--image-gc-low-threshold=0"},
			30 * time.Minute,
			41 * time.Minute,
		},
		{"", []string{"--image-gc-high-threshold=1", "--image-gc-low-threshold=0"}, 2 * time.Minute, 13 * time.Minute},
		{"imageMinimumGCAge: 1m\nimageMaximumGCAge: 1h\n", nil, time.Hour, 71 * time.Minute},
		{"imageMinimumGCAge: 1m\n", nil, 10 * time.Hour, 0},
	} {
		script.Settled(t, tc.config, func(w *script.World) { w.Flags = tc.flags }, func(t *testing.T, r *script.Run) {
			// The age of an image that was there when the agent started is not known. So this one is added later.
			r.Runtime.AddImage(fakecri.Image{Name: "late:1", Size: 1 << 20})
			began := time.Now()
			gone := func() bool {
				resp, err := r.Runtime.ListImages(t.Context(), &cri.ListImagesRequest{})
				if err != nil {
					t.Fatal(err)
				}
				return !slices.ContainsFunc(resp.Images,
					func(i *cri.Image) bool { return strings.HasSuffix(i.GetRepoTags()[0], "late:1") })
			}
			for !gone() && time.Since(began) < 10*time.Hour {
				time.Sleep(30 * time.Second)
			}
			lived := time.Since(began)
			if lived < tc.stays || tc.goes > 0 && lived > tc.goes {
				t.Errorf("%q %v: an unused image went after %v, want %v to %v", tc.config, tc.flags, lived, tc.stays,
					tc.goes)
			}
		})
	}
	for config, want := range map[string]string{
		"imageMinimumGCAge: -1s\n":                         "imageMinimumGCAge: -1s must not be negative",
		"imageMaximumGCAge: -1s\n":                         "imageMaximumGCAge: -1s must not be negative",
		"imageMinimumGCAge: 5m\nimageMaximumGCAge: 5m\n":   "imageMaximumGCAge: 5m0s must be greater than imageMinimumGCAge, 5m0s",
		"imageMinimumGCAge: 5m\nimageMaximumGCAge: 5m1s\n": "",
	} {
		if got := wrongly(t, config); got != want && (want == "" || !strings.Contains(got, want)) {
			t.Errorf("%q: %s, want %s", config, got, want)
		}
	}
}

// TestLocalStorage: a node without isolation of local storage reports no ephemeral-storage.
func TestLocalStorage(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-103")
	for config, want := range map[string]bool{"": true, "localStorageCapacityIsolation: false\n": false} {
		script.Settled(t, config, nil, func(t *testing.T, r *script.Run) {
			n := r.NodeObject()
			_, capacity := n.Status.Capacity["ephemeral-storage"]
			_, allocatable := n.Status.Allocatable["ephemeral-storage"]
			if capacity != want || allocatable != want {
				t.Errorf("%q: capacity is shown %v, allocatable %v, want %v", config, capacity, allocatable, want)
			}
		})
	}
}

// TestEncoding: requests are sent in the configured encoding, and answers are requested in it. JSON is accepted too.
func TestEncoding(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-68")
	for flag, want := range map[string][2]string{
		"--kube-api-content-type=application/json": {"application/json", "application/json"},
		"--kube-api-content-type=application/vnd.kubernetes.protobuf": {"application/vnd.kubernetes.protobuf",
			"application/vnd.kubernetes.protobuf,application/json"},
	} {
		var mu sync.Mutex
		accepted, written := map[string]bool{}, map[string]bool{}
		script.Settled(t, "", func(w *script.World) {
			w.Flags = []string{flag}
			next := w.Server // without the proxy that records events: it reads only JSON
			w.Proxy = apiproxy.New(http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
				mu.Lock()
				if q.Method == http.MethodGet {
					accepted[q.Header.Get("Accept")] = true
				}
				if q.Method == http.MethodPost {
					written[q.Header.Get("Content-Type")] = true
				}
				mu.Unlock()
				next.ServeHTTP(rw, q)
			}))
		}, func(t *testing.T, r *script.Run) {
			mu.Lock()
			defer mu.Unlock()
			if len(accepted) == 0 || len(written) == 0 {
				t.Fatal("nothing was asked")
			}
			for got := range accepted {
				if !strings.HasPrefix(got, want[1]) {
					t.Errorf("%s: accepts %q, want %q", flag, got, want[1])
				}
			}
			for got := range written {
				if got != want[0] {
					t.Errorf("%s: writes %q, want %q", flag, got, want[0])
				}
			}
		})
	}
	w := &script.World{T: t, Dir: t.TempDir()}
	c, err := w.Settings()
	if err != nil || c.Kubelet.ContentType != "application/json" {
		t.Errorf("%v, %v", c, err)
	}
}

// TestUsersOfPods: each pod gets as many user IDs as configured, and no two pods share one.
func TestUsersOfPods(t *testing.T) {
	parity.Proves(t, "CFG-106")
	parity.ProvesPart(t, 5, "LIFE-116")
	for config, want := range map[string]uint32{
		"":                                      65536,
		"userNamespaces: {}\n":                  65536,
		"userNamespaces: {idsPerPod: 131072}\n": 131072,
	} {
		script.Settled(t, config, nil, func(t *testing.T, r *script.Run) {
			var firsts []uint32
			for _, name := range []string{"one", "two"} {
				r.Pod(t, name, "spec: {hostUsers: false, containers: [{name: main}]}\n")
				r.Must(t, "wait", name, "Ready")
			}
			for _, p := range r.Runtime.Pods() {
				u := p.Config.Linux.SecurityContext.NamespaceOptions.GetUsernsOptions()
				if u.GetMode() != cri.NamespaceMode_POD || len(u.Uids) != 1 || len(u.Gids) != 1 ||
					u.Uids[0].Length != want || u.Gids[0].Length != want || u.Uids[0].HostId < 65536 ||
					u.Uids[0].HostId%65536 != 0 || u.Gids[0].HostId != u.Uids[0].HostId {
					t.Fatalf("%q: %s has %v", config, p.Name, u)
				}
				firsts = append(firsts, u.Uids[0].HostId)
			}
			slices.Sort(firsts)
			if len(firsts) != 2 || firsts[1]-firsts[0] < want {
				t.Errorf("%q: ranges of %d from %v", config, want, firsts)
			}
		})
	}
	for _, n := range []string{"0", "-65536", "1000", "4294967296"} {
		if got := wrongly(t, "userNamespaces: {idsPerPod: "+n+"}\n"); !strings.Contains(got,
			"userNamespaces.idsPerPod: "+n+" must be a multiple of 65536") {
			t.Errorf("%s IDs: %s", n, got)
		}
	}
}

const open = "authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n"

// execIn runs a command in a pod and returns when it has ended.
func execIn(t *testing.T, s *script.Served, pod string, command ...string) error {
	t.Helper()
	u, err := url.Parse(s.URL + "/exec/" + script.Namespace + "/" + pod + "/main?" + url.Values{
		"command": command,
		"output":  {"1"},
	}.Encode())
	if err != nil {
		t.Fatal(err)
	}
	e, err := remotecommand.NewSPDYExecutor(&rest.Config{
		Host:            s.URL,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}, http.MethodPost, u)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), script.Unhurried)
	defer cancel()
	return e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: new(strings.Builder)})
}

// TestIdleStreams: an idle stream is closed after the configured time, and not before.
func TestIdleStreams(t *testing.T) {
	parity.Proves(t, "CFG-43")
	s := script.Listening(t, open+"streamingConnectionIdleTimeout: 300ms\n", nil)
	s.RunPod(t, "web", script.PlainPod)
	if err := execIn(t, s, "web", "sh", "-c", "sleep 3600"); errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a stream on which nothing moves was left open")
	}
	if !slices.ContainsFunc(s.Runtime.Calls(0), func(c fakecri.Call) bool { return c.Method == "Exec" }) {
		t.Error("there was no stream")
	}
	s = script.Listening(t, open, nil)
	s.RunPod(t, "web", script.PlainPod)
	if err := execIn(t, s, "web", "sh", "-c", "sleep 1"); err != nil {
		t.Errorf("by default: %v", err)
	}
	if c, err := s.Settings(); err != nil || c.Kubelet.StreamingConnectionIdleTimeout.Duration != 4*time.Hour {
		t.Errorf("by default %v, %v", c, err)
	}
}

// TestSystemLogHandlers: the server shows the node's logs, and answers queries for them, if the configuration allows
// it.
func TestSystemLogHandlers(t *testing.T) {
	parity.Proves(t, "CFG-93")
	for config, want := range map[string][2]int{ // codes for the directory and for a query
		// without the query handler the directory is shown, also for a query
		"":                                {200, 404},
		"enableSystemLogQuery: true\n":    {200, 400},
		"enableSystemLogHandler: false\n": {405, 405},
	} {
		s := script.Listening(t, open+config, nil)
		if code, text := s.Ask(t, "/logs/", "", nil); code != want[0] {
			t.Errorf("%q: /logs/: %d %.100s, want %d", config, code, text, want[0])
		}
		path := "/logs/?query="
		if want[1] == 404 {
			path = "/logs/no-such-log?query="
		}
		if code, text := s.Ask(t, path, "", nil); code != want[1] {
			t.Errorf("%q: %s: %d %.100s, want %d", config, path, code, text, want[1])
		}
	}
	if got := wrongly(t, "enableSystemLogHandler: false\nenableSystemLogQuery: true\n"); !strings.Contains(got,
		"enableSystemLogQuery: true needs enableSystemLogHandler") {
		t.Errorf("a query without the handler: %s", got)
	}
}

// TestContentionProfile: the block profile has samples only if the configuration enables it.
func TestContentionProfile(t *testing.T) {
	parity.Proves(t, "CFG-39")
	defer goruntime.SetBlockProfileRate(0)
	for _, want := range []bool{false, true} { // false first: samples are never removed
		config := map[bool]string{true: "enableContentionProfiling: true\n"}[want]
		s := script.Listening(t, open+config, nil)
		noted := func() string {
			code, text := s.Ask(t, "/debug/pprof/block?debug=1", "", nil)
			if code != 200 {
				t.Errorf("%q: %d %.300s", config, code, text)
			}
			_, samples, _ := strings.Cut(text, "cycles/second=")
			_, samples, _ = strings.Cut(samples, "\n")
			return samples
		}
		before := noted()
		s.RunPod(t, "web", script.PlainPod)
		if after := noted(); (after != before) != want {
			t.Errorf("%q: samples were added: %v, want %v: %.300s", config, after != before, want, after)
		}
		s.Stop()
	}
}

// summary requests the resource usage of the node and its pods.
func summary(t *testing.T, s *script.Served) (out stats.Summary) {
	t.Helper()
	code, text := s.Ask(t, "/stats/summary", "", nil)
	if err := json.Unmarshal([]byte(text), &out); code != 200 || err != nil {
		t.Fatalf("/stats/summary: %d %v %.300s", code, err, text)
	}
	return out
}

// TestSystemContainers: the resource usage of the node's own programs is reported for each cgroup that the
// configuration names.
func TestSystemContainers(t *testing.T) {
	parity.Proves(t, "CFG-117")
	parity.ProvesPart(t, 3, "CFG-50")
	parity.ProvesPart(t, 4, "RES-18")
	parity.ProvesPart(t, 2, "SRV-38")
	groups, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	group := fmt.Sprintf("/keelson-script-%d", os.Getpid())
	process := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait() // it was killed
		dirs, err := filepath.Glob("/sys/fs/cgroup/*" + group)
		for _, dir := range append(dirs, "/sys/fs/cgroup"+group) {
			if rerr := os.Remove(dir); rerr != nil && !os.IsNotExist(rerr) {
				err = errors.Join(err, rerr)
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
	if err := groups.Join(group, process.Process.Pid); err != nil {
		t.Fatal(err)
	}
	names := func(s *script.Served) (out []string) {
		for _, c := range summary(t, s).Node.SystemContainers {
			out = append(out, c.Name)
		}
		return out
	}
	for _, tc := range []struct {
		config string
		flags  []string
		want   string
	}{
		{"", nil, "[]"},
		{"", []string{"--runtime-cgroups=" + group}, "[runtime]"},
		{"kubeletCgroups: " + group + "\n", nil, "[kubelet]"},
		{"cgroupRoot: /\nsystemCgroups: " + group + "\n", []string{"--runtime-cgroups=/nosuch"}, "[misc]"},
	} {
		s := script.Listening(t, open+tc.config, func(w *script.World) { w.Flags = tc.flags })
		got := names(s)
		if groups.Own() != "" && tc.config == "" {
			// The own cgroup is reported also without configuration.
			got = slices.DeleteFunc(got, func(n string) bool { return n == "kubelet" })
		}
		if fmt.Sprint(got) != tc.want {
			t.Errorf("%q %v: %v, want %s", tc.config, tc.flags, got, tc.want)
		}
		s.Stop()
	}
	for config, want := range map[string]string{
		"cgroupsPerQOS: false\nsystemCgroups: /system\n": "needs cgroupRoot",
		"cgroupRoot: /\nsystemCgroups: /\n":              "must not be the root cgroup",
	} {
		if got := wrongly(t, config); !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", config, got, want)
		}
	}
}

// TestSetVerbosity: a request to set the verbosity is answered with upstream's texts, because scripts parse them.
func TestSetVerbosity(t *testing.T) {
	var mu sync.Mutex
	var set []uint32
	s := script.Listening(t, open, func(w *script.World) {
		w.Operator.Verbosity = func(v uint32) error {
			mu.Lock()
			defer mu.Unlock()
			set = append(set, v)
			return nil
		}
	})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	for text, want := range map[string]string{
		"4":  "200 successfully set klog.logging.verbosity to 4",
		"x":  `400 failed to set klog.logging.verbosity to "x": strconv.ParseInt: parsing "x": invalid syntax`,
		"-1": `400 failed to set klog.logging.verbosity to "-1": must not be negative`,
	} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL+"/debug/flags/v",
			strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := resp.Write(&b); err != nil {
			t.Fatal(err)
		}
		_, body, _ := strings.Cut(b.String(), "\r\n\r\n")
		if got := fmt.Sprint(resp.StatusCode, " ", body); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if fmt.Sprint(set) != "[4]" {
		t.Errorf("set to %v", set)
	}
}

// TestCredentialPluginsFromTheCommandLine: a missing file is reported as an error. The flag takes a file or a
// directory.
func TestCredentialPluginsFromTheCommandLine(t *testing.T) {
	parity.Proves(t, "CFG-116")
	bin, asked := t.TempDir(), filepath.Join(t.TempDir(), "asked")
	program := "#!/bin/sh\necho >> " + asked +
		"\necho '{\"kind\":\"CredentialProviderResponse\",\"apiVersion\":\"credentialprovider.kubelet.k8s.io/v1\",\"cacheKeyType\":\"Image\",\"cacheDuration\":\"1h\",\"auth\":{\"r.io\":{\"username\":\"u\",\"password\":\"p\"}}}'\n"
	if err := os.WriteFile(filepath.Join(bin, "helper"), []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	const text = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders: [{name: helper, matchImages: [r.io], defaultCacheDuration: 1m, apiVersion: credentialprovider.kubelet.k8s.io/v1}]\n"
	for _, name := range []string{"one.yaml", "one.yml", "one.json"} {
		dir := t.TempDir()
		file := filepath.Join(dir, name)
		content := []byte(text)
		if strings.HasSuffix(name, ".json") {
			content = []byte(
				`{"apiVersion":"kubelet.config.k8s.io/v1","kind":"CredentialProviderConfig","providers":[{"name":"helper","matchImages":["r.io"],"defaultCacheDuration":"1m","apiVersion":"credentialprovider.kubelet.k8s.io/v1"}]}`)
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{file, dir} {
			if err := os.RemoveAll(asked); err != nil {
				t.Fatal(err)
			}
			s := script.Listening(t, open, func(w *script.World) {
				w.Flags = []string{"--image-credential-provider-config=" + path,
					"--image-credential-provider-bin-dir=" + bin}
				w.Runtime.Protect("r.io/a:1", fakecri.Credentials{Username: "u", Password: "p"})
			})
			s.RunPod(t, "web", "spec: {containers: [{name: main, image: 'r.io/a:1'}]}\n")
			if _, err := os.Stat(asked); err != nil {
				t.Errorf("%s: the plugin was not asked: %v", path, err)
			}
			s.Stop()
		}
	}
}

// TestSyncFrequency: syncFrequency must be greater than 0 and is a minute by default. An object that is not watched is
// at most one period old. A change of an object that is watched does not wait for the period. A sync of a pod that
// takes longer than two periods, and longer than five minutes, makes the agent unhealthy. Decision 0085 describes what
// does not follow syncFrequency.
func TestSyncFrequency(t *testing.T) {
	parity.Proves(t, "CFG-19")
	for _, config := range []string{"syncFrequency: -1s\n", "syncFrequency: -1ns\n"} {
		if got := wrongly(t, config); !strings.Contains(got, "syncFrequency: ") ||
			!strings.Contains(got, "must be greater than 0") {
			t.Errorf("%q: %s", config, got)
		}
	}
	w := &script.World{T: t, Dir: t.TempDir()}
	if c, err := w.Settings(); err != nil || c.Kubelet.SyncFrequency.Duration != time.Minute {
		t.Errorf("by default %v, %v", c, err)
	}
	w.Config = "syncFrequency: 0s\n"
	if c, err := w.Settings(); err != nil || c.Kubelet.SyncFrequency.Duration != time.Minute {
		t.Errorf("nothing logged: %v, %v", c, err)
	}
	for config, most := range map[string]time.Duration{
		"": time.Second, "syncFrequency: 5m\n": time.Second,
		"configMapAndSecretChangeDetectionStrategy: Get\n":                     61 * time.Second,
		"configMapAndSecretChangeDetectionStrategy: Get\nsyncFrequency: 10s\n": 11 * time.Second,
	} {
		script.Settled(t, config, nil, func(t *testing.T, r *script.Run) {
			if took := staleness(t, r, 10*time.Minute); took > most || most > 2*time.Second && took < most/2 {
				t.Errorf("%q: a change took %v, want at most %v", config, took, most)
			}
		})
	}
	// The agent checks after each fifth of the limit. It notifies the watchdog every ten seconds.
	for config, want := range map[string]time.Duration{
		"syncFrequency: 10s\n": 5 * time.Minute,
		"syncFrequency: 6m\n":  12 * time.Minute,
	} {
		if got := unwellAfter(t, config); got < want-15*time.Second || got > want+want/5+15*time.Second {
			t.Errorf("%q: unwell %v after a turn began to hang, want %v", config, got, want)
		}
	}
}

// TestDeclaredFeatures: the node declares to schedulers the features that other nodes of its release may lack. A
// feature whose gate is off is not declared.
func TestDeclaredFeatures(t *testing.T) {
	parity.Proves(t, "NODE-36")
	all := []string{"ExtendWebSocketsToKubelet", "InPlacePodLevelResourcesVerticalScaling",
		"InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits"}
	shown := func(gates string) (out []string) {
		script.Settled(t, gates, nil, func(t *testing.T, r *script.Run) {
			out = r.NodeObject().Status.DeclaredFeatures
			time.Sleep(time.Hour)
			if later := r.NodeObject().Status.DeclaredFeatures; !slices.Equal(later, out) {
				t.Errorf("%q: %v and later %v", gates, out, later)
			}
		})
		return out
	}
	if got := shown(""); !slices.Equal(got, all) {
		t.Errorf("by default %v, want %v", got, all)
	}
	if got := shown(
		"featureGates: {NodeDeclaredFeatures: false, ExtendWebSocketsToKubelet: false, InPlacePodLevelResourcesVerticalScaling: false, " +
			"InPlacePodVerticalScalingInitContainers: false, RestartAllContainersOnContainerExits: false}\n"); len(
		got) != 0 {
		t.Errorf("with the gate off: %v", got)
	}
	for _, gate := range all {
		want := slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == gate })
		if got := shown("featureGates: {" + gate + ": false}\n"); !slices.Equal(got, want) {
			t.Errorf("without %s: %v", gate, got)
		}
	}
	// This feature also needs support by the runtime.
	const gate = "featureGates: {UserNamespacesHostNetworkSupport: true}\n"
	if got := shown(gate); !slices.Equal(got, all) {
		t.Errorf("over a runtime that cannot do it: %v", got)
	}
	able := func(w *script.World) {
		w.Conn.Get().Close() // the connection to the runtime that NewWorld made
		w.Runtime.Close()
		w.Runtime = fakecri.New(fakecri.Options{UsersOnHostNetwork: true})
		w.Connect()
	}
	for config, want := range map[string][]string{
		"":   all,
		gate: append(slices.Clone(all), "UserNamespacesHostNetworkSupport"),
	} {
		script.Settled(t, config, able, func(t *testing.T, r *script.Run) {
			if got := r.NodeObject().Status.DeclaredFeatures; !slices.Equal(got, want) {
				t.Errorf("%q over a runtime that can do it: %v, want %v", config, got, want)
			}
		})
	}
}
