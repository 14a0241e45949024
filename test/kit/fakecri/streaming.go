package fakecri

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	server "k8s.io/cri-streaming/pkg/streaming"
	remote "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// streaming is the HTTP server behind Exec, Attach and PortForward. It listens
// on loopback from the first such call on.
type streaming struct {
	once sync.Once
	srv  server.Server
	http *http.Server
	err  error
}

func (r *Runtime) streamServer() (server.Server, error) {
	s := &r.stream
	s.once.Do(func() {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			s.err = fmt.Errorf("listen for streams: %w", err)
			return
		}
		cfg := server.DefaultConfig
		cfg.BaseURL = &url.URL{Scheme: "http", Host: l.Addr().String()}
		if s.srv, s.err = server.NewServer(cfg, streams{r}); s.err != nil {
			l.Close()
			return
		}
		s.http = &http.Server{Handler: s.srv}
		go s.http.Serve(l) // it ends with close
	})
	return s.srv, s.err
}

func (s *streaming) close() {
	s.once.Do(func() { s.err = net.ErrClosed })
	if s.http != nil {
		s.http.Close()
	}
}

// Exec prepares a URL at which a client runs a command.
func (r *Runtime) Exec(_ context.Context, req *cri.ExecRequest) (*cri.ExecResponse, error) {
	if _, err := r.running(req.GetContainerId()); err != nil {
		return nil, err
	}
	s, err := r.streamServer()
	if err != nil {
		return nil, err
	}
	return s.GetExec(req)
}

// Attach prepares a URL at which a client sees what a container prints.
func (r *Runtime) Attach(_ context.Context, req *cri.AttachRequest) (*cri.AttachResponse, error) {
	if _, err := r.running(req.GetContainerId()); err != nil {
		return nil, err
	}
	s, err := r.streamServer()
	if err != nil {
		return nil, err
	}
	return s.GetAttach(req)
}

// PortForward prepares a URL at which a client reaches a sandbox's ports.
func (r *Runtime) PortForward(_ context.Context, req *cri.PortForwardRequest) (*cri.PortForwardResponse, error) {
	r.mu.Lock()
	sb, ok := r.sandboxLocked(req.GetPodSandboxId())
	ready := ok && sb.state == cri.PodSandboxState_SANDBOX_READY
	r.mu.Unlock()
	if !ok {
		return nil, errNotFound("failed to find sandbox %q", req.GetPodSandboxId())
	}
	if !ready {
		return nil, errState("sandbox container %q is not running", sb.id)
	}
	s, err := r.streamServer()
	if err != nil {
		return nil, err
	}
	return s.GetPortForward(req)
}

// streams has the functions that the streaming server calls.
type streams struct{ r *Runtime }

func (s streams) Exec(
	ctx context.Context,
	id string,
	cmd []string,
	in io.Reader,
	out, errw io.WriteCloser,
	tty bool,
	_ <-chan remote.TerminalSize,
) error {
	c, err := s.r.running(id)
	if err != nil {
		return err
	}
	stdout, stderr := writerOr(out, io.Discard), writerOr(errw, io.Discard)
	if tty {
		stderr = stdout
	}
	code, err := s.r.exec(ctx, c, cmd, in, stdout, stderr)
	if err != nil {
		return err
	}
	if code != 0 {
		return &utilexec.CodeExitError{
			Err:  fmt.Errorf("error executing command %v, exit code %d", cmd, code),
			Code: int(code),
		}
	}
	return nil
}

func writerOr(w io.WriteCloser, or io.Writer) io.Writer {
	if w == nil {
		return or
	}
	return w
}

func (s streams) Attach(
	ctx context.Context, id string, in io.Reader, out, errw io.WriteCloser, _ bool, _ <-chan remote.TerminalSize,
) error {
	c, err := s.r.running(id)
	if err != nil {
		return err
	}
	tail := make(chan output, 64)
	s.r.mu.Lock()
	if c.state != cri.ContainerState_CONTAINER_RUNNING {
		s.r.mu.Unlock()
		return nil
	}
	c.tails = append(c.tails, tail)
	s.r.mu.Unlock()
	if in != nil && c.config.GetStdin() {
		go s.echo(c, in)
	}
	for {
		select {
		case o, more := <-tail:
			if !more {
				return nil
			}
			w := writerOr(out, io.Discard)
			if o.stderr {
				w = writerOr(errw, io.Discard)
			}
			if _, err := io.WriteString(w, o.text); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// echo prints what arrives on an attached stdin, as cat would.
func (s streams) echo(c *container, in io.Reader) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		s.r.mu.Lock()
		if c.state == cri.ContainerState_CONTAINER_RUNNING {
			c.print(false, lines.Text()+"\n")
		}
		s.r.mu.Unlock()
	}
}

// PortForward answers each line with the port and the line: enough to see that
// bytes get to the right place and back.
func (s streams) PortForward(_ context.Context, _ string, port int32, stream io.ReadWriteCloser) error {
	lines := bufio.NewScanner(stream)
	for lines.Scan() {
		if _, err := fmt.Fprintf(stream, "%d: %s\n", port, lines.Text()); err != nil {
			return err
		}
	}
	return lines.Err()
}
