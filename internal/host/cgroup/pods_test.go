package cgroup

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/test/kit/parity"
)

// shared has the cgroups of pods as plain files. The agent can be restarted.
type shared struct {
	*Pods
	t    *testing.T
	dir  string
	pods map[types.UID]*v1.Pod // that are accounted to the node
}

func newShared(t *testing.T) *shared {
	s := &shared{t: t, dir: t.TempDir(), pods: map[types.UID]*v1.Pod{}}
	s.nextAgent()
	if err := s.tree.EnsureRoot(Values{}); err != nil {
		t.Fatal(err)
	}
	if err := s.recount(true); err != nil {
		t.Fatal(err)
	}
	return s
}

// nextAgent restarts the agent. The files stay.
func (s *shared) nextAgent() {
	s.t.Helper()
	tree, err := New(Config{Driver: Cgroupfs, Root: "/", Hierarchies: Hierarchies{V1: map[string]string{"cpu": s.dir}}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.Pods = NewPods(PodsConfig{
		Tree: tree,
		Account: func() (all []*v1.Pod) {
			for _, p := range s.pods {
				all = append(all, p)
			}
			return all
		},
		Log: slog.New(slog.DiscardHandler),
	})
}

// After a restart some pods are known long before others: those of static manifests, while the API
// server is not available. The weight of the burstable class is not reduced in the meantime.
func TestClassWeightIsKeptForUnknownPods(t *testing.T) {
	parity.Proves(t, "RES-08")
	synctest.Test(t, func(t *testing.T) {
		s := newShared(t)
		static := s.add("static", "100m")
		s.add("web", "4")
		s.add("db", "2")
		s.expect("with all", "6246", "2")

		s.nextAgent()
		known := s.pods
		s.pods = map[types.UID]*v1.Pod{"static": static}
		if _, _, err := s.Size(static); err != nil {
			t.Fatal(err)
		}
		s.expect("when one of them was looked at", "6246", "2")
		s.add("new", "10m")
		s.expect("when another has come", "6246", "2")
		// The kernel removes the files of a cgroup with its directory.
		if err := os.Remove(filepath.Join(s.dir, "kubepods/burstable/podstatic/cpu.shares")); err != nil {
			t.Fatal(err)
		}
		if err := s.RemovePod(t.Context(), "static"); err != nil {
			t.Fatal(err)
		}
		delete(s.pods, "static")
		delete(known, "static")
		s.expect("when one has gone", "6246", "2")
		known["large"] = s.add("large", "8")
		s.expect("when one has come that is worth more than all", "8202", "2")
		delete(s.pods, "large")

		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		synctest.Wait()
		s.expect("when all are known, and not all judged", "8202", "2")
		maps.Copy(s.pods, known)
		time.Sleep(time.Minute)
		synctest.Wait()
		s.expect("when all are judged", "14346", "2")
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// add makes the cgroup of a pod with this CPU request; empty for none.
func (s *shared) add(uid types.UID, cpu string) *v1.Pod {
	s.t.Helper()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}}}}
	if cpu != "" {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
	}
	s.pods[uid] = p
	if err := s.EnsurePod(s.t.Context(), p); err != nil {
		s.t.Fatal(err)
	}
	return p
}

func (s *shared) file(class string) string {
	return filepath.Join(s.dir, "kubepods", class, "cpu.shares")
}

func (s *shared) expect(when, burstable, bestEffort string) {
	s.t.Helper()
	for class, want := range map[string]string{"burstable": burstable, "besteffort": bestEffort} {
		if b, err := os.ReadFile(s.file(class)); err != nil || strings.TrimSpace(string(b)) != want {
			s.t.Errorf("%s the shares of %s are %s, %v, want %s", when, class, b, err, want)
		}
	}
}

// The CPU weight of the burstable class is that of the sum of its requests, and is updated when a
// pod is added or removed. The best-effort class has the minimum. After a restart existing pods are
// counted. If another program changes the weight, it is restored within a minute.
func TestQoSClassWeights(t *testing.T) {
	parity.Proves(t, "RES-08")
	synctest.Test(t, func(t *testing.T) {
		s := newShared(t)
		s.expect("with no pods", "2", "2")
		found := s.add("a", "500m")
		s.add("b", "250m")
		s.add("c", "")
		s.expect("with two pods", "768", "2")
		// The kernel removes the files of a cgroup with its directory.
		if err := os.Remove(filepath.Join(s.dir, "kubepods/burstable/podb/cpu.shares")); err != nil {
			t.Fatal(err)
		}
		if err := s.RemovePod(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		delete(s.pods, "b")
		s.expect("with one gone", "512", "2")

		s.nextAgent()
		if _, _, err := s.Size(found); err != nil {
			t.Fatal(err)
		}
		s.add("d", "500m")
		s.expect("with one of an earlier agent", "1024", "2")

		s.nextAgent()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		synctest.Wait()
		s.expect("counted anew", "1024", "2")
		for _, class := range []string{"burstable", "besteffort"} {
			if err := os.WriteFile(s.file(class), []byte("9"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		s.expect("a minute after another client wrote over it", "1024", "2")
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
