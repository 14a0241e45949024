//go:build guest

package guest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAnAgentThatIsKilled kills the agent. While no agent runs, one pod is deleted, and an orphaned cgroup is made. The
// next agent removes these two and changes nothing else.
func TestAnAgentThatIsKilled(t *testing.T) {
	a := agentWith(t, "", nil)
	specs := map[string]spec{
		"guaranteed": limits("cpu", "100m", "memory", "64Mi"),
		"burstable":  requests("cpu", "150m", "memory", "20Mi"),
		"besteffort": func(*corev1.Pod) {},
		"leaving":    requests("cpu", "10m"),
	}
	for name, s := range specs {
		a.run(name, []string{"sleep"}, s)
	}
	before := map[string]*corev1.Pod{}
	for name := range specs {
		before[name] = a.ready(name)
	}
	leaving := before["leaving"]
	a.Kill9()
	now := int64(0)
	if err := a.api.CoreV1().Pods("default").Delete(t.Context(),
		"leaving", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	stray := filepath.Join(top, a.Name, "kubepods/burstable/pod0a0a0a0a-0000-4000-8000-000000000001")
	if err := os.Mkdir(stray, 0o755); err != nil {
		t.Fatal(err)
	}
	was := a.tree()
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{a.home(leaving), stray} {
		a.until(dir+" to be removed", func() (string, bool) {
			_, err := os.Stat(dir)
			return fmt.Sprint(err), os.IsNotExist(err)
		})
	}
	a.run("late", []string{"sleep"}) // if this pod becomes ready, the others have been synced
	a.ready("late")
	after := a.tree()
	for _, tree := range []map[string]string{was, after} {
		maps.DeleteFunc(tree, func(path, _ string) bool {
			return strings.Contains(path, "/podlate/") || strings.Contains(path, string(leaving.UID)) ||
				strings.Contains(path, filepath.Base(stray)) ||
				path == "/kubepods/burstable/cpu.weight" // reduced by the request of the pod leaving
		})
	}
	if !maps.Equal(was, after) {
		differences(t, was, after)
	}
	for name, b := range before {
		if name == "leaving" {
			continue
		}
		p := a.ready(name)
		if x, y := container(b, "main"), container(p, "main"); x.ContainerID != y.ContainerID || y.RestartCount != 0 {
			t.Errorf("pod %s: container %s, then %s after %d restarts", name, x.ContainerID, y.ContainerID,
				y.RestartCount)
		}
	}
}

// TestResize changes CPU and memory of a running pod, up and down.
func TestResize(t *testing.T) {
	a := agentWith(t, "", nil)
	a.run("web", []string{"sleep"}, limits("cpu", "100m", "memory", "64Mi"))
	first := a.ready("web")
	for _, step := range []struct {
		cpu, memory  string
		milli, bytes int64
	}{{"200m", "96Mi", 200, 96 << 20}, {"150m", "128Mi", 150, 128 << 20}, {"100m", "80Mi", 100, 80 << 20}} {
		p := a.server.Pod("default", "web").DeepCopy()
		l := list("cpu", step.cpu, "memory", step.memory)
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: l, Limits: l}
		if _, err := a.api.CoreV1().Pods("default").UpdateResize(t.Context(), "web", p,
			metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		p = a.pod("web", "resized", func(p *corev1.Pod) bool {
			r := container(p, "main").Resources
			return r != nil && r.Limits.Cpu().MilliValue() == step.milli && r.Limits.Memory().Value() == step.bytes &&
				!slices.ContainsFunc(p.Status.Conditions,
					func(c corev1.PodCondition) bool { return c.Type == corev1.PodResizeInProgress })
		})
		want := map[string]string{
			"cpu.max":    fmt.Sprintf("%d 100000", step.milli*100),
			"memory.max": fmt.Sprint(step.bytes),
		}
		a.has(a.room(p, "main"), want)
		want["cpu.weight"] = fmt.Sprint(weight(step.milli * 1024 / 1000))
		a.has(a.home(p), want)
		if x, y := container(first, "main"), container(p, "main"); x.ContainerID != y.ContainerID ||
			y.RestartCount != 0 {
			t.Errorf("the container was replaced: %s, then %s", x.ContainerID, y.ContainerID)
		}
	}
}
