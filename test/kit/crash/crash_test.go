package crash

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"keelson/test/kit/await"
)

func TestMain(m *testing.M) {
	Main(m, map[string]func(string) error{
		"letters": letters,
		"bad":     func(string) error { return errors.New("it broke") },
	})
}

// letters makes a directory for each letter, two of them by a program, and removes
// the last one.
func letters(dir string) error {
	make := func(name string) error { return os.Mkdir(filepath.Join(dir, name), 0o755) }
	if err := errors.Join(make("a"), make("b")); err != nil {
		return err
	}
	if err := exec.Command("/bin/sh", "-c", "mkdir "+dir+"/c && mkdir "+dir+"/d").Run(); err != nil {
		return err
	}
	if err := make("e"); err != nil {
		return err
	}
	return os.Remove(filepath.Join(dir, "e"))
}

// A victim is killed at each of its changes. That change has not happened, and all
// changes before it have. Programs that the victim started continue.
func TestKilledAtEachChange(t *testing.T) {
	dir := t.TempDir()
	list := func() string {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		out := ""
		for _, e := range entries {
			out += e.Name()
		}
		return out
	}
	seen := map[string]bool{}
	// Before each run: a program that the previous victim started may have made its directories late.
	tidy := func() {
		for _, name := range "abcde" {
			_ = os.Remove(filepath.Join(dir, string(name)))
		}
	}
	died := Run(t, Scene{Work: "letters", Dir: dir, Kills: 60, Prepare: tidy, Check: func(kill int, how string) {
		want := ""
		switch { // a program that the victim started completes its work
		case how == "at exit of crash.test": // Go tries once whether it can start programs
		case strings.Contains(how, " of "):
			want = "abcd"
		}
		await.Until(t, "the orphan of one that was killed "+how, func() (string, bool) {
			have := list()
			return fmt.Sprintf("%q", have), want == "" || have == want
		})
		if got := list(); !strings.HasPrefix("abcde", got) {
			t.Errorf("killed %s: %q", how, got)
		}
		seen[list()] = true
	}})
	for _, want := range []string{"", "a", "ab", "abcd", "abcde"} {
		if !seen[want] {
			t.Errorf("no death left %q; there were %v", want, died.By)
		}
	}
	if !died.covered || died.Kills != 60 {
		t.Errorf("%d kills do not cover a life", died.Kills)
	}
	died.Want(t, "at its mkdir", "at its unlink", "at mkdir of mkdir", "at exit of sh", "by the clock")
}

func TestTurnsCoverALife(t *testing.T) {
	for _, tc := range []struct{ kills, changes, moments, want int }{{100, 40, 0, 40}, {10, 40, 0, 9},
		{100, 40, 10, 40}} {
		u := turns{changes: tc.changes, moments: tc.moments, of: tc.kills, took: time.Second}
		at, also := map[int]bool{}, map[int]bool{}
		for range tc.kills {
			p, moment := u.next()
			switch {
			case moment >= 0:
				also[moment] = true
			case p.change > tc.changes:
				t.Fatalf("change %d of %d", p.change, tc.changes)
			case p.change > 0:
				at[p.change] = true
			}
		}
		if len(at) != tc.want || len(also) != tc.moments {
			t.Errorf("%d kills were at %d of %d changes and %d of %d moments", tc.kills, len(at), tc.changes, len(also),
				tc.moments)
		}
	}
}

func TestAVictimThatFails(t *testing.T) {
	var s Scene
	s.Work, s.Dir = "bad", t.TempDir()
	got := s.live(t, plan{})
	if got.how != "" || got.failed == nil || !strings.Contains(got.logged, "it broke") {
		t.Errorf("it ended with %q, %v, saying %q", got.how, got.failed, got.logged)
	}
	got.over()
}
