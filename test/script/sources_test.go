package script

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"keelson/test/kit/parity"
)

// eventually asks until it is so; what there is instead is told.
func eventually(t *testing.T, what string, ask func() (instead string, so bool)) {
	t.Helper()
	for end := time.Now().Add(unhurried); ; time.Sleep(50 * time.Millisecond) {
		instead, so := ask()
		if so {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waiting for %s: %s", what, instead)
		}
	}
}

// pods asks an agent which pods it has.
func (s *served) pods(t *testing.T, at, token string) []corev1.Pod {
	t.Helper()
	code, text := s.ask(t, at, token, nil)
	var list corev1.PodList
	if err := json.Unmarshal([]byte(text), &list); code != http.StatusOK || err != nil {
		t.Fatalf("%s: %d %.500s, %v", at, code, text, err)
	}
	return list.Items
}

const aloneConfig = `authentication: {webhook: {enabled: false}, anonymous: {enabled: true}}
authorization: {mode: AlwaysAllow}
podCIDR: 10.77.0.0/24
featureGates: {PreventStaticPodAPIReferences: false}
`

// An agent without an API server runs its static pods and asks nobody. A pod that
// needs objects of the API does not run.
func TestStandalone(t *testing.T) {
	parity.Proves(t, "SRC-29", "SRC-30", "SRC-31", "SRC-32")
	for config, want := range map[string]string{
		"authorization: {mode: AlwaysAllow}\n":                                                      "authentication.webhook.enabled",
		"authentication: {webhook: {enabled: false}}\nauthorization: {mode: Webhook}\n":             "authorization.mode",
		"authentication: {webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n":         "",
		"authentication: {webhook: {enabled: true}}\nauthorization: {mode: Webhook}\nport: 10250\n": "authorization.mode",
	} {
		w := &world{t: t, dir: t.TempDir(), alone: true, config: "enableServer: true\n" + config}
		if _, err := w.settings(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", config, err, want)
		}
	}
	port := freePort(t)
	s := listening(t, aloneConfig+fmt.Sprintf("readOnlyPort: %d\n", port), func(w *world) { w.alone = true })
	r := &run{world: s.world, scenario: &Scenario{Files: map[string]string{
		"web.yaml":   plainPod,
		"env.yaml":   "spec: {containers: [{name: main, env: [{name: A, valueFrom: {configMapKeyRef: {name: c, key: k}}}]}]}\n",
		"files.yaml": "spec: {volumes: [{name: v, secret: {secretName: s}}], containers: [{name: main, volumeMounts: [{name: v, mountPath: /v}]}]}\n",
		"token.yaml": "spec: {serviceAccountName: app, volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}], containers: [{name: main, volumeMounts: [{name: v, mountPath: /v}]}]}\n",
	}}, faults: map[string]fault{}}
	if err := r.static([]string{"web.yaml", "env.yaml", "files.yaml", "token.yaml"}); err != nil {
		t.Fatal(err)
	}
	readOnly := fmt.Sprintf("http://127.0.0.1:%d/pods", port)
	shown := func(name string) (corev1.Pod, string) {
		for _, p := range s.pods(t, readOnly, "") {
			if p.Name == name+"-"+node {
				return p, s.showStatus(&p)
			}
		}
		return corev1.Pod{}, "not there"
	}
	status := func(name, want string) {
		t.Helper()
		eventually(t, name+" to be "+want, func() (string, bool) {
			_, text := shown(name)
			return text, strings.Contains(text, want)
		})
	}
	status("web", "main: running, ready")
	status("env", "main: waiting CreateContainerConfigError")
	eventually(t, "the volumes of files and token to be tried", func() (string, bool) {
		log := s.log.String()
		return "the log says nothing of them", strings.Contains(log, "pod=default/files-"+node) && strings.Contains(log, "pod=default/token-"+node)
	})
	if err := r.runtime.Exit("web-"+node, "main", 3); err != nil {
		t.Fatal(err)
	}
	status("web", "main: running, ready, restarts 1, last exited 3 Error")
	for _, name := range []string{"files", "token"} {
		if _, text := shown(name); !strings.Contains(text, "main: waiting ContainerCreating") {
			t.Errorf("%s, which needs the API server, is\n%s", name, text)
		}
	}
	for _, p := range s.runtime.Pods() {
		for _, c := range p.Containers {
			if p.Name != namespace+"/web-"+node {
				t.Errorf("%s has a container, %v", p.Name, c.Status.State)
			}
		}
	}
	if got := len(s.pods(t, "/pods", "")); got != 4 {
		t.Errorf("%d pods by the secured port", got)
	}
	if q := s.proxy.Requests(); len(q) > 0 {
		t.Errorf("the API server was asked for %v", q)
	}
	if cidr := podCIDR(t, s.world); cidr != "10.77.0.0/24" {
		t.Errorf("the runtime was told the addresses %q", cidr)
	}
	s = listening(t, "podCIDR: 10.77.0.0/24\n", rights)
	eventually(t, "the node", func() (string, bool) { return "none", s.nodeObject() != nil })
	if cidr := podCIDR(t, s.world); cidr != "" {
		t.Errorf("with an API server the runtime was told the addresses %q of the configuration", cidr)
	}
}

