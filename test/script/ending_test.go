package script

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/test/kit/parity"
)

// TestTheStatusesOfAPodThatEnds: a status is sent when the termination begins, before the containers have
// been stopped, and a last one with their exit states before the pod is removed from the API server.
func TestTheStatusesOfAPodThatEnds(t *testing.T) {
	parity.ProvesPart(t, 5, "LIFE-07")
	Settled(t, "", nil, func(t *testing.T, r *Run) {
		r.Pod(t, "app", PlainPod)
		r.Must(t, "wait", "app", "Ready")
		pods := r.API.CoreV1().Pods(Namespace)
		p := r.Server.Pod(Namespace, "app").DeepCopy()
		p.Finalizers = []string{"example.com/hold"}
		if _, err := pods.Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		r.Must(t, "fault", "slow", "StopContainer", "container=main", "times=1", "delay=10s")
		r.Must(t, "delete", "app")
		time.Sleep(time.Second)
		p = r.Server.Pod(Namespace, "app")
		if p.Generation != 2 || p.Status.ObservedGeneration != 2 || !holds(p, "Ready") ||
			p.Status.ContainerStatuses[0].State.Running == nil {
			t.Errorf("while it is stopped: generation %d, observed %d\n%s", p.Generation, p.Status.ObservedGeneration,
				r.showStatus(p))
		}
		time.Sleep(time.Minute)
		p = r.Server.Pod(Namespace, "app")
		if ended := p.Status.ContainerStatuses[0].State.Terminated; ended == nil || ended.ExitCode != 143 ||
			ended.FinishedAt.IsZero() ||
			!strings.HasSuffix(ended.ContainerID, p.Status.ContainerStatuses[0].ContainerID) || holds(p, "Ready") {
			t.Errorf("when it has ended\n%s", r.showStatus(p))
		}
		p = p.DeepCopy()
		p.Finalizers = nil
		if _, err := pods.Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		r.Must(t, "wait", "app", "gone")
	})
}
