package podsync

import (
	"fmt"
	"time"
)

// checkup is the result of the last check of the workers.
type checkup struct {
	at  time.Time
	err error
}

// checkups is the number of checks in one TurnPatience, so that a stuck worker is noticed soon after it.
const checkups = 5

// check looks for a worker that is stuck in a turn. A turn waits for nothing but locks, so one that takes long waits
// for a lock that is never unlocked.
func (s *Syncer) check() {
	now := s.cfg.Now()
	c := checkup{at: now}
	if uid, since, stuck := s.board.stuck(now.Add(-s.cfg.TurnPatience)); stuck {
		c.err = fmt.Errorf("the worker of pod %s has been in one turn since %s", uid, since.Format(time.RFC3339))
	}
	s.checked.Store(&c)
}

// Healthy is nil while workers make progress. It never blocks: it only reads the result and the time of the last check.
// It is nil before Run.
func (s *Syncer) Healthy() error {
	c := s.checked.Load()
	if c == nil {
		return nil
	}
	if ago := s.cfg.Now().Sub(c.at); ago > s.cfg.TurnPatience {
		return fmt.Errorf("the workers of pods were last checked %v ago", ago.Round(time.Second))
	}
	return c.err
}
