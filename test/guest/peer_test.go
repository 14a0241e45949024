//go:build guest

package guest

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/kit/parity"
)

// assortment creates pods of every kind that differs in its cgroups, and waits until they run.
func (a *agent) assortment() {
	a.t.Helper()
	pods := map[string][]spec{
		"guaranteed": {limits("cpu", "100m", "memory", "64Mi")},
		"burstable": {requests("cpu", "150m", "memory", "20Mi"), limits("memory", "50Mi"), func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, demo("free", "sleep"))
		}},
		"limited":    {requests("cpu", "50m", "memory", "20Mi"), limits("cpu", "70m", "memory", "50Mi")},
		"besteffort": nil,
		"staged": {limits("cpu", "30m", "memory", "30Mi"), func(p *corev1.Pod) {
			first, side := demo("first", "exit", "0"), demo("side", "sleep")
			first.Resources.Limits = list("cpu", "210m", "memory", "90Mi")
			side.Resources.Limits = list("cpu", "40m", "memory", "32Mi")
			side.RestartPolicy = ptr(corev1.ContainerRestartPolicyAlways)
			p.Spec.InitContainers = []corev1.Container{first, side}
		}},
		"whole": {func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{
				Requests: list("cpu", "120m", "memory", "40Mi"),
				Limits:   list("cpu", "240m", "memory", "96Mi"),
			}
			own := demo("own", "sleep")
			own.Resources.Limits = list("cpu", "60m", "memory", "32Mi")
			p.Spec.Containers = append(p.Spec.Containers, own)
		}},
		"sealed": {func(p *corev1.Pod) {
			l := list("cpu", "80m", "memory", "48Mi")
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: l, Limits: l}
		}},
	}
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		a.run(name, []string{"sleep"}, pods[name]...)
	}
	for name := range pods {
		a.ready(name)
	}
}

// tree reads every file below the agent's root cgroup that can be written and read, which are the settings. In the
// paths, the IDs of pods and containers are replaced by their names.
func (a *agent) tree() map[string]string {
	a.t.Helper()
	var names []string
	pods, err := a.api.CoreV1().Pods("default").List(a.t.Context(), metav1.ListOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	for _, p := range pods.Items {
		names = append(names, string(p.UID), p.Name)
	}
	containers, err := a.Runtime.CRI.ListContainers(a.t.Context(), &cri.ListContainersRequest{})
	if err != nil {
		a.t.Fatal(err)
	}
	for _, c := range containers.Containers {
		names = append(names, c.Id, c.Metadata.Name)
	}
	sandboxes, err := a.Runtime.CRI.ListPodSandbox(a.t.Context(), &cri.ListPodSandboxRequest{})
	if err != nil {
		a.t.Fatal(err)
	}
	for _, s := range sandboxes.Items {
		names = append(names, s.Id, "sandbox")
	}
	renamed := strings.NewReplacer(names...)
	out := map[string]string{}
	root := filepath.Join(top, a.Name)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := renamed.Replace(strings.TrimPrefix(path, root))
		if d.IsDir() {
			out[name+"/"] = "there"
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o600 != 0o600 || d.Name() == "cgroup.procs" || d.Name() == "cgroup.threads" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		out[name] = strings.TrimSpace(string(text))
		return nil
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return out
}

// withClock adds the clock frequency to /proc/cpuinfo. User-Mode Linux does not report it, and upstream's agent does
// not start without it.
func withClock(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "cpuinfo")
	if err := os.WriteFile(file, []byte(strings.TrimSpace(string(text))+"\ncpu MHz\t\t: 2500.000\n\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(file, "/proc/cpuinfo", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount("/proc/cpuinfo", 0); err != nil {
			t.Error(err)
		}
	})
}

// TestTreeIsUpstreams runs the same pods with upstream's agent and with ours, and compares every cgroup setting.
func TestTreeIsUpstreams(t *testing.T) {
	parity.Proves(t, "RES-01")
	peer, err := shared.parts.Path(t.Context(), "kubelet")
	if err != nil {
		t.Fatal(err)
	}
	withClock(t)
	withSwap(t)
	for name, edit := range map[string]func(*config){
		"as it comes": func(*config) {},
		"with settings": func(c *config) {
			c.PodPidsLimit = ptr(int64(333))
			c.KubeReserved = map[string]string{"cpu": "100m", "memory": "200Mi", "pid": "1000"}
			c.SystemReserved = map[string]string{"cpu": "50m", "memory": "56Mi", "pid": "2000"}
			c.SingleProcessOOMKill = ptr(true)
			c.MemorySwap.SwapBehavior = "LimitedSwap"
		},
	} {
		t.Run(name, func(t *testing.T) {
			trees := map[string]map[string]string{}
			for who, binary := range map[string]string{"upstream": peer, "ours": shared.ours} {
				ok := t.Run(who, func(t *testing.T) {
					a := agentWith(t, binary, edit)
					a.assortment()
					trees[who] = a.tree()
				})
				for _, r := range []string{"kubepods/burstable", "kubepods/besteffort", "kubepods"} {
					if err := os.Remove(filepath.Join(top, shared.Name, r)); err != nil {
						t.Error(err)
					}
				}
				if !ok {
					return
				}
			}
			differences(t, trees["upstream"], trees["ours"])
		})
	}
}

func differences(t *testing.T, upstream, ours map[string]string) {
	t.Helper()
	all := maps.Clone(upstream)
	maps.Copy(all, ours)
	if len(all) < 100 {
		t.Errorf("only %d files were compared", len(all))
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if u, o := upstream[name], ours[name]; u != o {
			t.Errorf("%s: upstream %q, ours %q", name, u, o)
		}
	}
}
