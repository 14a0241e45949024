package differ

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/images"
	"keelson/test/kit/criproxy"
	"keelson/test/kit/fakecri"
	"keelson/test/parts"
	"keelson/test/rig"
)

// onContainerd is a containerd of the rig's own behind a proxy.
type onContainerd struct {
	rig    *rig.Rig
	proxy  *criproxy.Proxy
	socket string // of the proxy

	mu     sync.Mutex
	pods   []fakecri.Pod // the last list
	at     time.Time
	down   bool  // containerd was killed since the list
	failed error // of a list; no further list is made after it
}

// startContainerd starts containerd with the images of real histories.
func startContainerd(ctx context.Context, r *rig.Rig, archive string, hooks criproxy.Options) (*onContainerd, error) {
	rt, err := r.StartRuntime(ctx, rig.RuntimeConfig{Images: []string{archive}})
	if err != nil {
		return nil, err
	}
	hooks.Target = rt.Socket
	proxy, err := criproxy.New(hooks)
	if err != nil {
		return nil, err
	}
	return &onContainerd{rig: r, proxy: proxy, socket: filepath.Join(r.Dir, "proxy.sock")}, nil
}

// shellImages writes the images of real histories, which have a shell, as an archive.
func shellImages(ctx context.Context, b *parts.Builder, dir string) (string, error) {
	busybox, err := b.StaticBusybox(ctx)
	if err != nil {
		return "", err
	}
	return images.ShellArchive(ctx, busybox, dir, present...)
}

func (c *onContainerd) open(ctx context.Context) error {
	select {
	case <-c.rig.Runtime.Done():
		if err := c.rig.Runtime.Start(ctx); err != nil {
			return err
		}
		c.mu.Lock()
		c.down = false
		c.mu.Unlock()
	default:
	}
	return c.proxy.Listen(c.socket)
}

// drop lists the pods, for use while containerd is down, and kills containerd before it disconnects the agent: if calls
// were cancelled first, containerd would undo them.
func (c *onContainerd) drop() {
	c.Pods()
	c.mu.Lock()
	c.down = true
	c.mu.Unlock()
	c.rig.Runtime.Kill9()
	c.proxy.Disconnect()
}

func (c *onContainerd) close() error { return c.proxy.Close() }

func (c *onContainerd) busy(pod string) bool { return c.proxy.Open(pod) > 0 }

// codeFile is the file from which a container's program reads its exit code. A user who is not root can
// write there too. All containers of a pod share the directory.
func codeFile(container string) string { return "/dev/shm/code-" + container }

// prelude is put before a program. It makes the program end like those of the fake runtime: at SIGTERM with
// 143, although it is process 1, and at SIGUSR1 with the code in a file. A shell runs a trap only after the
// program in the foreground has ended, so sleep runs in the background.
func prelude(container string) string {
	return "trap 'exit 143' TERM; trap 'exit $(cat " + codeFile(container) +
		")' USR1; sleep() { /bin/sleep \"$1\" & wait $!; }; "
}

// Exit sends signals until the program has ended: a signal that arrives before the program has set its trap is ignored.
func (c *onContainerd) Exit(pod, container string, code int32) error {
	for _, p := range c.PodsNamed(pod) {
		for _, ctr := range p.Containers {
			if ctr.Status.GetState() != cri.ContainerState_CONTAINER_RUNNING ||
				ctr.Status.GetMetadata().GetName() != container {
				continue
			}
			pid, err := c.first(ctr.Status.GetId())
			if err != nil {
				return fmt.Errorf("end container: %w", err)
			}
			file := fmt.Sprintf("/proc/%d/root%s", pid, codeFile(container))
			if err := os.WriteFile(file, fmt.Appendln(nil, code), 0o644); err != nil {
				return fmt.Errorf("end container: %w", err)
			}
			return end(pid, unix.SIGUSR1)
		}
	}
	return fmt.Errorf("find container: none of pod %q is named %q and runs", pod, container)
}

