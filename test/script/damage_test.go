package script

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/test/kit/fakecri"
	"keelson/test/kit/parity"
)

// damages are the ways in which a file that an agent has written can be damaged.
var damages = map[string]func(path string, content []byte) error{
	"truncated":   func(path string, content []byte) error { return os.Truncate(path, int64(len(content)/2)) },
	"empty":       func(path string, _ []byte) error { return os.Truncate(path, 0) },
	"bit flipped": func(path string, content []byte) error { return os.WriteFile(path, flipped(content), 0o600) },
	"garbage":     func(path string, _ []byte) error { return os.WriteFile(path, []byte("\x00\xff{[no"), 0o600) },
	"of another": func(path string, _ []byte) error {
		return os.WriteFile(path, []byte(`{"kind":"Policy","policyName":"other","checksum":1}`), 0o600)
	},
	"a directory": func(path string, _ []byte) error {
		if err := os.Remove(path); err != nil {
			return err
		}
		return os.MkdirAll(filepath.Join(path, "inside"), 0o755)
	},
	"a link to nowhere": func(path string, _ []byte) error {
		if err := os.Remove(path); err != nil {
			return err
		}
		return os.Symlink("/nowhere", path)
	},
}

// flipped has one bit in the middle changed.
func flipped(content []byte) []byte {
	out := slices.Clone(content)
	if len(out) > 0 {
		out[len(out)/2] ^= 0x10
	}
	return out
}

