package rig

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/images"
	"keelson/test/kit/need"
	"keelson/test/parts"
)

// TestMain: if RIG_TEST_CHILD is set, the test binary is the child process that a test kills.
func TestMain(m *testing.M) {
	if os.Getenv("RIG_TEST_CHILD") != "" {
		if err := child(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// child opens a rig, starts a container, prints the rig's name and waits until it is killed.
func child(ctx context.Context) error {
	b, err := parts.New(os.Stderr)
	if err != nil {
		return err
	}
	r, err := Open(ctx, Config{Purpose: "test", Parts: b, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	rt, err := r.StartRuntime(ctx, RuntimeConfig{Source: os.Getenv("RIG_TEST_CHILD")})
	if err != nil {
		return err
	}
	if _, err := runContainer(ctx, rt, "left-behind"); err != nil {
		return err
	}
	fmt.Println(r.n.name(), rt.Pid())
	_, err = io.Copy(io.Discard, os.Stdin) // until killed, or until the parent has ended
	return err
}

// runContainer runs a demo container in a pod of its own and returns its id.
func runContainer(ctx context.Context, rt *Runtime, name string) (string, error) {
	pod := &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name},
		Linux:        &cri.LinuxPodSandboxConfig{CgroupParent: rt.rig.n.cgroup() + "/" + name},
		PortMappings: []*cri.PortMapping{{ContainerPort: 8080, HostPort: 18080 + int32(rt.rig.n)}},
	}
	sb, err := rt.CRI.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: pod})
	if err != nil {
		return "", err
	}
	c, err := rt.CRI.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId: sb.PodSandboxId, SandboxConfig: pod,
		Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: "main"},
			Image:    &cri.ImageSpec{Image: images.Demo},
			Linux:    &cri.LinuxContainerConfig{},
		},
	})
	if err != nil {
		return "", err
	}
	_, err = rt.CRI.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: c.ContainerId})
	return c.ContainerId, err
}

// TestSweepRemovesWhatAKilledRunLeft kills the owner of a rig and the rig's containerd while a container runs. Sweep
// removes all remains.
func TestSweepRemovesWhatAKilledRunLeft(t *testing.T) {
	need.Root(t, "running containers")
	for _, source := range []string{"built", "debian"} {
		t.Run(source, func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe", "-test.run=^$")
			cmd.Env = append(os.Environ(), "RIG_TEST_CHILD="+source)
			cmd.Stderr = t.Output()
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatalf("the child gave no rig: %v", err)
			}
			var name string
			var pid int
			if _, err := fmt.Sscan(line, &name, &pid); err != nil {
				t.Fatal(err)
			}
			containerd, err := identify(pid)
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // it was killed
			(&process{who: containerd}).signal(9)
			if err := await(containerd); err != nil {
				t.Fatal(err)
			}
			if len(remains(t, name)) == 0 {
				t.Fatal("nothing is left that could be swept")
			}
			if err := Sweep(t.Context(), slog.New(slog.NewTextHandler(t.Output(), nil))); err != nil {
				t.Fatal(err)
			}
			for _, r := range remains(t, name) {
				t.Error("left behind:", r)
			}
		})
	}
}

// TestTwoRigsAtOnce runs a container in each of two rigs. Closing one rig does not affect the other's container.
func TestTwoRigsAtOnce(t *testing.T) {
	a, b := Start(t, Options{}), Start(t, Options{Runtime: &RuntimeConfig{Source: "debian"}})
	var ids []string
	for _, r := range []*Rig{a, b} {
		id, err := runContainer(t.Context(), r.Runtime, "both")
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if err := a.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, r := range remains(t, a.Name) {
		t.Error("left behind:", r)
	}
	st, err := b.Runtime.CRI.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: ids[1]})
	if err != nil || st.Status.State != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the other rig's container: %v, %v; want it running", st.GetStatus().GetState(), err)
	}
	rules, err := natRules(t.Context(), b.Runtime.Parts.Path)
	if err != nil || !strings.Contains(string(rules), `name: \"`+b.Name+`\"`) {
		t.Errorf("the other rig's address translation is gone (%v)", err)
	}
}

// remains lists what is left of a rig on this machine.
func remains(t *testing.T, name string) []string {
	t.Helper()
	var n number
	if _, err := fmt.Sscanf(name, prefix+"%d", &n); err != nil {
		t.Fatal(err)
	}
	dir := n.folder(os.TempDir())
	var out []string
	for _, f := range append([]string{dir}, networkResults(name)...) {
		if _, err := os.Lstat(f); err == nil {
			out = append(out, "file "+f)
		}
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		out = append(out, "mount "+m.Mountpoint)
	}
	for _, w := range processes(func(pid int) bool {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return err == nil && strings.Contains(string(line), dir+"/")
	}) {
		out = append(out, fmt.Sprintf("process %d", w.Pid))
	}
	tops, _, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	for _, top := range tops {
		if _, err := os.Stat(top + n.cgroup()); err == nil {
			out = append(out, "cgroup "+top+n.cgroup())
		}
	}
	if _, err := net.InterfaceByName(n.bridge()); err == nil {
		out = append(out, "bridge "+n.bridge())
	}
	rules, err := natRules(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(rules), `name: \"`+name+`\"`) {
		out = append(out, "address translation of "+name)
	}
	return out
}
