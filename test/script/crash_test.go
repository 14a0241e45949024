package script

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"keelson/test/kit/parity"
)

// patience is how many seconds of virtual time an agent has to bring about what a
// scenario shows, if it is not run as it stands.
const patience = 120

// settles reports whether what the step shows is a state, which a crash delays
// and must not change, and not a story of how it came about.
func (st step) settles() bool {
	switch st.args[0] {
	case "status", "runtime", "left", "given", "node-has", "health", "prepared":
		return true
	}
	return false
}

// The agent is killed after every single call that changes something in the
// runtime, or by which others are asked for what containers are given, before it
// hears of the answer. The next one must bring the scenario
// to the same end, and every instance of every container is started once, as if
// there had been no crash.
func TestCrashes(t *testing.T) {
	parity.Proves(t, "LIFE-14")
	for _, s := range scenarios(t) {
		if !s.Crash {
			continue
		}
		name := strings.TrimSuffix(filepath.Base(s.Name), ".txt")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calm := play(t, s, mode{})
			for at := 1; at <= calm.writes; at++ {
				t.Run(fmt.Sprintf("after-%d", at), func(t *testing.T) {
					t.Parallel()
					got := play(t, s, mode{crashAt: at})
					t.Logf("the agent was killed after %s", got.crashed)
					if got.crashed == "" {
						t.Errorf("the agent made %d calls and was not killed", got.writes)
					}
					if !maps.Equal(got.starts, calm.starts) {
						t.Errorf("killed after %s: started\n%v, without a crash\n%v\n%s", got.crashed, got.starts,
							calm.starts, got.trace)
					}
				})
			}
		})
	}
}

// A runtime that tells nothing by itself is asked: the same things happen, a
// little later.
func TestRuntimeWithoutEvents(t *testing.T) {
	for _, s := range scenarios(t) {
		if !s.Crash {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(s.Name), ".txt"), func(t *testing.T) {
			t.Parallel()
			calm, got := play(t, s, mode{}), play(t, s, mode{old: true})
			if !maps.Equal(got.starts, calm.starts) {
				t.Errorf("started\n%v, with events\n%v\n%s", got.starts, calm.starts, got.trace)
			}
		})
	}
}
