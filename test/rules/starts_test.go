package rules

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestStartsContainPanics: an uncontained panic in any goroutine or timer ends the process (decision 0136).
func TestStartsContainPanics(t *testing.T) {
	violations, used, err := Starts(root, "internal")
	if err != nil {
		t.Fatal(err)
	}
	report(t, violations)
	for key, why := range unguarded {
		if !used[key] {
			t.Errorf("%s starts nothing any more: take it from the list", key)
		}
		if len(strings.Fields(why)) < 4 {
			t.Errorf("%s is on the list for no reason", key)
		}
	}
}

func TestStartsCatches(t *testing.T) {
	dir := t.TempDir()
	const code = `package x

func start() { go work() }
func timer() { time.AfterFunc(d, work) }
func group() { g.wg.Go(func() { work() }) }
func inside() { each(func() { go func() { x.y.work() }() }) }
func guardedByItself() { go func() { panics.Try(log, "x", work) }() }
func guardedBelow() { g.Go(func() { x.guard() }) }
func guardedTimer() { panics.After(log, "x", d, work) }
func theGuardItself() { go guard() }
func notAStart() { conn.Go("call", 0, nil) }

func work() {}
func guard() { return panics.Try(log, "x", work) }
`
	if err := os.WriteFile(filepath.Join(dir, "x.go"), []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	text := []byte("package x\nfunc test() { go work() }\n")
	if err := os.WriteFile(filepath.Join(dir, "x_test.go"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	violations, _, err := Starts(dir, ".")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range violations {
		got = append(got, strings.Fields(v)[1])
	}
	if want := []string{"group", "inside", "start", "timer"}; !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}
