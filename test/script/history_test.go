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

// peace is how long a node is left alone before it is judged: longer than any back-off,
// grace or deadline of a history, and the timeouts of its calls.
const peace = 12 * time.Minute

// TestHistories lives through histories that are generated at random. What fails is made as short
// as it can be and still fails.
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

// live lets a node go through a history, gives it peace, and tells what is wrong then.
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
			// What cannot be done is not done: no container of that name may run.
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

// makePeace ends everything that is in the agent's way.
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

// shorten leaves out of a history what it fails without as well.
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

// short is a scenario without anything that its steps do not use.
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
