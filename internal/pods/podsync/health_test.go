package podsync

import (
	"strings"
	"testing"
	"time"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

func TestStuckWorkerIsNotHealthy(t *testing.T) {
	parity.ProvesPart(t, 5, "SRV-05")
	parity.ProvesPart(t, 6, "SRV-13")
	m := newMeasured(t)
	m.cfg.TurnPatience = 5 * time.Minute
	m.worker("web", podNamed("web", pod.SourceAPI))
	if err := m.Healthy(); err != nil {
		t.Errorf("before the first round: %v", err)
	}
	m.check()
	m.now = m.now.Add(5 * time.Minute)
	if err := m.Healthy(); err != nil {
		t.Errorf("after a round: %v", err)
	}
	m.now = m.now.Add(time.Second)
	if err := m.Healthy(); err == nil || !strings.Contains(err.Error(), "5m1s ago") {
		t.Errorf("when no round has been for long: %v, want what is wrong", err)
	}
	m.board.beginTurn("web", m.now)
	m.now = m.now.Add(5 * time.Minute)
	m.check()
	if err := m.Healthy(); err != nil {
		t.Errorf("a turn that takes a while: %v", err)
	}
	m.now = m.now.Add(time.Second)
	m.check()
	if err := m.Healthy(); err == nil || !strings.Contains(err.Error(), "pod web") {
		t.Errorf("a turn that takes for ever: %v, want whose", err)
	}
	m.board.endTurn("web")
	m.check()
	if err := m.Healthy(); err != nil {
		t.Errorf("when it goes on: %v", err)
	}
}
