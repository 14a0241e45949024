package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/images"
	"keelson/test/parts"
)

const socketName = "cri.sock"

// RuntimeConfig describes the runtime to start.
type RuntimeConfig struct {
	// Source is "built" (default: the pinned versions), "debian" (the running
	// release's, unpacked), "path" (what PATH has) or "any" (PATH, else Debian).
	Source string
	// Images are archives to import in addition to the project's own images.
	Images []string
	// Checkpoints adds criu to the runtime's PATH.
	Checkpoints bool
}

// Runtime is a containerd of the rig's own.
type Runtime struct {
	Socket string
	CRI    cri.RuntimeServiceClient
	Images cri.ImageServiceClient
	Parts  parts.Runtime
	CDI    string // folder of CDI device descriptions

	rig  *Rig
	conn *grpc.ClientConn
	proc *process
}

// Endpoint returns the socket in the form of a kubelet's configuration.
func (rt *Runtime) Endpoint() string { return "unix://" + rt.Socket }

// StartRuntime starts containerd and imports the project's images.
func (r *Rig) StartRuntime(ctx context.Context, cfg RuntimeConfig) (*Runtime, error) {
	choose := map[string]func(context.Context) (parts.Runtime, error){
		"": r.parts.BuiltRuntime, "built": r.parts.BuiltRuntime, "debian": r.parts.DebianRuntime,
		"path": r.parts.PathRuntime, "any": r.parts.AnyRuntime,
	}[cfg.Source]
	if choose == nil {
		return nil, fmt.Errorf("start runtime: no source %q", cfg.Source)
	}
	programs, err := choose(ctx)
	if err != nil {
		return nil, fmt.Errorf("start runtime: %w", err)
	}
	if cfg.Checkpoints {
		criu, err := r.parts.CRIU(ctx)
		if err != nil {
			return nil, fmt.Errorf("start runtime: %w", err)
		}
		programs.Path = append(programs.Path, criu)
	}
	rt := &Runtime{rig: r, Parts: programs, Socket: filepath.Join(r.Dir, socketName), CDI: filepath.Join(r.Dir, "cdi")}
	none, err := noPortmapChains(ctx, programs.Path)
	if err != nil {
		return nil, fmt.Errorf("start runtime: %w", err)
	}
	if err := r.book.note(func(p *page) { p.Path, p.NoChains = programs.Path, p.NoChains || none }); err != nil {
		return nil, err
	}
	if err := rt.configure(); err != nil {
		return nil, fmt.Errorf("configure runtime: %w", err)
	}
	rt.conn, err = grpc.NewClient(rt.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("connect to runtime: %w", err)
	}
	rt.CRI, rt.Images = cri.NewRuntimeServiceClient(rt.conn), cri.NewImageServiceClient(rt.conn)
	if err := rt.Start(ctx); err != nil {
		return nil, err
	}
	checkout, err := parts.Checkout()
	if err != nil {
		return nil, err
	}
	own, err := images.Own(ctx, checkout, r.Dir)
	if err != nil {
		return nil, err
	}
	for _, archive := range append([]string{own}, cfg.Images...) {
		if err := rt.Import(ctx, archive); err != nil {
			return nil, err
		}
	}
	r.Runtime = rt
	return rt, nil
}

// configure writes containerd's configuration and that of its network.
func (rt *Runtime) configure() error {
	dir := rt.rig.Dir
	conf := containerdConfig{
		Dir: dir, Socket: rt.Socket, CDI: rt.CDI,
		Runc: rt.Parts.Runc, Plugins: rt.Parts.CNI,
		Sandbox:     images.PauseSandbox,
		Snapshotter: snapshotter(dir),
		RestrictOOM: !mayLowerOOMScore(),
		Old:         strings.HasPrefix(rt.Parts.Version, "1."),
	}
	// Processes of pods with user namespaces must be able to enter the runtime's directory to reach their root.
	// containerd would make it accessible only to itself.
	for _, d := range []string{"cni", "cdi", "s", "containerd"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o711); err != nil {
			return err
		}
	}
	list := rt.rig.n.conflist(filepath.Join(dir, "ipam"))
	if err := os.WriteFile(filepath.Join(dir, "cni", "10-rig.conflist"), []byte(list), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "containerd.toml"), conf.render(), 0o644)
}

