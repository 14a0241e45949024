package backend

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/observed"
	"keelson/internal/pods/pod"
	"keelson/internal/runtime/container"
	"keelson/internal/runtime/cri"
	"keelson/internal/serve/server"
)

// Streams prepares exec, attach and port-forward in the runtime, and checkpoints containers.
type Streams struct {
	Runtime      *cri.Client
	Observed     *observed.Cache
	Checkpointer *container.Checkpointer // nil: no checkpoints
}

// running returns the ID of the running instance of a container of the pod.
func (s Streams) running(p *v1.Pod, name string) (string, error) {
	have, _ := s.Observed.Get(p.UID)
	if c, ok := have.Latest(name); ok && c.State == pod.StateRunning {
		return c.ID, nil
	}
	return "", fmt.Errorf("container not found (%q)", name)
}

// Exec prepares a command in a running container.
func (s Streams) Exec(
	ctx context.Context, p *v1.Pod, name string, cmd []string, o server.StreamOptions,
) (*url.URL, error) {
	id, err := s.running(p, name)
	if err != nil {
		return nil, err
	}
	resp, err := s.Runtime.Exec(ctx, &runtimeapi.ExecRequest{
		ContainerId: id,
		Cmd:         cmd,
		Tty:         o.TTY,
		Stdin:       o.Stdin,
		Stdout:      o.Stdout,
		Stderr:      o.Stderr,
	})
	if err != nil {
		return nil, err
	}
	return url.Parse(resp.Url)
}

// Attach prepares the streams of a running container.
func (s Streams) Attach(
	ctx context.Context, p *v1.Pod, name string, o server.StreamOptions,
) (*url.URL, error) {
	id, err := s.running(p, name)
	if err != nil {
		return nil, fmt.Errorf("container %s not found in pod %s_%s", name, p.Name, p.Namespace)
	}
	resp, err := s.Runtime.Attach(ctx, &runtimeapi.AttachRequest{
		ContainerId: id,
		Tty:         o.TTY,
		Stdin:       o.Stdin,
		Stdout:      o.Stdout,
		Stderr:      o.Stderr,
	})
	if err != nil {
		return nil, err
	}
	return url.Parse(resp.Url)
}

// PortForward prepares connections to ports of a pod.
func (s Streams) PortForward(ctx context.Context, p *v1.Pod, ports []int32) (*url.URL, error) {
	have, _ := s.Observed.Get(p.UID)
	sandbox, ok := have.ReadySandbox()
	if !ok {
		return nil, fmt.Errorf("pod not found (%q)", p.Name+"_"+p.Namespace)
	}
	resp, err := s.Runtime.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: sandbox.ID, Port: ports})
	if err != nil {
		return nil, err
	}
	return url.Parse(resp.Url)
}

// Run runs a command to its end.
func (s Streams) Run(ctx context.Context, p *v1.Pod, name string, cmd []string) ([]byte, error) {
	id, err := s.running(p, name)
	if err != nil {
		return nil, err
	}
	resp, err := s.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: cmd})
	if err != nil {
		return nil, err
	}
	out := append(resp.Stdout, resp.Stderr...)
	if resp.ExitCode != 0 {
		return out, fmt.Errorf("command '%s' exited with %d: %s", strings.Join(cmd, " "), resp.ExitCode, resp.Stderr)
	}
	return out, nil
}

// Checkpoint writes the state of the container's running instance to a file.
func (s Streams) Checkpoint(ctx context.Context, p *v1.Pod, name string, timeout time.Duration) (string, error) {
	id, err := s.running(p, name)
	if err != nil {
		return "", err
	}
	return s.Checkpointer.Checkpoint(ctx, p, name, id, timeout)
}
