package fakecri

import (
	"bytes"
	"context"
	"io"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Exec is a command to be run in a container.
type Exec struct {
	Pod, Container, ContainerID string // Pod is namespace/name
	Command                     []string
}

// ExecResult is what a scripted exec does.
type ExecResult struct {
	Stdout, Stderr string
	Code           int32
	After          time.Duration // how long it takes
	Err            error         // the call itself fails
}

// maxExecOutput is where containerd cuts a stream of ExecSync.
const maxExecOutput = 16 << 20

// ExecSync runs a command to its end or its timeout.
func (r *Runtime) ExecSync(ctx context.Context, req *cri.ExecSyncRequest) (*cri.ExecSyncResponse, error) {
	c, err := r.running(req.GetContainerId())
	if err != nil {
		return nil, status.Error(status.Code(err), "failed to exec in container: "+status.Convert(err).Message())
	}
	timeout := time.Duration(req.GetTimeout()) * time.Second
	ectx := ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		ectx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	var stdout, stderr bytes.Buffer
	code, err := r.exec(ectx, c, req.GetCmd(), nil, &stdout, &stderr)
	if err != nil {
		if ectx.Err() != nil {
			return nil, status.Errorf(codes.DeadlineExceeded, "failed to exec in container: timeout %v exceeded: %v",
				timeout, ectx.Err())
		}
		return nil, err
	}
	return &cri.ExecSyncResponse{Stdout: capped(&stdout), Stderr: capped(&stderr), ExitCode: code}, nil
}

func capped(b *bytes.Buffer) []byte { return b.Bytes()[:min(b.Len(), maxExecOutput)] }

// running finds a container that runs.
func (r *Runtime) running(id string) (*container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.containerLocked(id)
	if !ok {
		return nil, errNotFound("failed to find container %q in store", id)
	}
	if c.state != cri.ContainerState_CONTAINER_RUNNING {
		return nil, errState("container is in %s state", c.state)
	}
	return c, nil
}

// exec runs a command and returns its exit code. It ends early with the
// context, and with 137 when the container ends.
func (r *Runtime) exec(
	ctx context.Context, c *container, argv []string, in io.Reader, stdout, stderr io.Writer,
) (int32, error) {
	if r.opts.OnExec != nil {
		r.mu.Lock()
		e := Exec{Container: c.name(), ContainerID: c.id, Command: argv}
		if s := r.sandboxes[c.sandboxID]; s != nil {
			e.Pod = s.key()
		}
		r.mu.Unlock()
		if res, ok := r.opts.OnExec(e); ok {
			if code, err := wait(ctx, c, res.After); err != nil || code != 0 {
				return code, err
			}
			if _, err := io.WriteString(stdout, res.Stdout); err != nil {
				return 0, errState("write output: %v", err)
			}
			if _, err := io.WriteString(stderr, res.Stderr); err != nil {
				return 0, errState("write output: %v", err)
			}
			return res.Code, res.Err
		}
	}

	vm := &machine{program: parse(argv, c.env()), fs: c}
	if in != nil && vm.readsStdin() {
		text, err := io.ReadAll(in)
		if err != nil {
			return 0, errState("read stdin: %v", err)
		}
		vm.in = string(text)
	}
	// Output is collected under the lock and written to the client without it: a
	// client that does not read must not block the runtime.
	var printed []output
	vm.out = func(toStderr bool, text string) { printed = append(printed, output{toStderr, text}) }
	for {
		r.mu.Lock()
		v := vm.run()
		r.mu.Unlock()
		for _, o := range printed {
			w := stdout
			if o.stderr {
				w = stderr
			}
			if _, err := io.WriteString(w, o.text); err != nil {
				return 0, errState("write output: %v", err)
			}
		}
		printed = nil
		switch {
		case v.missing != "":
			return 0,
				errState(
					"failed to exec in container: failed to start exec: OCI runtime exec failed: exec failed: unable to start container process: exec: %s: executable file not found in $PATH", strconv.Quote(v.missing))
		case v.done:
			return v.code, nil
		}
		if v.forever {
			v.wait = 100 * 365 * 24 * time.Hour
		}
		if code, err := wait(ctx, c, v.wait); err != nil || code != 0 {
			return code, err
		}
	}
}

// wait lets d pass. It returns 137 when the container ended meanwhile.
func wait(ctx context.Context, c *container, d time.Duration) (int32, error) {
	if d <= 0 {
		return 0, nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return 0, nil
	case <-c.exited:
		return 137, nil
	case <-ctx.Done():
		return 0, errContext("failed to exec in container", ctx.Err())
	}
}
