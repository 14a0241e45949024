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

// explainer says why pods are as they are.
type explainer interface {
	// Pod is false when the node has no such pod.
	Pod(ctx context.Context, namespace, name string) (explain.Pod, bool)
	List(ctx context.Context) explain.List
}

const (
	pathExplain    = "/debug/keelson/pods"
	pathExplainPod = "/debug/keelson/pods/{ns}/{pod}"
	// terminal is how wide text is drawn for those who do not say.
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

// explainPod answers as JSON, or as ?output=text or html says.
func (s *Server) explainPod() http.HandlerFunc {
	if s.cfg.Explain == nil {
		return nil
	}
	return func(w http.ResponseWriter, r *http.Request) {
		p, ok := s.cfg.Explain.Pod(r.Context(), r.PathValue("ns"), r.PathValue("pod"))
		if !ok {
			writeText(w, http.StatusNotFound, fmt.Sprintf("no pod %q in namespace %q on this node", r.PathValue("pod"), r.PathValue("ns")))
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

// LocalHandler answers on the socket of the node: what the administrator of the
// machine asks about it, who needs no other right than to reach the socket.
func (s *Server) LocalHandler() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range map[string]http.HandlerFunc{pathExplain: s.explainAll(), pathExplainPod: s.explainPod()} {
		if h != nil {
			mux.HandleFunc(pattern, onlyMethods(get, h))
		}
	}
	return limited(mux)
}

// listenLocal listens on the socket, which nobody but the owner may use. What an
// agent that was killed has left there goes; a socket that somebody serves stays.
func listenLocal(path string) (net.Listener, error) {
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return nil, fmt.Errorf("listen on %s: another agent serves it", path)
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

// keepLocal serves the socket. It is a help for people: that it cannot be had is
// said, and stops nothing.
func (s *Server) keepLocal(ctx context.Context) error {
	l, err := listenLocal(s.cfg.LocalSocket)
	if err != nil {
		s.cfg.Log.Warn("cannot answer kubelet explain", "err", err)
		<-ctx.Done()
		return nil
	}
	return s.serveOn(ctx, Local, l, s.httpServer(ctx, s.LocalHandler()))
}