// podCIDR is what the runtime was told of the addresses of pods.
func podCIDR(t *testing.T, w *world) string {
	t.Helper()
	resp, err := w.runtime.Status(t.Context(), &cri.StatusRequest{Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	var info struct{ PodCIDR string }
	if err := json.Unmarshal([]byte(resp.Info["info"]), &info); err != nil {
		t.Fatal(err)
	}
	return info.PodCIDR
}

// Two sources have a pod of one name: the first runs, and the other one once that
// has ended.
func TestOneNameInTwoSources(t *testing.T) {
	parity.Proves(t, "SRC-17")
	const manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: twin, namespace: default}\nspec: {terminationGracePeriodSeconds: 1, containers: [{name: main, image: %s, args: [%s]}]}\n"
	var gone atomic.Bool
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !gone.Load() {
			fmt.Fprintf(w, manifest, image, "far")
		}
	})}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	s := listening(t, "fileCheckFrequency: 1s\nhttpCheckFrequency: 1s\nstaticPodURL: http://"+l.Addr().String()+"/\n", rights)
	const name = "twin-" + node
	runs := func(want string) {
		t.Helper()
		eventually(t, "the copy "+want+" to run", func() (string, bool) { return s.showRuntime(), s.version(name) == want })
	}
	runs("far")
	near := onePod("twin")
	near.Spec.NodeName, near.Spec.Containers[0].Args = "", []string{"near"}
	r := &run{world: s.world}
	if err := r.place(near, "twin.yaml"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both to be known", func() (string, bool) {
		pods := s.pods(t, "/pods", "good")
		n := 0
		for _, p := range pods {
			if p.Name == name && !slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Node" }) {
				n++
			}
		}
		return fmt.Sprintf("%d pods of the name", n), n == 2
	})
	if got := s.version(name); got != "far" || len(s.runtime.Pods()) != 1 {
		t.Errorf("%q runs, of %d pods in the runtime", got, len(s.runtime.Pods()))
	}
	gone.Store(true)
	runs("near")
	if s.lastChange(name) < 0 {
		t.Error("the second copy was started before the first had ended")
	}
	for _, b := range s.breaches() {
		t.Error(b)
	}
}

// A static pod has variables from a file that one of its own containers wrote.
func TestVariablesOfAStaticPodFromAFile(t *testing.T) {
	parity.Proves(t, "SRC-27")
	settled(t, "", nil, func(t *testing.T, r *run) {
		r.scenario.Files["app.yaml"] = `spec:
  volumes: [{name: shared, emptyDir: {}}]
  initContainers:
  - {name: write, volumeMounts: [{name: shared, mountPath: /shared}], command: [sh, -c, "echo \"COLOUR='green'\" > /shared/config.env; echo \"SIZE='large'\" >> /shared/config.env"]}
  containers:
  - name: main
    env:
    - {name: SHADE, valueFrom: {fileKeyRef: {volumeName: shared, path: config.env, key: COLOUR}}}
    - {name: NONE, valueFrom: {fileKeyRef: {volumeName: shared, path: config.env, key: TASTE, optional: true}}}
`
		r.must(t, "static", "app.yaml")
		r.must(t, "wait", "app-"+node, "Ready")
		c, err := r.config("app-"+node, "main")
		if err != nil {
			t.Fatal(err)
		}
		env := map[string]string{}
		for _, kv := range c.GetEnvs() {
			env[kv.GetKey()] = string(kv.GetValue())
		}
		if _, there := env["NONE"]; env["SHADE"] != "green" || there {
			t.Errorf("variables %v", env)
		}
	})
}

