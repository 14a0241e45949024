//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"keelson/test/kit/need"
)

// ownUsers gives the pod users that do not exist on the node.
func ownUsers(p *corev1.Pod) { p.Spec.HostUsers = ptr(false) }

// TestUserNamespaces runs pods with user namespaces: each has its own range of IDs, which is
// recorded in the pod's directory, and is the owner of its volumes inside the
// namespace.
func TestUserNamespaces(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	supported := false
	for _, h := range s.nodeObject().Status.RuntimeHandlers {
		supported = supported ||
			h.Name == "" && h.Features != nil && h.Features.UserNamespaces != nil && *h.Features.UserNamespaces
	}
	if !supported {
		need.Skip(t, "the runtime supports no user namespaces here")
	}
	s.configMap("conf", map[string]string{"a": "letter a"})
	volumes := []spec{
		mounted("empty", "/empty", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
		mounted("memory", "/memory",
			corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}),
		mounted(
			"conf",
			"/conf",
			corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "conf"},
				},
			},
		),
	}
	s.lists(s.says(s.demo("look", []string{"ls", "/empty", "/memory", "/conf", "/etc/hosts"},
		append(volumes, ownUsers)...)), map[string]string{
		"/empty":  "drwxrwxrwx 0:0",
		"/memory": "dtrwxrwxrwx 0:0",
		"/conf/a": "Lrwxrwxrwx 0:0",
	})
	seen := map[uint32]string{}
	for _, name := range []string{"a", "b"} {
		s.create(s.demo(name, []string{"serve"}, ownUsers))
		p := s.ready(name)
		record := filepath.Join(s.Kubelet.Root, "pods", string(p.UID), "userns")
		b, err := os.ReadFile(record)
		if err != nil {
			t.Fatal(err)
		}
		var r struct {
			UIDs []struct{ HostID, ContainerID, Length uint32 } `json:"uidMappings"`
			GIDs []struct{ HostID, ContainerID, Length uint32 } `json:"gidMappings"`
		}
		if err := json.Unmarshal(b, &r); err != nil || len(r.UIDs) != 1 || len(r.GIDs) != 1 || r.UIDs[0] != r.GIDs[0] ||
			r.UIDs[0].Length != 65536 || r.UIDs[0].ContainerID != 0 {
			t.Fatalf("%s: %s, %v", record, b, err)
		}
		first := r.UIDs[0].HostID
		if other, taken := seen[first]; taken || first < 65536 {
			t.Errorf("pod %s has IDs from %d, as has %q", name, first, other)
		}
		seen[first] = name
		pid, _, _ := strings.Cut(s.cgroupValue(p, container(p, "main").ContainerID, "cgroup.procs", "cgroup.procs"),
			"\n")
		status, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("\nUid:\t%d\t%[1]d\t%[1]d\t%[1]d\n", first); !strings.Contains(string(status), want) {
			t.Errorf("root of pod %s is not user %d of the node: %s", name, first, status)
		}
		mapping, err := os.ReadFile(filepath.Join("/proc", pid, "uid_map"))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Fields(string(mapping)); len(got) != 3 || got[0] != "0" || got[1] != fmt.Sprint(first) ||
			got[2] != "65536" {
			t.Errorf("users of pod %s are mapped as %q", name, mapping)
		}
	}
}
