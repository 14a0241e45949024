package script

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"keelson/test/kit/parity"
)

// patience is how many seconds of virtual time an agent has to reach the state that a
// scenario shows, if the scenario is not run in the mode it was written for.
const patience = 120

// settles reports whether the step shows a state, which a crash may delay but must not
// change, and not calls or events, which a crash may change.
func (st step) settles() bool {
	switch st.args[0] {
	case "status", "runtime", "left", "given", "node-has", "health", "prepared":
		return true
	}
	return false
}

// The agent is killed after every single call that changes something in the runtime, and every
// call to a device plugin or a DRA driver, before it gets the answer. The next agent must bring
// the scenario to the same end, and every instance of every container is started once, as if
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

// A runtime without events is polled: the same things happen, a little later.
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
