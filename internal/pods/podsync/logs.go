package podsync

import (
	"context"
	"log/slog"
	"maps"

	"keelson/internal/pods/pod"
)

// logAttempts are the next attempts of containers by their log files, by container name.
type logAttempts map[string]int

func (a logAttempts) apply(w *worker) { maps.Copy(w.restarts.logAttempts, a) }

// readLogs reads the attempts that log files show of containers which were added since the pod was recovered.
func (do performer) readLogs() work {
	s, ref, log, missing := do.w.s, pod.RefOf(do.in.Pod), do.w.log, do.withoutInstance()
	return func(context.Context) (result, error) {
		return result{outcome: s.readAttempts(ref, missing, log)}, nil
	}
}

func (s *Syncer) readAttempts(ref pod.Ref, names []string, log *slog.Logger) logAttempts {
	attempts := logAttempts{}
	for _, name := range names {
		n, err := s.cfg.Runtime.NextAttempt(ref, name)
		if err != nil {
			log.Warn("failed to read the attempts of a container from its logs", "containerName", name, "err", err)
		}
		attempts[name] = n
	}
	return attempts
}

// withoutInstance returns the containers that the runtime does not hold and whose log files were not read.
func (do performer) withoutInstance() []string {
	view := do.in.View()
	var names []string
	for _, c := range pod.Containers(do.in.Pod) {
		_, held := view.Instance(c.Name)
		if _, read := do.w.restarts.logAttempts[c.Name]; !held && !read {
			names = append(names, c.Name)
		}
	}
	return names
}

// linkLogs links the logs of containers under their older names.
func (do performer) linkLogs() work {
	s, log, have := do.w.s, do.w.log, do.in.Have
	do.w.waiting.unlinkedLogs = false
	return func(context.Context) (result, error) {
		if err := s.cfg.Runtime.LinkLogs(have); err != nil {
			log.Warn("failed to link logs under their older names", "err", err)
		}
		return result{}, nil
	}
}
