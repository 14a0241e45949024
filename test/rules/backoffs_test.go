package rules

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestBackoffsAreNotMadeByHand(t *testing.T) {
	violations, used, err := Backoffs(root, "internal")
	if err != nil {
		t.Fatal(err)
	}
	report(t, violations)
	for name := range ownBackoffs {
		if !used[name] {
			t.Errorf("%s doubles nothing any more: take it from the list", name)
		}
	}
}

func TestBackoffsCatches(t *testing.T) {
	dir := t.TempDir()
	const code = `package x

func f() {
	delay = min(2*delay, maxRetry)
	u.delay = min(max(2*u.delay, minRetry), maxRetry)
	pause = min(pause*2, last)
	e.wait *= 2
	at = now.Add(minRetry<<tries)
	limit := min(wait, left)
	double := 2 * size
	// delay = min(2*delay, maxRetry)
}
`
	if err := os.WriteFile(filepath.Join(dir, "x.go"), []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "x_test.go"), []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	violations, _, err := Backoffs(dir, ".")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, v := range violations {
		place, _, _ := strings.Cut(v, " ")
		lines = append(lines, place)
	}
	if want := []string{"x.go:4", "x.go:5", "x.go:6", "x.go:7", "x.go:8"}; !slices.Equal(lines, want) {
		t.Errorf("caught %v, want %v", lines, want)
	}
}
