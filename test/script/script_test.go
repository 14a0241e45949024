package script

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"keelson/test/kit/parity"
)

var (
	update = flag.Bool("update", false, "write what the scenarios show into their blocks")
	logged = flag.Bool("log", false, "show what the agent logged, also when a scenario passes")
)

func TestMain(m *testing.M) {
	Prepare()
	m.Run()
}

func scenarios(t *testing.T) []*Scenario {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	var list []*Scenario
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Parse(f, string(data))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	return list
}

func TestScenarios(t *testing.T) {
	for _, s := range scenarios(t) {
		t.Run(strings.TrimSuffix(filepath.Base(s.Name), ".txt"), func(t *testing.T) {
			t.Parallel()
			parity.Proves(t, s.Rows...)
			for _, p := range s.Parts {
				parity.ProvesPart(t, p.of, p.row)
			}
			for _, d := range s.Differs {
				parity.Differs(t, d.row, d.decision)
			}
			r := play(t, s, mode{})
			if *update && len(r.shown) == len(s.steps) {
				if err := os.WriteFile(s.Name, []byte(s.With(r.shown)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// result is the result of a run.
type result struct {
	shown   []string       // by step, as far as it got
	writes  int            // calls that changed something
	changes int            // of these, those of the runtime
	crashed string         // the call after which the agent was killed
	starts  map[string]int // successful starts, by pod/container#attempt
	broken  bool           // a step failed because of the fate, which is no error
	fated   string         // the call whose answer was lost
	trace   string         // every call to the runtime, and what the agents logged
}

// mode is how a scenario is run. Only in the zero mode the calls and events are compared. In the
// other modes a state may be reached later.
type mode struct {
	crashAt int  // the agent is killed after this number of calls that change something
	old     bool // the runtime behaves like containerd 1.6
	fate    *fate
	fateAt  int // the call of this number that changes something meets the fate
}

// settles reports whether a step must show the same in this mode as in the zero mode.
func (m mode) settles(st step) bool {
	return st.settles() && (m.fate == nil || !m.fate.diverges() && st.args[0] != "runtime")
}

// play runs a scenario.
func play(t *testing.T, s *Scenario, m mode) result {
	dir := NodeDir(t)
	var res result
	var failure, log string
	passed := false
	defer func() { // a bubble that fails ends the test
		if !passed || failure != "" || *logged {
			t.Logf("the agent's log:\n%s", log)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		w := NewWorld(t, dir, s.Config, m.old)
		w.machine = s.Machine
		w.crashAt = m.crashAt
		plain := m == (mode{})
		if m.fate != nil {
			w.Config += m.fate.config
			w.meet(m.fate, m.fateAt)
		}
		r := &Run{World: w, Scenario: s, faults: map[string]fault{}}
		watched := w.follow(t)
		if !s.Late {
			w.Start()
		}
		for _, st := range s.steps {
			where := fmt.Sprintf("%s:%d: %s", s.Name, st.line+1, strings.Join(st.args, " "))
			out, err := r.do(st)
			for i := 0; !plain && err == nil && out != st.want && m.settles(st) && i < patience; i++ {
				time.Sleep(time.Second)
				out, err = r.do(st)
			}
			res.shown = append(res.shown, out)
			if res.broken = err != nil && m.fate.breaks(st); res.broken {
				break
			}
			if err != nil {
				failure = fmt.Sprintf("%s: %v", where, err)
				break
			}
			if s.Loose && st.block[0] == st.block[1] {
				continue
			}
			if out != st.want && !*update && (plain || m.settles(st)) {
				t.Errorf("%s shows\n%swant\n%s", where, indent(out), indent(st.want))
			}
		}
		if failure != "" {
			failure += "\nThe runtime holds:\n" + indent(w.showRuntime()) + "The last calls:\n" +
				indent(w.showCalls(r.look, "", true))
		}
		w.Close()
		watched()
		for _, b := range slices.Concat(w.breaches(), w.startedInVain(), w.chronicle.untruths()) {
			t.Errorf("%s: %s", s.Name, b)
		}
		res.writes, res.changes, res.crashed, res.starts, res.fated = w.writes, w.changes, w.crashed, w.starts(),
			w.doom.fated()
		log, passed = w.Log.String(), !t.Failed()
		res.trace = "The calls:\n" + indent(w.showAllCalls()) + "The runtime holds:\n" + indent(w.showRuntime()) +
			"The agents' log:\n" + log
	})
	if failure != "" {
		t.Error(failure)
	}
	return res
}

func indent(s string) string {
	if s == "" {
		return "    (nothing)\n"
	}
	return "    " + strings.ReplaceAll(strings.TrimSuffix(s, "\n"), "\n", "\n    ") + "\n"
}
