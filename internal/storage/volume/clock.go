package volume

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/node/panics"
)

const (
	// clockLook is how often it is looked whether the clock was set.
	clockLook = time.Minute
	// clockStep is how much further than the time that passed it must have gone.
	clockStep = 5 * time.Second
)

// followClock waits for the end of ctx. Timers know nothing of a clock that is set
// ahead, or of a machine that slept: what grows old by the clock is then too old
// before they are over, so they are set anew.
func (m *Manager) followClock(ctx context.Context) {
	tick := time.NewTicker(clockLook)
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
			m.cfg.Log.Info("the clock went ahead, looking at what grows old anew", "by", ahead)
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
		for _, v := range ps.vols {
			if v.ready && !v.busy && v.err == nil && v.waits == nil && !v.have.RenewAt.IsZero() {
				m.renewLocked(uid, ps, v)
			}
		}
	}
}

// renewLocked sets the timer of a volume that is ready and grows old.
func (m *Manager) renewLocked(uid types.UID, ps *volumes, v *vol) {
	if v.timer != nil {
		v.timer.Stop()
	}
	v.timer = panics.Again(m.cfg.Log, "volumes", max(v.have.RenewAt.Sub(m.now()), soonest), func() { m.due(uid, ps, v) })
}
