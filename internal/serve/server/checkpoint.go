package server

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// checkpointer makes checkpoints of running containers.
type checkpointer interface {
	// Checkpoint returns the path of the file. With a timeout of zero the runtime's default applies.
	Checkpoint(ctx context.Context, p *v1.Pod, container string, timeout time.Duration) (string, error)
}

func (s *Server) checkpoint() http.HandlerFunc {
	if s.cfg.Checkpoints == nil || s.cfg.Pods == nil {
		return nil
	}
	return func(w http.ResponseWriter, r *http.Request) {
		namespace, name, container := r.PathValue("ns"), r.PathValue("pod"), r.PathValue("container")
		p, ok := s.cfg.Pods.Pod(namespace, name)
		if !ok {
			writeText(w, http.StatusNotFound, textPodMissing)
			return
		}
		if _, _, ok := pod.Find(p, container); !ok {
			writeText(w, http.StatusNotFound, fmt.Sprintf("container %v does not exist", container))
			return
		}
		timeout, ok := checkpointTimeout(r.URL.Query()["timeout"])
		if !ok {
			writeText(w, http.StatusNotFound, "cannot parse value of timeout parameter")
			return
		}
		path, err := s.cfg.Checkpoints.Checkpoint(r.Context(), p, container, timeout)
		if err != nil {
			s.cfg.Log.Warn("failed to checkpoint container",
				"pod", namespace+"/"+name, "podUID", p.UID, "containerName", container, "err", err)
			writeText(w, http.StatusInternalServerError,
				fmt.Sprintf("checkpointing of %v/%v/%v failed (%v)", namespace, name, container, err))
			return
		}
		writeJSON(w, struct {
			Items []string `json:"items"`
		}{[]string{path}})
	}
}

// checkpointTimeout parses the last value as seconds. Without values it is zero.
func checkpointTimeout(values []string) (time.Duration, bool) {
	if len(values) == 0 {
		return 0, true
	}
	n, err := strconv.ParseInt(values[len(values)-1], 10, 32)
	return pod.Seconds(n), err == nil && n >= 0
}