// KillSandbox kills the pause process.
func (c *onContainerd) KillSandbox(pod string) error {
	for _, p := range c.PodsNamed(pod) {
		if p.Sandbox.GetState() != cri.PodSandboxState_SANDBOX_READY {
			continue
		}
		pid, err := c.first(p.Sandbox.GetId())
		if err != nil {
			return fmt.Errorf("kill sandbox: %w", err)
		}
		return end(pid, unix.SIGKILL)
	}
	return fmt.Errorf("kill sandbox: pod %q has none that is ready", pod)
}

// first is the first process of a container or sandbox, also while containerd is down.
func (c *onContainerd) first(id string) (pid int, err error) {
	file := filepath.Join(c.rig.Dir, "containerd", "state", "io.containerd.runtime.v2.task", "k8s.io", id, "init.pid")
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(data))
}

// end sends a signal to a process again and again until the process has ended.
func end(pid int, signal unix.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("find process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	for began := time.Now(); time.Since(began) < callBound; {
		if err := unix.PidfdSendSignal(fd, signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("signal process %d: %w", pid, err)
		}
		ended, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 200)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for process %d: %w", pid, err)
		}
		if ended > 0 {
			return nil
		}
	}
	return fmt.Errorf("process %d runs %v after signal %v", pid, callBound, signal)
}

// callBound is how long containerd may take for a call, and a process to end.
const callBound = 2 * time.Minute

// fresh is the maximum age of a list of pods that a comparison uses: all lives need the list again and again.
const fresh = 200 * time.Millisecond

func (c *onContainerd) Pods() []fakecri.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down || c.failed != nil || time.Since(c.at) < fresh {
		return c.pods
	}
	ctx, cancel := context.WithTimeout(context.Background(), callBound)
	defer cancel()
	pods, err := c.list(ctx)
	if err != nil {
		c.failed = fmt.Errorf("list pods: %w", err) // the history ends with it
		return c.pods
	}
	c.pods, c.at = pods, time.Now()
	return pods
}

func (c *onContainerd) PodsNamed(name string) (list []fakecri.Pod) {
	for _, p := range c.Pods() {
		if p.Name == name {
			list = append(list, p)
		}
	}
	return list
}

// list lists the sandboxes and containers of containerd, once it runs.
func (c *onContainerd) list(ctx context.Context) (pods []fakecri.Pod, err error) {
	boxes, err := c.rig.Runtime.CRI.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return nil, err
	}
	all, err := c.rig.Runtime.CRI.ListContainers(ctx, &cri.ListContainersRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return nil, err
	}
	for _, b := range boxes.GetItems() {
		p := fakecri.Pod{
			Name: b.GetMetadata().GetNamespace() + "/" + b.GetMetadata().GetName(),
			UID:  b.GetMetadata().GetUid(),
			Sandbox: &cri.PodSandboxStatus{
				Id:        b.GetId(),
				Metadata:  b.GetMetadata(),
				State:     b.GetState(),
				CreatedAt: b.GetCreatedAt(),
			},
			Config: c.proxy.Sandbox(b.GetId()),
		}
		for _, ctr := range all.GetContainers() {
			if ctr.GetPodSandboxId() != b.GetId() {
				continue
			}
			config, _ := c.proxy.Container(ctr.GetId())
			p.Containers = append(p.Containers, fakecri.Container{
				Status: &cri.ContainerStatus{
					Id:        ctr.GetId(),
					Metadata:  ctr.GetMetadata(),
					State:     ctr.GetState(),
					CreatedAt: ctr.GetCreatedAt(),
				},
				Config: config,
			})
		}
		pods = append(pods, p)
	}
	return pods, nil
}

// left lists the addresses of sandboxes and the shims that are left. It fails if pods could not be listed at some time.
func (c *onContainerd) left() (list []string, err error) {
	c.mu.Lock()
	failed := c.failed
	c.mu.Unlock()
	if failed != nil {
		return nil, failed
	}
	addresses, err := filepath.Glob(filepath.Join(c.rig.Dir, "ipam", "*", "10.*"))
	if err != nil {
		return nil, err
	}
	for _, a := range addresses {
		list = append(list, "address "+filepath.Base(a))
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, file := range commands {
		line, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		if text := string(line); strings.Contains(text, "containerd-shim") && strings.Contains(text, c.rig.Dir+"/") {
			list = append(list, "shim "+strings.ReplaceAll(text, "\x00", " "))
		}
	}
	return list, nil
}
