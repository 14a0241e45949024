//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/rig"
)

// traces are the counts of everything that a pod can leave on the node, by UID and kind. The
// UID "?" stands for things that belong to no pod.
type traces map[types.UID]map[string]int

func (t traces) add(uid types.UID, kind string) {
	if t[uid] == nil {
		t[uid] = map[string]int{}
	}
	t[uid][kind]++
}

// lines formats the traces of a pod.
func lines(kinds map[string]int) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(&b, " %s:%d", k, kinds[k])
	}
	return b.String()
}

var podUID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}`)

// traces reads the runtime, the file system, cgroups, mounts and network.
func (n *node) traces(ctx context.Context) (traces, error) {
	all := traces{}
	sandboxes, err := n.Runtime.CRI.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return nil, err
	}
	owner := map[string]types.UID{}
	for _, s := range sandboxes.Items {
		uid := types.UID(s.Metadata.Uid)
		owner[s.Id] = uid
		if s.State == cri.PodSandboxState_SANDBOX_READY {
			all.add(uid, "sandbox")
		} else {
			all.add(uid, "dead sandbox")
		}
	}
	containers, err := n.Runtime.CRI.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	for _, c := range containers.Containers {
		uid, ok := owner[c.PodSandboxId]
		if !ok {
			uid = "?"
		}
		if c.State == cri.ContainerState_CONTAINER_RUNNING {
			all.add(uid, "container "+c.Metadata.Name)
		} else {
			all.add(uid, "dead container "+c.Metadata.Name)
		}
	}
	for dir, kind := range map[string]string{
		filepath.Join(n.Kubelet.Root, "pods"): "directory",
		n.Kubelet.PodLogs:                     "logs",
	} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			name := e.Name()
			all.add(types.UID(name[strings.LastIndexByte(name, '_')+1:]), kind)
		}
	}
	if err := n.cgroups(all); err != nil {
		return nil, err
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(filepath.Join(n.Kubelet.Root, "pods")))
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		all.add(types.UID(podUID.FindString(m.Mountpoint)), "mount")
	}
	links, err := filepath.Glob(filepath.Join(n.Dir, "containers", "*.log"))
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		to, err := os.Readlink(l)
		if err != nil {
			continue // gone meanwhile
		}
		if _, err := os.Stat(l); err != nil {
			all.add("?", "broken link "+filepath.Base(l))
			continue
		}
		all.add(types.UID(podUID.FindString(to)), "log link")
	}
	n.addresses(all, owner)
	return all, nil
}

// cgroups adds each pod's cgroup once, however many hierarchies there are.
func (n *node) cgroups(all traces) error {
	seen := map[string]bool{}
	tops, err := filepath.Glob("/sys/fs/cgroup/*/" + n.Name)
	if err != nil {
		return err
	}
	for _, top := range append(tops, "/sys/fs/cgroup/"+n.Name) {
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return nil // cgroups come and go
			}
			if uid, ok := strings.CutPrefix(d.Name(), "pod"); ok && podUID.MatchString(uid) {
				if !seen[uid] {
					all.add(types.UID(uid), "cgroup")
				}
				seen[uid] = true
				return fs.SkipDir
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// addresses adds the pods' addresses: the IPAM plugin keeps a file for each with the
// ID of the sandbox.
func (n *node) addresses(all traces, owner map[string]types.UID) {
	files, _ := filepath.Glob(filepath.Join(n.Dir, "ipam", "*", "10.*"))
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue // given back meanwhile
		}
		uid, ok := owner[string(bytes.TrimSpace(bytes.SplitN(data, []byte("\n"), 2)[0]))]
		if !ok {
			uid = "?"
		}
		all.add(uid, "address")
	}
}

// running are the expected traces of a running pod.
func running(p *corev1.Pod) map[string]int {
	want := map[string]int{"sandbox": 1, "directory": 1, "logs": 1, "cgroup": 1}
	if !p.Spec.HostNetwork {
		want["address"] = 1
	}
	for i := range p.Spec.Containers {
		want["container "+p.Spec.Containers[i].Name] = 1
		want["log link"]++
	}
	for _, v := range p.Spec.Volumes {
		if v.Projected != nil || v.Secret != nil {
			want["mount"]++ // tmpfs
		}
	}
	return want
}

// forgive removes the previous instance of each container from the traces. It is kept for its
// log; it exists if a crash interrupted its start.
func forgive(p *corev1.Pod, have map[string]int) {
	for i := range p.Spec.Containers {
		if dead := "dead container " + p.Spec.Containers[i].Name; have[dead] == 1 {
			delete(have, dead)
			have["log link"] = min(have["log link"], len(p.Spec.Containers))
		}
	}
}

// onlyLive waits until the node has exactly the traces of its pods at the API server, all of
// them running.
func (n *node) onlyLive(t *testing.T) {
	t.Helper()
	until(t, "the node to hold its live pods and nothing else", func() (string, bool) {
		list, err := n.Cluster.Client.CoreV1().Pods("").List(t.Context(),
			metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.Kubelet.Node})
		if err != nil {
			return err.Error(), false
		}
		have, err := n.traces(t.Context())
		if err != nil {
			return err.Error(), false
		}
		var diff strings.Builder
		for i := range list.Items {
			p := &list.Items[i]
			uid := p.UID
			if h := p.Annotations["kubernetes.io/config.mirror"]; h != "" {
				uid = types.UID(h)
			}
			if !rig.PodReady(p) {
				fmt.Fprintf(&diff, "%s (%s) is not Ready\n", p.Name, p.UID)
			}
			forgive(p, have[uid])
			if want := running(p); !maps.Equal(want, have[uid]) {
				fmt.Fprintf(&diff, "%s (%s) has%s\n\twanted%s\n", p.Name, uid, lines(have[uid]), lines(want))
			}
			delete(have, uid)
		}
		for uid, kinds := range have {
			fmt.Fprintf(&diff, "left of pod %s:%s\n", uid, lines(kinds))
		}
		return diff.String(), diff.Len() == 0
	})
}

// nothing waits until nothing of any pod is left on the node.
func (n *node) nothing(t *testing.T) {
	t.Helper()
	until(t, "nothing to be left on the node", func() (string, bool) {
		have, err := n.traces(t.Context())
		if err != nil {
			return err.Error(), false
		}
		var left strings.Builder
		for uid, kinds := range have {
			fmt.Fprintf(&left, "of pod %s:%s\n", uid, lines(kinds))
		}
		return left.String(), left.Len() == 0
	})
}

// machineHas returns an error if something of a removed node is left on the machine.
// The directory of the node was removed last: if it exists now, it belongs to the next
// rig, which has the same number, and nothing is checked.
func machineHas(dir, name string) error {
	var left []string
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return err
	}
	for _, m := range mounts {
		left = append(left, "mount "+m.Mountpoint)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/" + name, "/sys/fs/cgroup/*/" + name,
		"/var/lib/cni/results/" + name + "-*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		left = append(left, found...)
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, f := range commands {
		if line, err := os.ReadFile(f); err == nil && bytes.Contains(line, []byte(dir+"/")) {
			left = append(left, "process "+string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("left on the machine: %s", strings.Join(left, ", "))
	}
	return nil
}
