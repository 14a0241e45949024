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

// writePodList writes a v1 PodList a pod at a time: five hundred pods are some
// megabytes, which are not worth holding twice.
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
		item.TypeMeta = metav1.TypeMeta{} // the list says it for all
		if err := json.NewEncoder(&buf).Encode(&item); err != nil {
			s.cfg.Log.Error("cannot encode pod", "pod", p.Namespace+"/"+p.Name, "uid", p.UID, "err", err)
			panic(http.ErrAbortHandler) // a cut-off answer is better than a list that looks whole
		}
		buf.Truncate(buf.Len() - 1) // the line break
		if _, err := w.Write(buf.Bytes()); err != nil {
			return // the caller has gone
		}
	}
	_, _ = w.Write([]byte("]}\n"))
}

func (s *Server) summary() http.HandlerFunc {
	if s.cfg.Summary == nil {
		return nil
	}
	return func(w http.ResponseWriter, r *http.Request) {
		// The parameter counts where it is given once, in the query or in a form that is posted.
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
