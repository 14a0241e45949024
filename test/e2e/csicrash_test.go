//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestKilledBetweenStepsOfAVolume kills the agent before and after the driver executes a
// call, for every call of a volume's life. The next agent reaches the same state: the pod
// runs with its data, or the pod and everything of its volume is gone. The attacher checks
// that no volume is detached while it is mounted.
func TestKilledBetweenStepsOfAVolume(t *testing.T) {
	n := shared(t)
	s := n.namespace(t)
	st := s.storage(nil)
	st.volume("data", false, nil)
	st.write("data", "f", "precious")
	kills := 0
	// killAt kills the agent at the call. The driver then completes the call.
	killAt := func(method string, done bool) (killed chan struct{}) {
		killed = make(chan struct{})
		var once sync.Once
		st.driver.Observe(func(m string, d bool) {
			if m == method && d == done {
				once.Do(func() { n.Kubelet.Kill9(); close(killed) })
			}
		})
		return killed
	}
	revive := func(what string, killed chan struct{}) {
		t.Helper()
		s.until(what, func() (string, bool) {
			select {
			case <-killed:
				return "", true
			default:
				return fmt.Sprint(st.driver.Methods()), false
			}
		})
		st.driver.Observe(nil)
		kills++
		if err := n.Kubelet.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, done := range []bool{false, true} {
		for _, method := range []string{"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume",
			"NodeUnstageVolume"} {
			what := fmt.Sprintf("a kill at %s, done: %v", method, done)
			coming := slices.Contains([]string{"NodeStageVolume", "NodePublishVolume"}, method)
			var killed chan struct{}
			if coming {
				killed = killAt(method, done)
			}
			s.create(s.demo("db", []string{"serve"}, claimed("data", "/data"),
				mounted("own", "/own",
					corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}})))
			if coming {
				revive(what, killed)
			}
			p := s.ready("db")
			if got := s.kubectlDo("exec", "db", "--", "/demo", "cat", "/data/f"); got != "precious" {
				t.Errorf("%s: the pod reads %q", what, got)
			}
			st.held("data")
			if r := container(p, "main").RestartCount; r != 0 {
				t.Errorf("%s: the container was restarted %d times", what, r)
			}
			if !coming {
				killed = killAt(method, done)
			}
			s.delete("db", 1)
			if !coming {
				revive(what, killed)
			}
			s.gone("db")
			st.unused("data")
		}
	}
	n.nothing(t)
	up, down := st.times(st.handle("data"))
	t.Logf("%d kills; the volume was attached %d times and detached %d times, never while mounted", kills, up, down)
}
