package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// StreamOptions select the streams of a process.
type StreamOptions struct{ Stdin, Stdout, Stderr, TTY bool }

// streamer prepares streams in the runtime. Each call returns an address that is valid for one connection. Errors of
// the runtime keep their gRPC status.
type streamer interface {
	// Exec starts cmd in a running container. The error for a container that does not exist is: container not found
	// ("name"). That of Attach is: container name not found in pod name_namespace.
	Exec(ctx context.Context, p *v1.Pod, container string, cmd []string, opts StreamOptions) (*url.URL, error)
	Attach(ctx context.Context, p *v1.Pod, container string, opts StreamOptions) (*url.URL, error)
	PortForward(ctx context.Context, p *v1.Pod, ports []int32) (*url.URL, error)
}

// runner runs a command to completion.
type runner interface {
	// Run returns the combined output of the command.
	Run(ctx context.Context, p *v1.Pod, container string, cmd []string) ([]byte, error)
}

func (s *Server) exec() http.HandlerFunc {
	return s.stream("exec", func(r *http.Request, p *v1.Pod, opts StreamOptions) (*url.URL, error) {
		return s.cfg.Streams.Exec(r.Context(), p, r.PathValue("container"), r.URL.Query()["command"], opts)
	})
}

func (s *Server) attach() http.HandlerFunc {
	return s.stream("attach", func(r *http.Request, p *v1.Pod, opts StreamOptions) (*url.URL, error) {
		if uid := r.PathValue("uid"); uid != "" && uid != string(p.UID) {
			return nil, fmt.Errorf("pod %s_%s not found", p.Name, p.Namespace)
		}
		return s.cfg.Streams.Attach(r.Context(), p, r.PathValue("container"), opts)
	})
}

// stream handles exec and attach, which differ in one call.
func (s *Server) stream(
	subresource string, ask func(*http.Request, *v1.Pod, StreamOptions) (*url.URL, error),
) http.HandlerFunc {
	if s.cfg.Streams == nil || s.cfg.Pods == nil {
		return nil
	}
	return s.limitStreams(func(w http.ResponseWriter, r *http.Request) {
		opts, err := streamOptions(r.URL.Query())
		if err != nil {
			writeText(w, http.StatusBadRequest, err.Error())
			return
		}
		p, ok := s.cfg.Pods.Pod(r.PathValue("ns"), r.PathValue("pod"))
		if !ok {
			writeText(w, http.StatusNotFound, textPodMissing)
			return
		}
		if !httpstream.IsUpgradeRequest(r) {
			// Checked before the runtime is called, because it holds resources for each address.
			http.Error(w, textUpgradeRequired, http.StatusInternalServerError)
			return
		}
		target, err := ask(r, p, opts)
		if err != nil {
			writeRuntimeError(w, err)
			return
		}
		if s.cfg.ExtendWebSockets && wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
			s.metrics.websockets.WithLabelValues(subresource).Inc()
			s.translate(w, r, target, opts)
			return
		}
		s.proxy(w, r, target)
	})
}

func (s *Server) portForward() http.HandlerFunc {
	if s.cfg.Streams == nil || s.cfg.Pods == nil {
		return nil
	}
	return s.limitStreams(func(w http.ResponseWriter, r *http.Request) {
		tunnel := s.cfg.ExtendWebSockets && wsstream.IsWebSocketRequestWithTunnelingProtocol(r)
		var ports []int32
		if wsstream.IsWebSocketRequest(r) && !tunnel {
			// The old WebSocket protocol has the ports in the request, the other protocols in each stream.
			var err error
			if ports, err = forwardPorts(r.URL.Query()["port"]); err != nil {
				writeText(w, http.StatusBadRequest, err.Error())
				return
			}
		}
		p, ok := s.cfg.Pods.Pod(r.PathValue("ns"), r.PathValue("pod"))
		if !ok {
			writeText(w, http.StatusNotFound, textPodMissing)
			return
		}
		if uid := r.PathValue("uid"); uid != "" && uid != string(p.UID) {
			writeText(w, http.StatusNotFound, "pod not found")
			return
		}
		if !httpstream.IsUpgradeRequest(r) {
			http.Error(w, textUpgradeRequired, http.StatusInternalServerError)
			return
		}
		target, err := s.cfg.Streams.PortForward(r.Context(), p, ports)
		if err != nil {
			writeRuntimeError(w, err)
			return
		}
		if tunnel {
			s.metrics.websockets.WithLabelValues("portforward").Inc()
			s.tunnel(w, r, target)
			return
		}
		s.proxy(w, r, target)
	})
}

func (s *Server) run() http.HandlerFunc {
	if s.cfg.Runner == nil || s.cfg.Pods == nil {
		return nil
	}
	return func(w http.ResponseWriter, r *http.Request) {
		p, ok := s.cfg.Pods.Pod(r.PathValue("ns"), r.PathValue("pod"))
		if !ok {
			writeText(w, http.StatusNotFound, textPodMissing)
			return
		}
		out, err := s.cfg.Runner.Run(r.Context(), p, r.PathValue("container"),
			strings.Split(r.URL.Query().Get("cmd"), " "))
		if err != nil {
			writeText(w, http.StatusInternalServerError, err.Error())
			return
		}
		// The output is served as JSON for compatibility with upstream.
		w.Header().Set("X-Content-Type-Options", "nosniff")
		writeJSONBytes(w, out)
	}
}

// limitStreams limits the number of open streams, and lets Run wait for them.
func (s *Server) limitStreams(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.streams <- struct{}{}:
		default:
			w.Header().Set("Retry-After", "5")
			writeText(w, http.StatusTooManyRequests, fmt.Sprintf("too many open streams: at most %d", maxStreams))
			return
		}
		s.open.Add(1)
		defer func() {
			<-s.streams
			s.open.Done()
		}()
		next(w, r)
	}
}

// streamOptions parses the requested streams. A terminal has a single output, so stderr is excluded.
func streamOptions(q url.Values) (StreamOptions, error) {
	o := StreamOptions{
		Stdin:  q.Get("input") == "1",
		Stdout: q.Get("output") == "1",
		Stderr: q.Get("error") == "1",
		TTY:    q.Get("tty") == "1",
	}
	if o.TTY {
		o.Stderr = false
	}
	if !o.Stdin && !o.Stdout && !o.Stderr {
		return o, errors.New("you must specify at least 1 of stdin, stdout, stderr")
	}
	return o, nil
}

// forwardPorts parses the ports. Each parameter has one or several.
func forwardPorts(params []string) ([]int32, error) {
	if len(params) == 0 {
		return nil, errors.New(`query parameter "port" is required`)
	}
	var ports []int32
	for _, param := range params {
		if param == "" {
			return nil, errors.New(`query parameter "port" cannot be empty`)
		}
		for s := range strings.SplitSeq(param, ",") {
			n, err := strconv.ParseUint(s, 10, 16)
			if err != nil {
				return nil, fmt.Errorf("unable to parse %q as a port: %v", param, err)
			}
			if n < 1 {
				return nil, fmt.Errorf("port %q must be > 0", param)
			}
			ports = append(ports, int32(n))
		}
	}
	return ports, nil
}

// writeRuntimeError writes an error of the runtime, with the HTTP status for its gRPC code.
func writeRuntimeError(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	switch status.Code(err) {
	case codes.NotFound:
		code = http.StatusNotFound
	case codes.ResourceExhausted:
		w.Header().Set("Retry-After", "60") // the lifetime of an unused address
		code = http.StatusTooManyRequests
	}
	writeText(w, code, err.Error())
}
