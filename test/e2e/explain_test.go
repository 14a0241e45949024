//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"keelson/internal/pods/explain"
	"keelson/internal/pods/timeline"
)

// explains runs kubelet explain on this node and returns its output.
func (s *space) explains(args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), s.ours,
		append([]string{"explain", "--root-dir=" + s.Kubelet.Root, "--width=120"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// explained is the answer of the agent about one pod, decoded from JSON.
func (s *space) explained(name string) (p explain.Pod) {
	s.t.Helper()
	text := s.explains(name, "-n", s.ns, "-o", "json")
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		s.t.Fatalf("%v in %s", err, text)
	}
	return p
}

// TestExplainOnARealNode requests the explanation of four pods, which does not need the API server.
func TestExplainOnARealNode(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	made := time.Now()
	s.create(s.demo("image", []string{"serve"},
		func(p *corev1.Pod) { p.Spec.Containers[0].Image = "keelson.invalid/none:1" }))
	s.create(s.demo("volume", []string{"serve"},
		mounted(
			"conf",
			"/conf",
			corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "absent"},
				},
			},
		)))
	s.create(s.demo("crash", []string{"exit", "3"}))
	s.create(s.demo("fine", []string{"serve"}, initContainer("first", "exit", "0", "300ms")))
	fine := s.ready("fine")
	for _, c := range []struct {
		pod, waits, reason, says, image, state string
		sandbox                                bool
	}{
		{
			"image",
			"image keelson.invalid/none:1 of container main",
			"ImagePullBackOff",
			"keelson.invalid",
			"keelson.invalid/none:1",
			"not created",
			true,
		},
		{
			"volume",
			"its volumes",
			"",
			`volume "conf": configmap "absent" not found`,
			"keelson.local/demo:1",
			"not created",
			true,
		},
		{
			"crash",
			"container main, which crashes again and again",
			"CrashLoopBackOff",
			"it last exited with code 3 (Error)",
			"keelson.local/demo:1",
			"exited",
			true,
		},
	} {
		var p explain.Pod
		s.until(fmt.Sprintf("%s to wait for %s", c.pod, c.waits), func() (string, bool) {
			p = s.explained(c.pod)
			return fmt.Sprintf("%+v",
					p), len(p.Waits) == 1 && p.Waits[0].For == c.waits && p.Waits[0].Reason == c.reason &&
					!p.Waits[0].Next.IsZero()
		})
		w := p.Waits[0]
		if p.State != explain.Failing || p.Source != "the API server" || p.Node != s.Kubelet.Node ||
			p.Arrived.Before(made) || p.Sandbox == nil != !c.sandbox {
			t.Errorf("%s: %+v", c.pod, p)
		}
		if len(p.Containers) != 1 || p.Containers[0].Image != c.image || p.Containers[0].State != c.state {
			t.Errorf("%s has the containers %+v", c.pod, p.Containers)
		}
		if !strings.Contains(w.Error, c.says) || w.Since.Before(made) || w.Since.After(p.At) || !w.Next.After(w.Since) {
			t.Errorf("%s, asked at %s: %+v", c.pod, p.At, w)
		}
		// While a step is retried, the pod does not wait for it, for a moment.
		s.until("a text about "+c.pod, func() (string, bool) {
			text := s.explains(s.ns + "/" + c.pod)
			for _, want := range []string{`^pod        ` + s.ns + "/" + c.pod + "   [0-9a-f-]{36}\n",
				"(?m)^state      Failing, for [0-9]",
				"(?m)^waits      for " + regexp.QuoteMeta(c.waits) + ", for [0-9]",
				"(?m)^error      .*" + regexp.QuoteMeta(c.says), "(?m)^next retry (in [0-9]|now)",
				"(?m)^source     the API server, received [0-9.]+ (m?s|min) ago$"} {
				if !regexp.MustCompile(want).MatchString(text) {
					return fmt.Sprintf("no %s in\n%s", want, text), false
				}
			}
			return text, true
		})
	}
	// After a retry that succeeds the pod waits for nothing.
	s.configMap("absent", map[string]string{"a": "b"})
	s.ready("volume")
	if p := s.explained("volume"); p.State != explain.Ready || len(p.Waits) > 0 {
		t.Errorf("a volume that came: %+v", p)
	}
	s.drawn(fine)
	// Failing pods are the first in the list.
	s.until("the list with those in trouble first", func() (string, bool) {
		list := s.explains("-n", s.ns)
		var order []string
		for line := range strings.Lines(list) {
			order = append(order, strings.Join(strings.Fields(line)[:2], " "))
		}
		return list, slices.Equal(order,
			[]string{"POD STATE", s.ns + "/crash Failing", s.ns + "/image Failing", s.ns + "/fine Ready",
				s.ns + "/volume Ready"})
	})
}

