//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"keelson/test/kit/parity"
	"keelson/test/rig"
)

const many = 20

// crowd creates many pods of two containers, with the kinds of volumes that
// leave mounts behind.
func (s *space) crowd() {
	s.t.Helper()
	for i := range many {
		p := s.demo(fmt.Sprintf("crowd-%02d", i), []string{"serve"})
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name:  "side",
			Image: p.Spec.Containers[0].Image,
			Args:  []string{"sleep"},
		})
		keepCount(p)
		s.create(p)
	}
}

// allReady waits until this number of pods of the namespace is Ready.
func (s *space) allReady(n int) []corev1.Pod {
	s.t.Helper()
	var pods []corev1.Pod
	s.until(fmt.Sprintf("%d Ready pods", n), func() (string, bool) {
		pods = s.pods()
		ready := 0
		for i := range pods {
			if rig.PodReady(&pods[i]) {
				ready++
			}
		}
		return fmt.Sprintf("%d of %d", ready, len(pods)), ready == n
	})
	return pods
}

// instances lists the containers of pods with their IDs and how often they
// were restarted.
func instances(pods []corev1.Pod) string {
	var out []string
	for _, p := range pods {
		for _, c := range append(slices.Clone(p.Status.InitContainerStatuses), p.Status.ContainerStatuses...) {
			out = append(out, fmt.Sprintf("%s/%s %s %d", p.Name, c.Name, c.ContainerID, c.RestartCount))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// watchReady records every pod that is not Ready at some time, until stop is called,
// which returns the records.
func (s *space) watchReady() (stop func() []string) {
	s.t.Helper()
	list, err := s.Cluster.Client.CoreV1().Pods(s.ns).List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	w, err := s.Cluster.Client.CoreV1().Pods(s.ns).Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		cancel()
		s.t.Fatal(err)
	}
	done := make(chan []string)
	go func() {
		var seen []string
		for e := range w.ResultChan() {
			p, ok := e.Object.(*corev1.Pod)
			switch {
			case ctx.Err() != nil: // its own end is an event, too
			case !ok:
				seen = append(seen, fmt.Sprintf("the watch ended: %v", e.Object))
			case e.Type != watch.Modified || !rig.PodReady(p):
				seen = append(seen, fmt.Sprintf("%s %s: %+v", e.Type, p.Name, p.Status))
			}
		}
		if ctx.Err() == nil {
			seen = append(seen, "the watch ended")
		}
		done <- seen
	}()
	return func() []string {
		cancel()
		return <-done
	}
}

// TestRestartLeavesPodsAlone restarts the agent under running pods, with SIGTERM and
// with SIGKILL: no container is restarted and all pods stay Ready. Nothing is left of a
// pod that was deleted meanwhile.
func TestRestartLeavesPodsAlone(t *testing.T) {
	parity.Proves(t, "LIFE-14")
	parity.ProvesPart(t, 3, "RES-20")
	n := shared(t)
	s := n.namespace(t)
	s.crowd()
	probed := s.demo("probed", []string{"serve"}, func(p *corev1.Pod) {
		p.Spec.Containers[0].ReadinessProbe = httpProbe("/healthz")
	})
	s.create(probed)
	before := instances(s.allReady(many + 1))
	seen := s.watchReady()
	s.create(s.demo("removed", []string{"serve"}))
	s.ready("removed")
	start := time.Now()
	if err := n.Kubelet.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("restarted in %s", time.Since(start))
	n.Kubelet.Kill9()
	s.delete("removed", 0) // while no agent runs
	if err := n.Kubelet.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The new agent has synced every pod once a new pod is Ready.
	s.create(s.demo("late", []string{"serve"}))
	s.ready("late")
	n.onlyLive(t)
	s.delete("late", 0)
	s.gone("late")
	for _, flap := range seen() {
		if !strings.Contains(flap, " late: ") && !strings.Contains(flap, " removed: ") {
			t.Errorf("while the agent was restarted: %s", flap)
		}
	}
	if after := instances(s.pods()); after != before {
		t.Errorf("containers before:\n%s\nafter:\n%s", before, after)
	}
}

// TestCrashWhileStarting kills the agent, the runtime, and both while many pods
// start. All of them become Ready, and the crash leaves nothing else; when the pods
// are deleted, nothing is left.
func TestCrashWhileStarting(t *testing.T) {
	parity.Proves(t, "LIFE-14")
	parity.ProvesPart(t, 3, "RT-32")
	n := shared(t)
	for name, crash := range map[string]func(context.Context) error{
		"agent": func(ctx context.Context) error {
			n.Kubelet.Kill9()
			return n.Kubelet.Start(ctx)
		},
		"runtime": func(ctx context.Context) error {
			n.Runtime.Kill9()
			return n.Runtime.Start(ctx)
		},
		"both": func(ctx context.Context) error {
			n.Runtime.Kill9()
			n.Kubelet.Kill9()
			if err := n.Runtime.Start(ctx); err != nil {
				return err
			}
			return n.Kubelet.Start(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := n.namespace(t)
			s.crowd()
			// In the middle: some have begun, few have finished.
			s.until("some pods to have begun", func() (string, bool) {
				have, err := n.traces(t.Context())
				if err != nil {
					return err.Error(), false
				}
				begun := 0
				for _, kinds := range have {
					begun += kinds["container main"]
				}
				return fmt.Sprint(begun), begun >= 3
			})
			if err := crash(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.allReady(many)
			n.onlyLive(t)
			for _, p := range s.pods() {
				s.delete(p.Name, -1)
			}
			s.until("all pods to be gone", func() (string, bool) {
				left := s.pods()
				return fmt.Sprint(len(left)), len(left) == 0
			})
			n.nothing(t)
		})
	}
}
