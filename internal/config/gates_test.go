package config

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"keelson/test/kit/parity"
)

// TestGatesAreUpstreams compares the table of gates with the inventory's.
func TestGatesAreUpstreams(t *testing.T) {
	parity.Proves(t, "CFG-142", "CFG-143", "CFG-144", "CFG-145")
	text, err := os.ReadFile("../../docs/parity/01-config-and-flags.md")
	if err != nil {
		t.Fatal(err)
	}
	row := func(id string) string {
		m := regexp.MustCompile(`(?m)^\| ` + id + ` \| P\d \| [^|]* \| ([^|]*) \|`).FindStringSubmatch(string(text))
		if m == nil {
			t.Fatalf("no row %s", id)
		}
		return m[1]
	}
	known := KnownGates()
	check := func(list string, stage Stage, on bool) {
		t.Helper()
		for name := range strings.SplitSeq(list, ",") {
			name, note, _ := strings.Cut(strings.Trim(strings.TrimSpace(name), "."), " ")
			if name == "RuntimeClassInImageCriAPI" {
				name = "RuntimeClassInImageCriApi" // the row has the name of upstream's constant
			}
			g, ok := known[name]
			if !ok || g.Stage != stage || g.Default != on || strings.Contains(note, "locked") != g.Locked {
				t.Errorf("%s: known %v, %+v, want %s %v", name, ok, g, stage, on)
			}
		}
	}
	check(row("CFG-142"), Beta, true)
	check(row("CFG-143"), Beta, false)
	check(row("CFG-144"), Alpha, false)
	on, off, ok := strings.Cut(strings.TrimPrefix(row("CFG-145"), "on: "), ". off: ")
	if !ok {
		t.Fatal("the row of deprecated gates reads otherwise")
	}
	check(on, Deprecated, true)
	check(off, Deprecated, false)
}