// drawn checks the chart of a start: in the terminal and on the HTML page it has the steps in
// the order in which they were taken, with their calls.
func (s *space) drawn(pod *corev1.Pod) {
	s.t.Helper()
	p := s.explained(pod.Name)
	if p.State != explain.Ready || p.UID != string(pod.UID) || p.Ready.IsZero() || p.Sandbox == nil ||
		!slices.Equal(p.Sandbox.IPs, []string{pod.Status.PodIP}) {
		s.t.Errorf("a pod that is ready: %+v", p)
	}
	if len(p.Containers) != 2 || p.Containers[0].ExitCode == nil || *p.Containers[0].ExitCode != 0 ||
		!p.Containers[1].Ready || p.Containers[1].Restarts != 0 {
		s.t.Errorf("its containers: %+v", p.Containers)
	}
	began := map[string]time.Time{}
	for _, step := range p.Steps {
		name := strings.TrimSpace(step.Verb + " " + step.Target)
		if began[name] = step.Began; step.Ended.Before(step.Began) || step.Error != "" {
			s.t.Errorf("step %s: %+v", name, step)
		}
		calls := map[string]string{
			"run sandbox": "RunPodSandbox",
			"start first": "StartContainer",
			"start main":  "StartContainer",
		}
		if want := calls[name]; want != "" &&
			!slices.ContainsFunc(step.Calls, func(c timeline.Call) bool { return c.Method == want && c.Took > 0 }) {
			s.t.Errorf("step %s has the calls %+v", name, step.Calls)
		}
	}
	// The init container took 300 ms of the time between.
	if a, b := began["start first"], began["start main"]; began["run sandbox"].IsZero() ||
		a.Before(began["run sandbox"]) || b.Sub(a) < 300*time.Millisecond {
		s.t.Errorf("steps began at %v", began)
	}
	lines := regexp.MustCompile(
		`(?m)^step +(run sandbox|RunPodSandbox|start first|start main) +\S+ (?:m?s|min) +\S+ (?:m?s|min) +[█▒]`,
	).FindAllStringSubmatch(s.explains(pod.Name, "-n", s.ns), -1)
	var order []string
	for _, l := range lines {
		order = append(order, l[1])
	}
	want := []string{"run sandbox", "RunPodSandbox", "start first", "start main"}
	if !slices.Equal(order, want) {
		s.t.Errorf("drawn are %q in\n%s", order, s.explains(pod.Name, "-n", s.ns))
	}
	file := filepath.Join(s.t.TempDir(), "start.html")
	s.explains(pod.Name, "-n", s.ns, "--html", file)
	page, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	order = nil
	for _, l := range regexp.MustCompile(
		`<td class="name[^"]*">(run sandbox|RunPodSandbox|start first|start main)<td class="n">`).FindAllStringSubmatch(
		string(page), -1) {
		order = append(order, l[1])
	}
	if !slices.Equal(order, want) || strings.Contains(string(page), "http://") ||
		!strings.HasPrefix(string(page), "<!doctype html>") {
		s.t.Errorf("the page draws %q:\n%s", order, page)
	}
}
