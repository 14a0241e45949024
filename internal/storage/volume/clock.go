package volume

import (
	"context"
	"time"
)

const (
	// clockPeriod is the period of checks whether the clock was set.
	clockPeriod = time.Minute
	// clockStep is the least step of the clock that counts as being set.
	clockStep = 5 * time.Second
)

// followClock detects that the clock was set ahead, or that the machine was suspended, until ctx
// ends. Timers do not account for either, so the timers of volumes to be refreshed by time are
// reset.
func (m *Manager) followClock(ctx context.Context) {
	tick := time.NewTicker(clockPeriod)
	defer tick.Stop()
	wall, mono := m.now().Round(0), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		ahead := m.now().Round(0).Sub(wall) - time.Since(mono)
		wall, mono = m.now().Round(0), time.Now()
		if ahead >= clockStep {
			m.cfg.Log.Info("clock was set ahead, resetting refresh timers of volumes", "ahead", ahead)
			m.renewAnew()
		}
	}
}

func (m *Manager) renewAnew() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, ps := range m.pods {
		if ps.phase != wanted {
			continue
		}
		for name, v := range ps.vols {
			key := volumeKey{uid, name}
			if v.ready && v.err == nil && v.waits == nil && !v.have.RenewAt.IsZero() && !m.prepares.RunningLocked(key) {
				m.prepares.ScheduleLocked(key, m.untilRenewal(v))
			}
		}
	}
}

// untilRenewal returns the time until a ready volume is refreshed.
func (m *Manager) untilRenewal(v *vol) time.Duration {
	return max(v.have.RenewAt.Sub(m.now()), minRefresh)
}
