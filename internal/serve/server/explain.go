package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"syscall"

	"keelson/internal/pods/explain"
)

// explainer explains the state of pods.
type explainer interface {
	// Pod returns false if the node has no such pod.
	Pod(ctx context.Context, namespace, name string) (explain.Pod, bool)
	List(ctx context.Context) explain.List
}

const (
	pathExplain    = "/debug/keelson/pods"
	pathExplainPod = "/debug/keelson/pods/{ns}/{pod}"
	// terminal is the width of text output.
	terminal = 120
)

func (s *Server) explainAll() http.HandlerFunc {
	if s.cfg.Explain == nil {
		return nil
	}
	return func(w http.ResponseWriter, r *http.Request) {
		list := s.cfg.Explain.List(r.Context())
		if r.URL.Query().Get("output") == "text" {
			writeText(w, http.StatusOK, explain.TextList(&list))
			return
		}
		writeJSON(w, list)
	}
}

// explainPod writes JSON, or the format in the parameter output: text or html.
func (s *Server) explainPod() http.HandlerFunc {
	if s.cfg.Explain == nil {
		return nil
	}
	return func(w http.ResponseWriter, r *http.Request) {
		p, ok := s.cfg.Explain.Pod(r.Context(), r.PathValue("ns"), r.PathValue("pod"))
		if !ok {
			writeText(w, http.StatusNotFound,
				fmt.Sprintf("no pod %q in namespace %q on this node", r.PathValue("pod"), r.PathValue("ns")))
			return
		}
		switch r.URL.Query().Get("output") {
		case "text":
			writeText(w, http.StatusOK, explain.Text(&p, terminal))
		case "html":
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
			_, _ = w.Write([]byte(explain.Page(&p)))
		default:
			writeJSON(w, p)
		}
	}
}

// LocalHandler serves the local socket. The permission to connect to the socket is the only authorization.
func (s *Server) LocalHandler() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range map[string]http.HandlerFunc{pathExplain: s.explainAll(), pathExplainPod: s.explainPod()} {
		if h != nil {
			mux.HandleFunc(pattern, onlyMethods(get, h))
		}
	}
	return limitBody(mux)
}

// listenLocal listens on the socket, which only its owner may use. It replaces the socket that a killed agent has left,
// but not one that is being served.
func listenLocal(path string) (net.Listener, error) {
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return nil, fmt.Errorf("listen on %s: another agent is serving it", path)
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("remove socket of an earlier agent: %w", err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
}

// serveLocal serves the local socket. An error is logged and does not stop the server.
func (s *Server) serveLocal(ctx context.Context) error {
	l, err := listenLocal(s.cfg.LocalSocket)
	if err != nil {
		s.cfg.Log.Warn("failed to serve local socket for kubelet explain", "err", err)
		<-ctx.Done()
		return nil
	}
	return s.serveOn(ctx, Local, l, s.httpServer(ctx, s.LocalHandler()))
}