// A pod that is refused never runs: its status, an event and a counter say why.
func TestARefusalIsToldAndCounted(t *testing.T) {
	parity.ProvesPart(t, 2, "SRC-34")
	s := listening(t, "maxPods: 1\n", rights)
	r := &run{world: s.world, scenario: &Scenario{Files: map[string]string{"fits.yaml": plainPod, "over.yaml": plainPod}}}
	eventually(t, "the node", func() (string, bool) { return "none", s.nodeObject() != nil })
	if err := r.apply([]string{"fits.yaml"}); err != nil {
		t.Fatal(err)
	}
	if err := s.awaits("fits", unhurried, func(p *corev1.Pod) bool { return holds(p, "Ready") }); err != nil {
		t.Fatal(err)
	}
	if err := r.apply([]string{"over.yaml"}); err != nil {
		t.Fatal(err)
	}
	if err := s.awaits("over", unhurried, func(p *corev1.Pod) bool { return holds(p, "Failed") }); err != nil {
		t.Fatal(err)
	}
	const why = "Node didn't have enough resource: pods, requested: 1, used: 1, capacity: 1"
	p := s.server.Pod(namespace, "over")
	if p.Status.Reason != "OutOfpods" || p.Status.Message != "Pod was rejected: "+why || len(p.Status.ContainerStatuses) != 0 {
		t.Errorf("status %+v", p.Status)
	}
	eventually(t, "the event", func() (string, bool) {
		events := s.showEvents("over")
		return events, events == "over Warning OutOfpods: "+why+"\n"
	})
	for _, p := range s.runtime.Pods() {
		if p.Name != namespace+"/fits" {
			t.Errorf("%s runs", p.Name)
		}
	}
	if _, text := s.ask(t, "/metrics", "good", nil); !strings.Contains(text, `kubelet_admission_rejections_total{reason="OutOfpods"} 1`) {
		t.Error("it is not counted")
	}
}

