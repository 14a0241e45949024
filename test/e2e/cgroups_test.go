//go:build e2e

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"keelson/test/kit/need"
	"keelson/test/kit/parity"
	"keelson/test/rig"
)

// TestContainersMoveWithTheCgroupRoot starts the agent with another root for the
// cgroups of pods: the node's limits do not apply to containers below the old root, so
// upstream's agent and this one restart them below the new one.
func TestContainersMoveWithTheCgroupRoot(t *testing.T) {
	parity.ProvesPart(t, 2, "RES-21")
	need.Root(t, "running containers")
	n, peer := bothAgents(t)
	n.Rig = rig.Start(t, rig.Options{
		Cluster: true,
		Runtime: &rig.RuntimeConfig{},
		Kubelet: &rig.KubeletConfig{Binary: n.ours, Edit: quick},
	})
	s := n.namespace(t)
	s.create(s.demo("web", []string{"serve"}))
	before := container(s.ready("web"), "main")
	for i, binary := range []string{peer, n.ours} {
		root := fmt.Sprintf("/%s/moved-%d", n.Name, i)
		if err := n.makeCgroup(root); err != nil {
			t.Fatal(err)
		}
		n.edit(t, func(c *kubeletconfig.KubeletConfiguration) { c.CgroupRoot = root })
		if err := n.Kubelet.Swap(t.Context(), binary); err != nil {
			t.Fatal(err)
		}
		p := s.pod("web", "started anew below "+root, func(p *corev1.Pod) bool {
			_, id, _ := strings.Cut(container(p, "main").ContainerID, "://")
			found, err := filepath.Glob("/sys/fs/cgroup/*" + root + "/kubepods/*/pod" + string(p.UID) + "/" + id)
			return rig.PodReady(p) && err == nil && len(found) > 0
		})
		after := container(p, "main")
		if after.ContainerID == before.ContainerID || after.RestartCount != before.RestartCount+1 {
			t.Errorf("under %s: %s, %d restarts; before: %s, %d", filepath.Base(filepath.Dir(binary)),
				after.ContainerID, after.RestartCount, before.ContainerID, before.RestartCount)
		}
		before = after
	}
}

// makeCgroup makes a cgroup below the node's own, in every hierarchy.
func (n *node) makeCgroup(path string) error {
	tops, err := filepath.Glob("/sys/fs/cgroup/*/" + n.Name)
	if err != nil {
		return err
	}
	for _, top := range append(tops, "/sys/fs/cgroup/"+n.Name) {
		if _, err := os.Stat(top); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		dir := filepath.Join(top, strings.TrimPrefix(path, "/"+n.Name))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // v1 needs them before the first process
			have, err := os.ReadFile(filepath.Join(top, file))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, file), bytes.TrimSpace(have), 0o644)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// edit changes the configuration of the agents that are started from now on.
func (n *node) edit(t *testing.T, change func(*kubeletconfig.KubeletConfiguration)) {
	t.Helper()
	text, err := os.ReadFile(n.Kubelet.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	var c kubeletconfig.KubeletConfiguration
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	change(&c)
	if text, err = yaml.Marshal(c); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.Kubelet.ConfigFile, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestReservedCgroups checks that upstream's agent and this one limit system programs and Kubernetes
// programs to their reserved resources, in cgroups that exist before: all of them for the
// system, CPU only for Kubernetes.
func TestReservedCgroups(t *testing.T) {
	n := shared(t)
	peer, err := n.parts.Path(t.Context(), "kubelet")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"system", "agents"} {
		if err := n.makeCgroup("/" + n.Name + "/" + name); err != nil {
			t.Fatal(err)
		}
	}
	n.reconfigure(t, func(c *kubeletconfig.KubeletConfiguration) {
		c.EnforceNodeAllocatable = []string{"pods", "system-reserved", "kube-reserved-compressible"}
		c.SystemReservedCgroup, c.KubeReservedCgroup = "/"+n.Name+"/system", "/"+n.Name+"/agents"
		c.SystemReserved = map[string]string{"cpu": "250m", "memory": "256Mi", "pid": "1000"}
		c.KubeReserved = map[string]string{"cpu": "125m", "memory": "128Mi"}
	})
	parity.ProvesPart(t, 3, "RES-17")
	limits := []string{"cpu.shares", "cpu.weight", "memory.limit_in_bytes", "memory.max", "pids.max"}
	files := func() map[string]string {
		have := map[string]string{}
		for _, name := range []string{"system", "agents"} {
			for _, file := range limits {
				for _, top := range []string{"/sys/fs/cgroup/*/", "/sys/fs/cgroup/"} {
					found, err := filepath.Glob(top + n.Name + "/" + name + "/" + file)
					if err != nil {
						t.Fatal(err)
					}
					for _, f := range found {
						text, err := os.ReadFile(f)
						if err != nil {
							t.Fatal(err)
						}
						have[name+"/"+file] = strings.TrimSpace(string(text))
					}
				}
			}
		}
		return have
	}
	untouched := files()
	want := maps.Clone(untouched)
	for file, value := range map[string]string{
		"system/cpu.shares": "256", "system/cpu.weight": "10", "system/memory.limit_in_bytes": "268435456",
		"system/memory.max": "268435456", "system/pids.max": "1000",
		"agents/cpu.shares": "128", "agents/cpu.weight": "5",
	} {
		if _, ok := want[file]; ok {
			want[file] = value
		}
	}
	for _, binary := range []string{peer, n.ours} {
		if err := n.Kubelet.Swap(t.Context(), binary); err != nil {
			t.Fatal(err)
		}
		// The node is ready first, under upstream's agent.
		until(t, fmt.Sprintf("%v under %s", want, filepath.Base(filepath.Dir(binary))), func() (string, bool) {
			got := files()
			return fmt.Sprint(got), maps.Equal(got, want)
		})
		for file, value := range untouched {
			name, file, _ := strings.Cut(file, "/")
			if value == want[name+"/"+file] {
				continue
			}
			if strings.HasPrefix(value, "9223372036") {
				value = "-1" // v1 shows this if there is no limit
			}
			found, err := filepath.Glob("/sys/fs/cgroup/*/" + n.Name + "/" + name + "/" + file)
			if len(found) == 0 {
				found, err = filepath.Glob("/sys/fs/cgroup/" + n.Name + "/" + name + "/" + file)
			}
			for _, f := range found {
				err = errors.Join(err, os.WriteFile(f, []byte(value), 0o644))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}