// Start starts containerd, after Kill9 or Stop, and returns when it answers.
func (rt *Runtime) Start(ctx context.Context) error {
	proc, err := rt.rig.start(program{
		name: "containerd", kind: "runtime", path: rt.Parts.Containerd,
		args: []string{"--config", filepath.Join(rt.rig.Dir, "containerd.toml")},
		env:  []string{"PATH=" + strings.Join(append(rt.Parts.Path, os.Getenv("PATH"), "/usr/sbin", "/sbin"), ":")},
	})
	if err != nil {
		return err
	}
	rt.proc = proc
	ctx, cancel := context.WithTimeoutCause(ctx, 3*time.Minute, errors.New("no answer within 3 min"))
	defer cancel()
	return proc.until(ctx, func(ctx context.Context) error {
		st, err := rt.CRI.Status(ctx, &cri.StatusRequest{}, grpc.WaitForReady(true))
		if err != nil {
			return err
		}
		for _, c := range st.Status.Conditions {
			// containerd has a third condition, about deprecated features, which is ignored.
			if !c.Status && (c.Type == cri.RuntimeReady || c.Type == cri.NetworkReady) {
				return fmt.Errorf("%s: %s: %s", c.Type, c.Reason, c.Message)
			}
		}
		return nil
	})
}

// Kill9 ends containerd with SIGKILL. Containers and shims continue to run.
func (rt *Runtime) Kill9() { rt.proc.kill() }

// Stop ends containerd with SIGTERM. Containers and shims continue to run.
func (rt *Runtime) Stop() { rt.proc.stop(10 * time.Second) }

// Freeze stops containerd's threads without ending it. Thaw resumes them.
func (rt *Runtime) Freeze() { rt.proc.signal(unix.SIGSTOP) }

// Thaw undoes Freeze.
func (rt *Runtime) Thaw() { rt.proc.signal(unix.SIGCONT) }

// Done is closed when the containerd that was started last has ended.
func (rt *Runtime) Done() <-chan struct{} { return rt.proc.done }

// Pid is containerd's process number.
func (rt *Runtime) Pid() int { return rt.proc.Pid }

// Import imports the images of an archive into the namespace of the CRI.
func (rt *Runtime) Import(ctx context.Context, archive string) error {
	args := []string{"--address", rt.Socket, "--namespace", "k8s.io", "images", "import"}
	if s := snapshotter(rt.rig.Dir); s != overlay {
		args = append(args, "--local", "--snapshotter", s)
	}
	out, err := exec.CommandContext(ctx, rt.Parts.Ctr, append(args, archive)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("import %s: %w: %s", archive, err, out)
	}
	return nil
}

// Crictl runs crictl on the runtime and returns what it prints.
func (rt *Runtime) Crictl(ctx context.Context, args ...string) (string, error) {
	prog, err := rt.rig.parts.Path(ctx, "crictl")
	if err != nil {
		return "", err
	}
	all := append([]string{"--config", "/dev/null", "--runtime-endpoint", rt.Endpoint(), "--image-endpoint",
		rt.Endpoint(), "--timeout", "30s"}, args...)
	out, err := exec.CommandContext(ctx, prog, all...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("crictl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// emptyRuntime stops and removes all pods, several at a time.
func emptyRuntime(ctx context.Context, socket string) error {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	client := cri.NewRuntimeServiceClient(conn)
	ask, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	pods, err := client.ListPodSandbox(ask, &cri.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	ctx, cancelAll := context.WithTimeout(ctx, 2*time.Minute)
	defer cancelAll()
	var g errgroup.Group
	g.SetLimit(8)
	for _, p := range pods.Items {
		g.Go(func() error {
			if _, err := client.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.Id}); err != nil {
				return err
			}
			_, err := client.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.Id})
			return err
		})
	}
	return g.Wait()
}