// What runs of a pod that only the runtime knows is stopped by what is written on
// it, and counted.
func TestPodsOnlyTheRuntimeKnows(t *testing.T) {
	parity.Proves(t, "SRC-56")
	s := listening(t, "", rights)
	r := &run{world: s.world, scenario: &Scenario{Files: map[string]string{"app.yaml": "spec: {terminationGracePeriodSeconds: 7, containers: [{name: main}]}\n"}}}
	if err := r.apply([]string{"app.yaml"}); err != nil {
		t.Fatal(err)
	}
	if err := s.awaits("app", unhurried, func(p *corev1.Pod) bool { return holds(p, "Ready") }); err != nil {
		t.Fatal(err)
	}
	counted := func(want string) {
		t.Helper()
		eventually(t, "a count of "+want, func() (string, bool) {
			_, text := s.ask(t, "/metrics", "good", nil)
			return "another one", strings.Contains(text, "kubelet_orphaned_runtime_pods_total "+want)
		})
	}
	counted("0")
	s.stop()
	if err := s.api.CoreV1().Pods(namespace).Delete(context.Background(), "app", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	s.start()
	eventually(t, "nothing to be left in the runtime", func() (string, bool) { return s.showRuntime(), len(s.runtime.Pods()) == 0 })
	counted("1")
	var graces []int64
	for _, c := range s.runtime.Calls(0) {
		if c.Method == "StopContainer" {
			graces = append(graces, c.Timeout)
		}
	}
	if !slices.Equal(graces, []int64{7}) {
		t.Errorf("stopped with the grace periods %v, want the 7 s of its specification", graces)
	}
}

// An agent finds the log directory of a pod of which nothing else is left, when every
// source has spoken, and removes it. Those of pods that are there stay, and so does what
// is not a pod's.
func TestLogsOfPodsThatAreGone(t *testing.T) {
	parity.Differs(t, "SRC-53", "0066")
	s := listening(t, "", rights)
	r := &run{world: s.world, scenario: &Scenario{Files: map[string]string{"app.yaml": "spec: {containers: [{name: main}]}\n"}}}
	if err := r.apply([]string{"app.yaml"}); err != nil {
		t.Fatal(err)
	}
	if err := s.awaits("app", unhurried, func(p *corev1.Pod) bool { return holds(p, "Ready") }); err != nil {
		t.Fatal(err)
	}
	logs := func() []string {
		entries, err := os.ReadDir(s.path("logs"))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	want := append(logs(), "archive")
	s.stop()
	for _, name := range []string{"archive", "ns_gone_0b6d8a52-5e0e-4b3f-9d0c-2f7f0a1f6a11/main"} {
		if err := os.MkdirAll(s.path("logs/"+name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.start()
	slices.Sort(want)
	eventually(t, "the logs to be gone", func() (string, bool) {
		got := logs()
		return strings.Join(got, " "), slices.Equal(got, want)
	})
}

// The picture of a static pod shows each edit of the manifest, also of what may be
// changed in a pod's place, as a pod that is new: its generation is 1, and what was
// observed of it is that of the static pod, which has none. One that somebody edits
// at the API server has another generation, and the static pod goes on.
func TestGenerationsOfAStaticPodsPicture(t *testing.T) {
	parity.Proves(t, "SRC-28")
	settled(t, "", nil, func(t *testing.T, r *run) {
		const name = "app-" + node
		pods := r.api.CoreV1().Pods(namespace)
		seen := map[types.UID]bool{}
		show := func(what string, shows func(*corev1.Pod) bool) *corev1.Pod {
			t.Helper()
			if err := r.awaits(name, time.Minute, func(p *corev1.Pod) bool { return p != nil && !seen[p.UID] && holds(p, "Ready") && shows(p) }); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			p := r.server.Pod(namespace, name).DeepCopy()
			seen[p.UID] = true
			if p.Generation != 1 || p.Status.ObservedGeneration != 0 {
				t.Errorf("%s: generation %d, observed %d, want 1 and none", what, p.Generation, p.Status.ObservedGeneration)
			}
			for _, c := range p.Status.Conditions {
				if c.ObservedGeneration != 0 {
					t.Errorf("%s: condition %s is of generation %d, want none", what, c.Type, c.ObservedGeneration)
				}
			}
			return p
		}
		p := onePod("app")
		p.Spec.NodeName = ""
		p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: image, Command: []string{"sh", "-c", "exit 0"}}}
		place := func() {
			t.Helper()
			if err := r.place(p, "app.yaml"); err != nil {
				t.Fatal(err)
			}
		}
		place()
		show("at first", func(*corev1.Pod) bool { return true })
		p.Spec.Containers[0].Image = "app:2"
		place()
		show("another image", func(q *corev1.Pod) bool { return q.Spec.Containers[0].Image == "app:2" })
		p.Spec.InitContainers[0].Image = "app:2"
		place()
		show("another image to begin with", func(q *corev1.Pod) bool { return q.Spec.InitContainers[0].Image == "app:2" })
		p.Spec.ActiveDeadlineSeconds = ptr.To[int64](3600)
		place()
		shown := show("a deadline", func(q *corev1.Pod) bool { return ptr.Deref(q.Spec.ActiveDeadlineSeconds, 0) == 3600 })

		r.must(t, "calls")
		shown.Spec.Containers[0].Image = "app:3"
		if _, err := pods.Update(t.Context(), shown, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		q := r.server.Pod(namespace, name)
		if q.UID != shown.UID || q.Generation != 2 || q.Status.ObservedGeneration != 0 || !holds(q, "Ready") {
			t.Errorf("edited at the API server: the same pod %v, generation %d, observed %d\n%s", q.UID == shown.UID, q.Generation, q.Status.ObservedGeneration, r.showStatus(q))
		}
		if out := r.must(t, "calls"); out != "" {
			t.Errorf("the static pod did not go on as it was:\n%s", out)
		}
	})
}
