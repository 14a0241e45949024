//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"keelson/test/images"
	"keelson/test/kit/parity"
	"keelson/test/rig"
)

// manifest writes a static pod's file as an editor does: it writes a new file and renames it into place.
func (s *space) manifest(name string, content []byte) {
	s.t.Helper()
	s.writeFile(filepath.Join(s.Kubelet.Manifests, s.ns+"-"+name+".yaml"), content)
}

func (s *space) writeFile(file string, content []byte) {
	s.t.Helper()
	part := filepath.Join(filepath.Dir(file), "."+filepath.Base(file))
	if err := os.WriteFile(part, content, 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(part, file); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
			s.t.Error(err)
		}
	})
}

// static is the manifest of a static pod. It cannot use the API's objects.
func (s *space) static(name string, args ...string) []byte {
	s.t.Helper()
	p := s.demo(name, args)
	p.APIVersion, p.Kind = "v1", "Pod"
	data, err := yaml.Marshal(p)
	if err != nil {
		s.t.Fatal(err)
	}
	return data
}

// liveCopies counts the running containers of pods of that name.
func (s *space) liveCopies(name string) int {
	s.t.Helper()
	list, err := s.Runtime.CRI.ListContainers(s.t.Context(), &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
		State:         &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING},
		LabelSelector: map[string]string{"io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": s.ns},
	}})
	if err != nil {
		s.t.Fatal(err)
	}
	return len(list.Containers)
}

// TestStaticPod adds, edits and removes a manifest.
func TestStaticPod(t *testing.T) {
	t.Parallel()
	parity.Proves(t, "SRC-22", "SRC-24")
	s := shared(t).namespace(t)
	name := "st-" + s.Kubelet.Node
	s.manifest("st", s.static("st", "serve"))
	first := s.ready(name)
	if first.Annotations["kubernetes.io/config.mirror"] == "" ||
		first.Annotations["kubernetes.io/config.source"] != "file" ||
		len(first.OwnerReferences) != 1 || first.OwnerReferences[0].Kind != "Node" ||
		first.OwnerReferences[0].Name != s.Kubelet.Node {
		t.Errorf("mirror pod: annotations %v, owners %v", first.Annotations, first.OwnerReferences)
	}
	s.until("a line of its log", func() (string, bool) {
		log := s.kubectlDo("logs", name)
		return log, strings.Contains(log, "listening on")
	})
	if out := s.kubectlDo("exec", name, "--", "/demo", "echo", "hello"); out != "hello\n" {
		t.Errorf("exec says %q", out)
	}
	// Edited: the old one ends before the new one starts.
	s.manifest("st", s.static("st", "serve", "-port", "8081"))
	var second *corev1.Pod
	s.until("the edited pod", func() (string, bool) {
		if n := s.liveCopies(name); n > 1 {
			t.Fatalf("%d live copies", n)
		}
		pods := s.pods()
		if len(pods) != 1 {
			return fmt.Sprintf("%d pods", len(pods)), false
		}
		second = &pods[0]
		return second.Status.String(), rig.PodReady(second) && len(second.Spec.Containers[0].Args) == 3
	})
	if second.UID == first.UID || container(second, "main").ContainerID == container(first, "main").ContainerID {
		t.Error("the edited pod is the old one")
	}
	// Its mirror pod is deleted: it is created again, and the static pod is not affected.
	s.kubectlDo("delete", "pod", name, "--wait=false")
	third := s.pod(name, "shown again", func(p *corev1.Pod) bool {
		return p.UID != second.UID && p.DeletionTimestamp == nil && rig.PodReady(p)
	})
	if container(third, "main").ContainerID != container(second, "main").ContainerID {
		t.Error("deleting the mirror restarted the container")
	}
	s.kubectlDo("delete", "pod", name, "--force", "--grace-period=0")
	fourth := s.pod(name, "shown again", func(p *corev1.Pod) bool { return p.UID != third.UID && rig.PodReady(p) })
	if container(fourth, "main").ContainerID != container(second, "main").ContainerID {
		t.Error("deleting the mirror by force restarted the container")
	}
	// Removed and written again at once with the same content: the pod is restarted.
	file := filepath.Join(s.Kubelet.Manifests, s.ns+"-st.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	s.manifest("st", text)
	s.until("the pod to begin anew", func() (string, bool) {
		if n := s.liveCopies(name); n > 1 {
			t.Fatalf("%d live copies", n)
		}
		pods := s.pods()
		if len(pods) != 1 {
			return fmt.Sprintf("%d pods", len(pods)), false
		}
		p := &pods[0]
		return p.Status.String(), rig.PodReady(p) &&
			container(p, "main").ContainerID != container(fourth, "main").ContainerID
	})
	// Removed.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	s.gone(name)
	s.until("its end", func() (string, bool) {
		n := s.liveCopies(name)
		return fmt.Sprint(n), n == 0
	})
}

// TestBrokenManifest makes the file of a running pod invalid: the pod continues to run, and
// the log names file, field and cause. A file that was never valid affects no other pod.
func TestBrokenManifest(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	name := "st-" + s.Kubelet.Node
	good := s.static("st", "serve")
	s.manifest("st", good)
	before := s.ready(name)
	s.manifest("other", []byte("kind: Pod\napiVersion: v1\nmetadata: {name: other\n"))
	s.manifest("st", []byte(strings.Replace(string(good), "image: "+images.Demo, "image: ''", 1)))
	file := filepath.Join(s.Kubelet.Manifests, s.ns+"-st.yaml")
	s.until("the log to name file, field and cause", func() (string, bool) {
		data, err := os.ReadFile(s.Kubelet.LogFile)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if strings.Contains(line, file) && strings.Contains(line, "spec.containers[0].image") {
				return line, true
			}
		}
		return "nothing", false
	})
	if p := s.ready(name); container(p, "main").ContainerID != container(before, "main").ContainerID ||
		s.liveCopies(name) != 1 {
		t.Error("the pod was disturbed")
	}
	s.manifest("st", good)
	if p := s.ready(name); container(p, "main").ContainerID != container(before, "main").ContainerID {
		t.Error("the pod was replaced when its manifest was as before")
	}
}
