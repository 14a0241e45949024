package podsync

import (
	"fmt"
	"time"
)

// checkup is what the last round through the workers found.
type checkup struct {
	at  time.Time
	err error
}

// checkups a patience: how late it is noticed that a turn does not end.
const checkups = 5

// check goes through the workers. A turn waits for nothing, so one that takes
// long has met a lock that is never unlocked.
func (s *Syncer) check() {
	now := s.cfg.Now()
	c := checkup{at: now}
	if uid, since, stuck := s.board.stuck(now.Add(-s.cfg.TurnPatience)); stuck {
		c.err = fmt.Errorf("the worker of pod %s has been in one turn since %s", uid, since.Format(time.RFC3339))
	}
	s.checked.Store(&c)
}

// Healthy is nil while workers make progress. It never blocks: it only looks at
// the last round, and when that was. Before Run nothing can be wrong.
func (s *Syncer) Healthy() error {
	c := s.checked.Load()
	if c == nil {
		return nil
	}
	if ago := s.cfg.Now().Sub(c.at); ago > s.cfg.TurnPatience {
		return fmt.Errorf("the workers of pods were last gone through %v ago", ago.Round(time.Second))
	}
	return c.err
}
