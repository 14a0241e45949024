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

// pods requests the list of pods from an agent.
func (s *Served) pods(t *testing.T, at, token string) []corev1.Pod {
	t.Helper()
	code, text := s.Ask(t, at, token, nil)
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

// An agent without an API server runs its static pods and contacts no API server. A pod that
// needs objects of the API does not run.
func TestStandalone(t *testing.T) {
	parity.Proves(t, "SRC-29", "SRC-30", "SRC-31", "SRC-32")
	for config, want := range map[string]string{
		"authorization: {mode: AlwaysAllow}\n": "authentication.webhook.enabled",

		"authentication: {webhook: {enabled: false}}\nauthorization: {mode: Webhook}\n":             "authorization.mode",
		"authentication: {webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n":         "",
		"authentication: {webhook: {enabled: true}}\nauthorization: {mode: Webhook}\nport: 10250\n": "authorization.mode",
	} {
		w := &World{T: t, Dir: t.TempDir(), Alone: true, Config: "enableServer: true\n" + config}
		if _, err := w.Settings(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", config, err, want)
		}
	}
	port := FreePort(t)
	s := Listening(t, aloneConfig+fmt.Sprintf("readOnlyPort: %d\n", port), func(w *World) { w.Alone = true })
	r := &Run{World: s.World, Scenario: &Scenario{Files: map[string]string{
		"web.yaml":   PlainPod,
		"env.yaml":   "spec: {containers: [{name: main, env: [{name: A, valueFrom: {configMapKeyRef: {name: c, key: k}}}]}]}\n",
		"files.yaml": "spec: {volumes: [{name: v, secret: {secretName: s}}], containers: [{name: main, volumeMounts: [{name: v, mountPath: /v}]}]}\n",
		"token.yaml": "spec: {serviceAccountName: app, volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}], containers: [{name: main, volumeMounts: [{name: v, mountPath: /v}]}]}\n",
	}}, faults: map[string]fault{}}
	if err := r.Static([]string{"web.yaml", "env.yaml", "files.yaml", "token.yaml"}); err != nil {
		t.Fatal(err)
	}
	readOnly := fmt.Sprintf("http://127.0.0.1:%d/pods", port)
	shown := func(name string) (corev1.Pod, string) {
		for _, p := range s.pods(t, readOnly, "") {
			if p.Name == name+"-"+Node {
				return p, s.showStatus(&p)
			}
		}
		return corev1.Pod{}, "not there"
	}
	status := func(name, want string) {
		t.Helper()
		Eventually(t, name+" to be "+want, func() (string, bool) {
			_, text := shown(name)
			return text, strings.Contains(text, want)
		})
	}
	status("web", "main: running, ready")
	status("env", "main: waiting CreateContainerConfigError")
	Eventually(t, "the volumes of files and token to be tried", func() (string, bool) {
		log := s.Log.String()
		return "the log says nothing of them", strings.Contains(log, "pod=default/files-"+Node) &&
			strings.Contains(log, "pod=default/token-"+Node)
	})
	if err := r.Runtime.Exit("web-"+Node, "main", 3); err != nil {
		t.Fatal(err)
	}
	status("web", "main: running, ready, restarts 1, last exited 3 Error")
	for _, name := range []string{"files", "token"} {
		if _, text := shown(name); !strings.Contains(text, "main: waiting ContainerCreating") {
			t.Errorf("%s, which needs the API server, is\n%s", name, text)
		}
	}
	for _, p := range s.Runtime.Pods() {
		for _, c := range p.Containers {
			if p.Name != Namespace+"/web-"+Node {
				t.Errorf("%s has a container, %v", p.Name, c.Status.State)
			}
		}
	}
	if got := len(s.pods(t, "/pods", "")); got != 4 {
		t.Errorf("%d pods by the secured port", got)
	}
	if q := s.Proxy.Requests(); len(q) > 0 {
		t.Errorf("the API server was asked for %v", q)
	}
	if cidr := podCIDR(t, s.World); cidr != "10.77.0.0/24" {
		t.Errorf("the runtime got the addresses %q", cidr)
	}
	s = Listening(t, "podCIDR: 10.77.0.0/24\n", Rights)
	Eventually(t, "the node", func() (string, bool) { return "none", s.NodeObject() != nil })
	if cidr := podCIDR(t, s.World); cidr != "" {
		t.Errorf("with an API server the runtime got the addresses %q of the configuration", cidr)
	}
}

// podCIDR is the pod CIDR that the runtime got.
func podCIDR(t *testing.T, w *World) string {
	t.Helper()
	resp, err := w.Runtime.Status(t.Context(), &cri.StatusRequest{Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	var info struct{ PodCIDR string }
	if err := json.Unmarshal([]byte(resp.Info["info"]), &info); err != nil {
		t.Fatal(err)
	}
	return info.PodCIDR
}

// Two sources have a pod of the same name: the first one runs, and the other one once the
// first has ended.
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
			fmt.Fprintf(w, manifest, Image, "far")
		}
	})}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	s := Listening(t, "fileCheckFrequency: 1s\nhttpCheckFrequency: 1s\nstaticPodURL: http://"+l.Addr().String()+"/\n",
		Rights)
	const name = "twin-" + Node
	runs := func(want string) {
		t.Helper()
		Eventually(t, "the copy "+want+" to run",
			func() (string, bool) { return s.showRuntime(), s.version(name) == want })
	}
	runs("far")
	near := onePod("twin")
	near.Spec.NodeName, near.Spec.Containers[0].Args = "", []string{"near"}
	r := &Run{World: s.World}
	if err := r.place(near, "twin.yaml"); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "both to be known", func() (string, bool) {
		pods := s.pods(t, "/pods", "good")
		n := 0
		for _, p := range pods {
			if p.Name == name &&
				!slices.ContainsFunc(p.OwnerReferences,
					func(o metav1.OwnerReference) bool { return o.Kind == "Node" }) {
				n++
			}
		}
		return fmt.Sprintf("%d pods of the name", n), n == 2
	})
	if got := s.version(name); got != "far" || len(s.Runtime.Pods()) != 1 {
		t.Errorf("%q runs, of %d pods in the runtime", got, len(s.Runtime.Pods()))
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
	Settled(t, "", nil, func(t *testing.T, r *Run) {
		r.Scenario.Files["app.yaml"] = `spec:
  volumes: [{name: shared, emptyDir: {}}]
  initContainers:
  - {name: write, volumeMounts: [{name: shared, mountPath: /shared}], command: [sh, -c, "echo \"COLOUR='green'\" > /shared/config.env; echo \"SIZE='large'\" >> /shared/config.env"]}
  containers:
  - name: main
    env:
    - {name: SHADE, valueFrom: {fileKeyRef: {volumeName: shared, path: config.env, key: COLOUR}}}
    - {name: NONE, valueFrom: {fileKeyRef: {volumeName: shared, path: config.env, key: TASTE, optional: true}}}
`
		r.Must(t, "static", "app.yaml")
		r.Must(t, "wait", "app-"+Node, "Ready")
		c, err := r.config("app-"+Node, "main")
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

// A rejected pod never runs: its status, an event and a counter report why.
func TestRejectionIsReportedAndCounted(t *testing.T) {
	parity.ProvesPart(t, 2, "SRC-34")
	s := Listening(t, "maxPods: 1\n", Rights)
	r := &Run{
		World:    s.World,
		Scenario: &Scenario{Files: map[string]string{"fits.yaml": PlainPod, "over.yaml": PlainPod}},
	}
	Eventually(t, "the node", func() (string, bool) { return "none", s.NodeObject() != nil })
	if err := r.apply([]string{"fits.yaml"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Awaits("fits", Unhurried, func(p *corev1.Pod) bool { return holds(p, "Ready") }); err != nil {
		t.Fatal(err)
	}
	if err := r.apply([]string{"over.yaml"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Awaits("over", Unhurried, func(p *corev1.Pod) bool { return holds(p, "Failed") }); err != nil {
		t.Fatal(err)
	}
	const why = "Node didn't have enough resource: pods, requested: 1, used: 1, capacity: 1"
	p := s.Server.Pod(Namespace, "over")
	if p.Status.Reason != "OutOfpods" || p.Status.Message != "Pod was rejected: "+why ||
		len(p.Status.ContainerStatuses) != 0 {
		t.Errorf("status %+v", p.Status)
	}
	Eventually(t, "the event", func() (string, bool) {
		events := s.ShowEvents("over")
		return events, events == "over Warning OutOfpods: "+why+"\n"
	})
	for _, p := range s.Runtime.Pods() {
		if p.Name != Namespace+"/fits" {
			t.Errorf("%s runs", p.Name)
		}
	}
	if _, text := s.Ask(t, "/metrics", "good", nil); !strings.Contains(text,
		`kubelet_admission_rejections_total{reason="OutOfpods"} 1`) {
		t.Error("it is not counted")
	}
}

// Containers of a pod that exists only in the runtime are stopped with the grace period in their
// annotations, and counted in a metric.
func TestPodsOnlyTheRuntimeKnows(t *testing.T) {
	parity.Proves(t, "SRC-56")
	s := Listening(t, "", Rights)
	r := &Run{
		World: s.World,
		Scenario: &Scenario{
			Files: map[string]string{
				"app.yaml": "spec: {terminationGracePeriodSeconds: 7, containers: [{name: main}]}\n",
			},
		},
	}
	if err := r.apply([]string{"app.yaml"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Awaits("app", Unhurried, func(p *corev1.Pod) bool { return holds(p, "Ready") }); err != nil {
		t.Fatal(err)
	}
	counted := func(want string) {
		t.Helper()
		Eventually(t, "a count of "+want, func() (string, bool) {
			_, text := s.Ask(t, "/metrics", "good", nil)
			return "another one", strings.Contains(text, "kubelet_orphaned_runtime_pods_total "+want)
		})
	}
	counted("0")
	s.Stop()
	if err := s.API.CoreV1().Pods(Namespace).Delete(context.Background(),
		"app", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	s.Start()
	Eventually(t, "nothing to be left in the runtime",
		func() (string, bool) { return s.showRuntime(), len(s.Runtime.Pods()) == 0 })
	counted("1")
	var graces []int64
	for _, c := range s.Runtime.Calls(0) {
		if c.Method == "StopContainer" {
			graces = append(graces, c.Timeout)
		}
	}
	if !slices.Equal(graces, []int64{7}) {
		t.Errorf("stopped with the grace periods %v, want the 7 s of its specification", graces)
	}
}

// When all sources are ready, an agent removes the log directories of pods of which nothing else is
// left. The log directories of existing pods stay, and so do directories that do not belong to a
// pod.
func TestLogsOfPodsThatAreGone(t *testing.T) {
	parity.Differs(t, "SRC-53", "0066")
	s := Listening(t, "", Rights)
	r := &Run{
		World:    s.World,
		Scenario: &Scenario{Files: map[string]string{"app.yaml": "spec: {containers: [{name: main}]}\n"}},
	}
	if err := r.apply([]string{"app.yaml"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Awaits("app", Unhurried, func(p *corev1.Pod) bool { return holds(p, "Ready") }); err != nil {
		t.Fatal(err)
	}
	logs := func() []string {
		entries, err := os.ReadDir(s.Path("logs"))
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
	s.Stop()
	for _, name := range []string{"archive", "ns_gone_0b6d8a52-5e0e-4b3f-9d0c-2f7f0a1f6a11/main"} {
		if err := os.MkdirAll(s.Path("logs/"+name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.Start()
	slices.Sort(want)
	Eventually(t, "the logs to be gone", func() (string, bool) {
		got := logs()
		return strings.Join(got, " "), slices.Equal(got, want)
	})
}

// Each edit of a manifest gives a new mirror pod, also an edit of a field that can be changed in
// place: its generation is 1, and its observedGeneration is that of the static pod, which has
// none. If a user edits a mirror pod at the API server, its generation changes, and the static
// pod continues to run.
func TestGenerationsOfAStaticPodsPicture(t *testing.T) {
	parity.Proves(t, "SRC-28")
	Settled(t, "", nil, func(t *testing.T, r *Run) {
		const name = "app-" + Node
		pods := r.API.CoreV1().Pods(Namespace)
		seen := map[types.UID]bool{}
		show := func(what string, shows func(*corev1.Pod) bool) *corev1.Pod {
			t.Helper()
			if err := r.Awaits(name, time.Minute,
				func(p *corev1.Pod) bool {
					return p != nil && !seen[p.UID] && holds(p, "Ready") && shows(p)
				}); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			p := r.Server.Pod(Namespace, name).DeepCopy()
			seen[p.UID] = true
			if p.Generation != 1 || p.Status.ObservedGeneration != 0 {
				t.Errorf("%s: generation %d, observed %d, want 1 and none", what, p.Generation,
					p.Status.ObservedGeneration)
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
		p.Spec.InitContainers = []corev1.Container{
			{Name: "init", Image: Image, Command: []string{"sh", "-c", "exit 0"}},
		}
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
		show("another image to begin with",
			func(q *corev1.Pod) bool { return q.Spec.InitContainers[0].Image == "app:2" })
		p.Spec.ActiveDeadlineSeconds = ptr.To[int64](3600)
		place()
		shown := show("a deadline",
			func(q *corev1.Pod) bool { return ptr.Deref(q.Spec.ActiveDeadlineSeconds, 0) == 3600 })

		r.Must(t, "calls")
		shown.Spec.Containers[0].Image = "app:3"
		if _, err := pods.Update(t.Context(), shown, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		q := r.Server.Pod(Namespace, name)
		if q.UID != shown.UID || q.Generation != 2 || q.Status.ObservedGeneration != 0 || !holds(q, "Ready") {
			t.Errorf("edited at the API server: the same pod %v, generation %d, observed %d\n%s", q.UID == shown.UID,
				q.Generation, q.Status.ObservedGeneration, r.showStatus(q))
		}
		if out := r.Must(t, "calls"); out != "" {
			t.Errorf("the static pod did not go on as it was:\n%s", out)
		}
	})
}
