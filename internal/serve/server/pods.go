package server

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (s *Server) pods() http.HandlerFunc {
	if s.cfg.Pods == nil {
		return nil
	}
	return func(w http.ResponseWriter, _ *http.Request) { s.writePodList(w, s.cfg.Pods.Pods()) }
}

func (s *Server) runningPods() http.HandlerFunc {
	if s.cfg.RunningPods == nil {
		return nil
	}
	return func(w http.ResponseWriter, r *http.Request) {
		pods, err := s.cfg.RunningPods(r.Context())
		if err != nil {
			writeText(w, http.StatusInternalServerError, err.Error())
			return
		}
		s.writePodList(w, pods)
	}
}

// writePodList writes a v1 PodList one pod at a time, so that the list, which may be several megabytes, is not held in
// memory twice.
func (s *Server) writePodList(w http.ResponseWriter, pods []*v1.Pod) {
	w.Header().Set("Content-Type", "application/json")
	if len(pods) == 0 {
		_, _ = w.Write([]byte(`{"kind":"PodList","apiVersion":"v1","metadata":{},"items":null}` + "\n"))
		return
	}
	next := []byte(`{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[`)
	var buf bytes.Buffer
	for _, p := range pods {
		buf.Reset()
		buf.Write(next)
		next = []byte(",")
		item := *p
		item.TypeMeta = metav1.TypeMeta{} // part of the list only
		if err := json.NewEncoder(&buf).Encode(&item); err != nil {
			s.cfg.Log.Error("failed to encode pod", "pod", p.Namespace+"/"+p.Name, "podUID", p.UID, "err", err)
			panic(http.ErrAbortHandler) // so that the client does not take the list for complete
		}
		buf.Truncate(buf.Len() - 1) // the line break
		if _, err := w.Write(buf.Bytes()); err != nil {
			return // the client is gone
		}
	}
	_, _ = w.Write([]byte("]}\n"))
}

func (s *Server) summary() http.HandlerFunc {
	if s.cfg.Summary == nil {
		return nil
	}
	return func(w http.ResponseWriter, r *http.Request) {
		// The parameter counts if it is given once, in the query or in a posted form.
		if err := r.ParseForm(); err != nil {
			writeText(w, http.StatusInternalServerError, "Internal Error: parse form failed: "+err.Error())
			return
		}
		v, err := s.cfg.Summary(r.Context(), slices.Equal(r.Form["only_cpu_and_memory"], []string{"true"}))
		if err != nil {
			writeText(w, http.StatusInternalServerError, "Internal Error: "+err.Error())
			return
		}
		writeJSON(w, v)
	}
}
