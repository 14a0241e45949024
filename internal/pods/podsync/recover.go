package podsync

import (
	"context"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
)

// recover reads what an earlier agent has recorded of the pod: restarts that were under way, whether it was evicted,
// and which attempts of containers its log files show.
func (do performer) recover() work {
	s, uid, log := do.w.s, do.w.uid, do.w.log
	ref, runs := pod.RefOf(do.in.Pod), !do.in.Have.Empty()
	missing := do.withoutInstance()
	return func(context.Context) (result, error) {
		var r recovered
		var err error
		if runs {
			if r.restarts, err = s.cfg.Disk.Restarts(uid); err != nil {
				log.Warn("failed to read the record of container restarts", "err", err)
				r.restarts = Restarts{}
			}
		}
		e, evicted, err := s.cfg.Disk.Eviction(uid)
		switch {
		case err != nil:
			log.Warn("failed to read the eviction record of the pod", "err", err)
		case evicted:
			r.eviction = &e
		}
		r.logAttempts = s.readAttempts(ref, missing, log)
		return result{outcome: r}, nil
	}
}

// recovered is what an earlier agent has recorded.
type recovered struct {
	restarts    Restarts
	eviction    *podplan.EvictionRecord
	logAttempts logAttempts
}

func (r recovered) apply(w *worker) {
	w.admission.recovered = true
	w.termination.eviction.Earlier = r.eviction
	w.restarts.recover(r.restarts)
	r.logAttempts.apply(w)
}
