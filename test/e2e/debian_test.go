//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"keelson/test/kit/need"
	"keelson/test/parts"
	"keelson/test/rig"
)

// TestOlderRuntime runs pods on Debian's containerd, which has no event stream,
// and crashes agent and runtime there.
func TestOlderRuntime(t *testing.T) {
	need.Root(t, "running containers")
	b, err := parts.New(os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{parts: b}
	if n.kubectl, err = b.Path(t.Context(), "kubectl"); err != nil {
		t.Fatal(err)
	}
	if n.ours, err = rig.OurKubelet(t.Context(), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	n.Rig = rig.Start(t, rig.Options{
		Cluster: true,
		Runtime: &rig.RuntimeConfig{Source: "debian"},
		Kubelet: &rig.KubeletConfig{Binary: n.ours, Edit: quick},
	})
	s := n.namespace(t)
	s.deployment("web", 3, s.demo("web", []string{"serve"}))
	s.create(s.demo("work", []string{"echo", "done"}, onFailure))
	s.phase("work", corev1.PodSucceeded)
	if got := s.kubectlDo("logs", "work"); got != "done\n" {
		t.Errorf("log %q", got)
	}
	pods := s.pods()
	if got := s.kubectlDo("exec", "deployment/web", "--", "/demo", "echo", "hello"); got != "hello\n" {
		t.Errorf("exec says %q", got)
	}
	// The exit of a container is detected without an event.
	s.create(s.demo("ends", []string{"exit", "5", "2s"}, never))
	s.phase("ends", corev1.PodFailed)
	for _, name := range []string{"work", "ends"} {
		s.delete(name, -1)
		s.gone(name)
	}
	before := instances(s.pods())
	n.Kubelet.Kill9()
	if err := n.Kubelet.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		s.create(s.demo(fmt.Sprintf("crowd-%d", i), []string{"serve"}))
	}
	s.until("one to have begun", func() (string, bool) {
		have, err := n.traces(t.Context())
		if err != nil {
			return err.Error(), false
		}
		begun := 0
		for _, kinds := range have {
			begun += kinds["sandbox"]
		}
		return fmt.Sprint(begun), begun > len(pods)-1
	})
	n.Runtime.Kill9()
	n.Kubelet.Kill9()
	if err := n.Runtime.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.Kubelet.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.allReady(8)
	n.onlyLive(t)
	for i := range 5 {
		s.delete(fmt.Sprintf("crowd-%d", i), -1)
		s.gone(fmt.Sprintf("crowd-%d", i))
	}
	if after := instances(s.pods()); after != before {
		t.Errorf("containers before:\n%s\nafter:\n%s", before, after)
	}
	s.kubectlDo("delete", "deployment", "web")
	n.nothing(t)
}
