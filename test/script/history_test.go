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
)

var (
	histories = flag.Int("histories", 25, "how many histories are drawn")
	seed      = flag.Uint64("seed", 1, "the first seed of them")
	replay    = flag.String("replay", "", "a file with a history to be lived instead")
)

// peace is how long the node has at the end of a history before it is checked: longer than any
// back-off, grace period, deadline or call timeout of a history.
const peace = 12 * time.Minute

// TestHistories runs histories that are generated at random. A history that fails is shortened as far as
// it still fails.
func TestHistories(t *testing.T) {
	if *replay != "" {
		text, err := os.ReadFile(*replay)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Parse(*replay, string(text))
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range live(t, s, true) {
			t.Error(b)
		}
		return
	}
	for i := range uint64(*histories) {
		t.Run(fmt.Sprintf("seed-%d", *seed+i), func(t *testing.T) {
			t.Parallel()
			s, err := History(*seed + i)
			if err != nil {
				t.Fatal(err)
			}
			if found := live(t, s, *logged); len(found) > 0 {
				s = shorten(t, s, found)
				t.Errorf("%s\nin the history\n%s", strings.Join(found, "\n"), indent(s.short()))
			}
		})
	}
}

// live runs a history, ends all faults, waits for peace, and returns what is wrong then.
func live(t *testing.T, s *Scenario, logged bool) (found []string) {
	dir := NodeDir(t)
	var log string
	synctest.Test(t, func(t *testing.T) {
		w := NewWorld(t, dir, s.Config, false)
		w.guarded = true
		r := &Run{World: w, Scenario: s, faults: map[string]fault{}}
		watched := w.follow(t)
		w.Start()
		for _, st := range s.steps {
			// A step may be impossible, for example if no container of that name runs.
			if _, err := r.do(st); err != nil && logged {
				t.Logf("%s: %v", strings.Join(st.args, " "), err)
			}
		}
		r.makePeace()
		time.Sleep(peace)
		found = append(w.chronicle.breaches(), w.unsettled()...)
		found = slices.Concat(found, w.breaches())
		if logged {
			t.Logf("the calls:\n%s", w.showCalls(0, "", true))
			t.Logf("what was logged:\n%s", w.chronicle.reported())
		}
		w.Close()
		watched()
		log = w.Log.String()
	})
	if logged {
		if err := os.WriteFile(filepath.Join(os.TempDir(), "history.log"), []byte(log), 0o600); err != nil {
			t.Error(err)
		}
	}
	return found
}

// makePeace ends all faults and makes sure that the runtime, the API server and the agent run.
func (r *Run) makePeace() {
	r.mu.Lock()
	r.crashAt = 0
	clear(r.sick)
	r.mu.Unlock()
	for _, f := range r.faults {
		f.Release()
	}
	for _, how := range [][]string{{"runtime", "up"}, {"api", "up"}} {
		if _, err := r.do(step{args: how}); err != nil {
			r.T.Error(err)
		}
	}
	r.revive.Wait()
	if !r.wanted {
		r.Start()
	}
}

// shorten leaves out steps without which the history still fails.
func shorten(t *testing.T, s *Scenario, found []string) *Scenario {
	for n := len(s.steps) / 2; n > 0; n /= 2 {
		for at := 0; at+n <= len(s.steps); {
			less := *s
			less.steps = slices.Delete(slices.Clone(s.steps), at, at+n)
			if len(live(t, &less, false)) > 0 {
				s = &less
			} else {
				at += n
			}
		}
	}
	return s
}

// short is the text of a scenario without files that its steps do not use.
func (s *Scenario) short() string {
	var b strings.Builder
	used := map[string]bool{}
	for _, st := range s.steps {
		fmt.Fprintln(&b, strings.Join(st.args, " "))
		for _, a := range st.args {
			used[a[strings.IndexByte(a, '=')+1:]] = true
		}
	}
	b.WriteString("\n")
	for _, name := range sorted(s.Files) {
		if used[name] {
			fmt.Fprintf(&b, "-- %s --\n%s", name, s.Files[name])
		}
	}
	return b.String()
}
