package backend

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/observed"
	"keelson/internal/pods/pod"
	"keelson/internal/runtime/logs"
)

// Logs reads the logs of containers.
type Logs struct {
	Root     string // the directory of the pods' logs
	Runtime  string // prefix of container IDs, such as containerd
	Observed *observed.Cache
}

// ReadLogs writes the log of one container instance of the pod; see package server.
func (l Logs) ReadLogs(
	ctx context.Context, p *v1.Pod, _, id string, opts *v1.PodLogOptions, stdout, stderr io.Writer,
) error {
	have, _ := l.Observed.Get(p.UID)
	c, ok := have.ByID(id)
	if !ok {
		return fmt.Errorf("unable to retrieve container logs for %s://%s", l.Runtime, id)
	}
	o := logs.Options{
		Root:       l.Root,
		Follow:     opts.Follow,
		Timestamps: opts.Timestamps,
		TailLines:  opts.TailLines,
		LimitBytes: opts.LimitBytes,
	}
	o.Opened = func() {
		for _, w := range []io.Writer{stdout, stderr} {
			_, _ = w.Write(nil) // a closed connection is detected when the first line is written
		}
	}
	if opts.Stream != nil && *opts.Stream != v1.LogStreamAll {
		o.Stream = logs.Stream(strings.ToLower(*opts.Stream))
	}
	var since time.Time
	if opts.SinceTime != nil {
		since = opts.SinceTime.Time
	}
	o.Since = logs.Since(opts.SinceSeconds, since, time.Now())
	running := func(context.Context) (bool, error) {
		have, _ := l.Observed.Get(p.UID)
		c, ok := have.ByID(id)
		return ok && c.State == pod.StateRunning, nil
	}
	return logs.ReadLogs(ctx, c.LogPath, o, stdout, stderr, running)
}