// stateFiles are the files below the agent's directories that it reads when it starts, without
// the volumes of pods.
func (w *World) stateFiles(t *testing.T) (out []string) {
	t.Helper()
	for _, root := range []string{w.Path("kubelet"), w.Path("pki")} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			inPod := strings.HasPrefix(path, w.Path("kubelet/pods")+"/")
			if d.IsDir() && inPod && slices.Contains([]string{"volumes", "volume-subpaths", "containers"}, d.Name()) {
				return filepath.SkipDir
			}
			if d.Type().IsRegular() && d.Name() != "etc-hosts" {
				out = append(out, path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// nodeEvents are the warnings about the node, without the one of every start on a machine
// with cgroup v1.
func (w *World) nodeEvents() (out []string) {
	list, err := w.API.CoreV1().Events("").List(w.T.Context(), metav1.ListOptions{})
	if err != nil {
		w.T.Error(err)
		return nil
	}
	for _, e := range list.Items {
		if e.InvolvedObject.Kind == "Node" && e.Type == corev1.EventTypeWarning && e.Reason != "CgroupV1" {
			out = append(out, fmt.Sprintf("%s %s (%d)", e.Reason, e.Message, e.Count))
		}
	}
	return out
}

// damagedPods are pods for which the agent writes state files, one for each kind of file. They
// continue to run, whichever file is damaged.
var damagedPods = []string{"plain", "users", "pulled", "claims", "given"}

// TestDamagedStateFiles damages each file that an agent leaves, in each way, and starts
// another agent: the node is Ready soon, running pods are not affected, the file is kept
// for diagnosis, and is reported once.
func TestDamagedStateFiles(t *testing.T) {
	parity.Differs(t, "RT-56", "0101")
	files := map[string]bool{}
	begin := func(t *testing.T, story func(t *testing.T, r *Run)) {
		Settled(t, "memorySwap: {}\n", func(w *World) {
			w.Runtime.Protect("r.io/secret:1", fakecri.Credentials{Username: "u", Password: "p"})
		}, func(t *testing.T, r *Run) {
			r.Scenario.Files["creds.yaml"] = "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/dockerconfigjson\nstringData: {.dockerconfigjson: '{\"auths\":{\"r.io\":{\"username\":\"u\",\"password\":\"p\"}}}'}\n"
			r.Must(t, "put", "creds.yaml")
			r.Pod(t, "plain", PlainPod)
			r.Pod(t, "users", "spec: {hostUsers: false, containers: [{name: main}]}\n")
			r.Pod(t,
				"pulled",
				"spec: {imagePullSecrets: [{name: creds}], containers: [{name: main, image: 'r.io/secret:1'}]}\n")
			r.Must(t, "driver", "gpu.example.com")
			r.Must(t, "plugin", "example.com/nic", "a")
			time.Sleep(11 * time.Second) // until they are known
			r.Scenario.Files["claim.yaml"] = "kind: ResourceClaim\nspec: {devices: {requests: [{name: one, exactly: {deviceClassName: gpu}}]}}\n"
			r.Must(t, "put", "claim.yaml")
			r.Pod(
				t,
				"claims",
				"spec: {resourceClaims: [{name: c, resourceClaimName: claim}], containers: [{name: main, resources: {claims: [{name: c}]}}]}\n")
			r.Must(t, "reserve", "claim", "gpu.example.com", "claims")
			r.Pod(t, "given", "spec: {containers: [{name: main, resources: {limits: {example.com/nic: 1}}}]}\n")
			for _, name := range damagedPods {
				r.Must(t, "wait", name, "Ready")
			}
			time.Sleep(10 * time.Second)
			story(t, r)
		})
	}
	var base string
	begin(t, func(t *testing.T, r *Run) {
		base = r.Dir
		for _, f := range r.stateFiles(t) {
			rel, err := filepath.Rel(base, f)
			if err != nil {
				t.Fatal(err)
			}
			files[r.plain(rel)] = true
		}
	})
	t.Logf("files: %v", files)
	for _, name := range []string{"cpu_manager_state", "memory_manager_state", "allocated_pods_state",
		"actuated_pods_state"} {
		if !files["kubelet/"+name] {
			t.Errorf("%s is not written", name)
		}
	}
	for file := range files {
		for name, damage := range damages {
			// Only these files have a checksum: other files may still be valid with
			// one bit changed.
			surely := name != "bit flipped" || strings.HasSuffix(file, "_pods_state")
			t.Run(file+" "+name, func(t *testing.T) {
				begin(t, func(t *testing.T, r *Run) { r.damaged(t, file, surely, damage) })
			})
		}
	}
}

// damaged starts the agent again with one damaged file.
func (r *Run) damaged(t *testing.T, file string, surely bool, damage func(string, []byte) error) {
	t.Helper()
	r.Stop()
	path := ""
	for _, f := range r.stateFiles(t) {
		if rel, err := filepath.Rel(r.Dir, f); err == nil && r.plain(rel) == file {
			path = f
		}
	}
	if path == "" {
		t.Fatalf("no %s this time", file)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := damage(path, content); err != nil {
		t.Fatal(err)
	}
	calls := len(r.Runtime.Calls(0))
	before := r.nodeEvents()
	r.Start()
	time.Sleep(9 * time.Second)
	synctest.Wait()
	n := r.NodeObject()
	if !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue &&
			time.Since(c.LastHeartbeatTime.Time) < 10*time.Second
	}) {
		t.Errorf("the node is not Ready: %v", n.Status.Conditions)
	}
	time.Sleep(time.Minute)
	for _, c := range r.Runtime.Calls(0)[calls:] {
		if writing[c.Method] {
			t.Errorf("%s %s was called", c.Method, c.Key())
		}
	}
	for _, p := range damagedPods {
		if !isReady(r.Server.Pod(Namespace, p)) {
			t.Errorf("pod %s is not Ready any more", p)
		}
	}
	kept, err := filepath.Glob(path + "*.bad")
	if err != nil || len(kept) > 1 || surely && len(kept) != 1 {
		t.Errorf("kept: %v, %v", kept, err)
	}
	reported := r.nodeEvents()[len(before):]
	if len(reported) != len(kept) ||
		len(reported) > 0 && !strings.Contains(reported[0], "StateFileUnusable use "+path+": ") {
		t.Errorf("reported: %v", reported)
	}
	if strings.HasSuffix(file, "dra_manager_state") {
		// The claim of the pod is unprepared, also if its record was damaged.
		r.Must(t, "delete", "claims", "grace=1")
		r.Must(t, "wait", "claims", "gone")
		if left := r.Must(t, "prepared"); left != "nothing\n" {
			t.Errorf("still prepared: %s", left)
		}
	}
	if !strings.HasSuffix(file, "userns") {
		return
	}
	// No other pod gets the user IDs of a running pod, also if their record was damaged.
	r.Pod(t, "later", "spec: {hostUsers: false, containers: [{name: main}]}\n")
	r.Must(t, "wait", "later", "Ready")
	firsts := map[uint32]string{}
	for _, p := range r.Runtime.Pods() {
		if u := p.Config.Linux.SecurityContext.NamespaceOptions.GetUsernsOptions().GetUids(); len(u) == 1 {
			if other := firsts[u[0].HostId]; other != "" {
				t.Errorf("%s and %s have the same IDs", p.Name, other)
			}
			firsts[u[0].HostId] = p.Name
		}
	}
	if len(firsts) != 2 {
		t.Errorf("IDs: %v", firsts)
	}
}

// TestDamagedServingCertificate: an agent that finds the self-signed serving certificate or
// its key damaged creates a new pair. The damaged files are kept, and it is reported once.
// Pods continue to run.
func TestDamagedServingCertificate(t *testing.T) {
	s := Listening(t, "", Rights)
	s.RunPod(t, "web", PlainPod)
	for _, file := range []string{"kubelet.crt", "kubelet.key"} {
		for name, damage := range damages {
			s.Stop()
			path := s.Path("pki/" + file)
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := damage(path, content); err != nil {
				t.Fatal(err)
			}
			spoilt, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			before, calls := len(s.nodeEvents()), len(s.Runtime.Calls(0))
			s.Start()
			s.untilListening(t)
			if code, text := s.Ask(t, "/healthz", "good", nil); code != 200 {
				t.Errorf("%s %s: %d %s", file, name, code, text)
			}
			now, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			if name == "bit flipped" && os.SameFile(now, spoilt) {
				continue // in a signature that is not checked
			}
			if _, err := os.Lstat(path + ".bad"); err != nil {
				t.Errorf("%s %s: %v", file, name, err)
			}
			Eventually(t, file+" "+name+": an event", func() (string, bool) {
				return "", len(s.nodeEvents()) > before
			})
			reported := s.nodeEvents()[before:]
			if len(reported) != 1 ||
				!strings.Contains(reported[0], "StateFileUnusable use "+s.Path("pki/kubelet.crt")+": ") {
				t.Fatalf("%s %s: reported %q", file, name, reported)
			}
			for _, c := range s.Runtime.Calls(0)[calls:] {
				if writing[c.Method] {
					t.Errorf("%s %s: %s %s was called", file, name, c.Method, c.Key())
				}
			}
		}
	}
}
