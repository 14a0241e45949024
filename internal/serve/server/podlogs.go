package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// logReader reads container logs.
type logReader interface {
	// ReadLogs writes the log of one container instance of the pod, until its end or, when following, until ctx ends or
	// the container has terminated. The options have been validated. It writes an empty slice once the log is open, so
	// that the response to a follower starts before the first line. An error may occur after part of the log was
	// written.
	ReadLogs(
		ctx context.Context, p *v1.Pod, container, containerID string, opts *v1.PodLogOptions, stdout, stderr io.Writer,
	) error
}

func (s *Server) containerLogs() http.HandlerFunc {
	if s.cfg.Logs == nil || s.cfg.Pods == nil {
		return nil
	}
	return func(w http.ResponseWriter, r *http.Request) {
		name, container := r.PathValue("pod"), r.PathValue("container")
		opts, err := logOptions(r.URL.Query())
		if err != nil {
			s.cfg.Log.Debug("failed to decode log query", "err", err)
			writeText(w, http.StatusBadRequest, `{"message": "Unable to decode query."}`)
			return
		}
		if err := validLogOptions(opts); err != nil {
			s.cfg.Log.Debug("invalid log query", "err", err)
			writeText(w, http.StatusUnprocessableEntity, `{"message": "Invalid request."}`)
			return
		}
		p, ok := s.cfg.Pods.Pod(r.PathValue("ns"), name)
		if !ok {
			writeText(w, http.StatusNotFound, fmt.Sprintf("pod %q does not exist", name))
			return
		}
		if _, _, ok := pod.Find(p, container); !ok {
			writeText(w, http.StatusNotFound, fmt.Sprintf("container %q not found in pod %q", container, name))
			return
		}
		if o := opts.Stream; !s.cfg.SplitLogStreams && o != nil && *o != v1.LogStreamAll {
			writeText(w, http.StatusBadRequest, fmt.Sprintf("unable to return the given log stream: %q. "+
				"Please enable PodLogsQuerySplitStreams feature gate in kubelet", *o))
			return
		}
		id, err := instanceWithLog(p.Name, &p.Status, container, opts.Previous)
		if err != nil {
			writeText(w, http.StatusBadRequest, err.Error())
			return
		}
		out := &flushWriter{w: w}
		var stdout, stderr io.Writer = out, out
		if opts.Stream != nil && *opts.Stream == v1.LogStreamStdout {
			stderr = io.Discard
		}
		if opts.Stream != nil && *opts.Stream == v1.LogStreamStderr {
			stdout = io.Discard
		}
		if err := s.cfg.Logs.ReadLogs(r.Context(), p, container, id, opts, stdout, stderr); err != nil &&
			r.Context().Err() == nil {
			s.cfg.Log.Warn("failed to read container log",
				"pod", p.Namespace+"/"+p.Name, "podUID", p.UID, "containerName", container, "err", err)
			if out.wrote {
				// The status was sent already, so the error is appended to the log.
				_, _ = io.WriteString(out, err.Error())
				return
			}
			writeText(w, http.StatusBadRequest, err.Error())
		}
	}
}

// instanceWithLog selects the container instance from the pod's status and returns its ID. If there is none yet, the
// error contains the reason.
func instanceWithLog(podName string, status *v1.PodStatus, container string, previous bool) (string, error) {
	c, ok := containerStatus(status, container)
	if !ok {
		return "", fmt.Errorf("container %q in pod %q is not available", container, podName)
	}
	last := ""
	if t := c.LastTerminationState.Terminated; t != nil {
		last = t.ContainerID
	}
	state := c.State
	switch {
	case previous && last == "":
		return "", fmt.Errorf("previous terminated container %q in pod %q not found", container, podName)
	case previous:
		return bareID(last)
	case state.Running != nil:
		return bareID(c.ContainerID)
	case state.Terminated != nil && state.Terminated.ContainerID != "":
		return bareID(state.Terminated.ContainerID)
	case last != "":
		// The next instance has not started.
		return bareID(last)
	case state.Terminated != nil || c.LastTerminationState.Terminated != nil:
		return "", fmt.Errorf("container %q in pod %q is terminated", container, podName)
	case state.Waiting == nil:
		return "", fmt.Errorf("container %q in pod %q is waiting to start - no logs yet", container, podName)
	}
	why := state.Waiting.Reason
	switch why {
	case pod.ReasonErrImagePull:
		why = "image can't be pulled"
	case pod.ReasonImagePullBackOff:
		why = "trying and failing to pull image"
	}
	return "", fmt.Errorf("container %q in pod %q is waiting to start: %v", container, podName, why)
}

func containerStatus(status *v1.PodStatus, name string) (v1.ContainerStatus, bool) {
	for _, list := range [][]v1.ContainerStatus{
		status.ContainerStatuses,
		status.InitContainerStatuses,
		status.EphemeralContainerStatuses,
	} {
		for _, c := range list {
			if c.Name == name {
				return c, true
			}
		}
	}
	return v1.ContainerStatus{}, false
}

// bareID removes the prefix of an ID such as containerd://abc.
func bareID(id string) (string, error) {
	_, bare, ok := strings.Cut(strings.Trim(id, `"`), "://")
	if !ok {
		return "", fmt.Errorf("invalid container ID: %q", id)
	}
	return bare, nil
}

// flushWriter flushes each write, so that a follower gets each line at once.
type flushWriter struct {
	w     http.ResponseWriter
	wrote bool
}

func (f *flushWriter) Write(b []byte) (int, error) {
	if !f.wrote {
		f.wrote = true
		f.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		f.w.Header().Set("X-Content-Type-Options", "nosniff")
	}
	n, err := f.w.Write(b)
	if err != nil {
		return n, err
	}
	if err := http.NewResponseController(f.w).Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return n, err
	}
	return n, nil
}
