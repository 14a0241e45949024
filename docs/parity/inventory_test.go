package inventory

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"keelson/docs/decisions"
)

// TestInventory compares what was parsed with the totals that the README's
// index states, so a row that the pattern cannot read is noticed.
func TestInventory(t *testing.T) {
	readme, err := tables.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	// | [file](file) | subject | PREFIX | rows | P0 | P1 | P2 | P3 |
	line := regexp.MustCompile(
		`(?m)^\| \[[^]]+\]\([^)]+\) \| [^|]+ \| ([A-Z]+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$`)
	got := map[string]int{}
	for _, r := range Rows() {
		got[r.Subsystem]++
		got[r.Subsystem+r.Priority]++
	}
	found := line.FindAllStringSubmatch(string(readme), -1)
	if len(found) != len(Subsystems) {
		t.Fatalf("the README's index has %d subsystems, want %d", len(found), len(Subsystems))
	}
	for _, m := range found {
		for i, key := range []string{m[1], m[1] + "P0", m[1] + "P1", m[1] + "P2", m[1] + "P3"} {
			want, err := strconv.Atoi(m[2+i])
			if err != nil {
				t.Fatal(err)
			}
			if got[key] != want {
				t.Errorf("%s: %d rows were read, the README's index says %d", key, got[key], want)
			}
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		files fstest.MapFS
		want  string
	}{
		"a row that stands twice": {
			fstest.MapFS{
				"01-a.md": {Data: []byte("| RT-01 | P0 | one | x | y |\n")},
				"02-b.md": {Data: []byte("| RT-01 | P0 | one | x | y |\n")},
			}, "stands in 01-a.md and in 02-b.md",
		},
		"an unknown prefix": {
			fstest.MapFS{"01-a.md": {Data: []byte("| ZZ-01 | P0 | one | x | y |\n")}}, "no known subsystem",
		},
	} {
		if _, err := parse(c.files); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one that says %q", name, err, c.want)
		}
	}
}

// What differs.md says of a row names the row, once, and a decision that is there.
func TestWhatDiffersIsDecided(t *testing.T) {
	text, err := tables.ReadFile("differs.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(
		`(?m)^\| ([A-Z]+-[0-9]+) \| \[([0-9]{4})\]\(\.\./decisions/([0-9]{4})-[^)]+\.md\) \| [^|]+ \|$`)
	found := line.FindAllStringSubmatch(string(text), -1)
	if rows := strings.Count(string(text), "\n| ") - 1; len(found) != rows || rows == 0 {
		t.Errorf("%d of %d lines can be read", len(found), rows)
	}
	seen := map[string]bool{}
	for _, m := range found {
		if _, ok := Lookup(m[1]); !ok || seen[m[1]] {
			t.Errorf("%s is no row, or stands here twice", m[1])
		}
		seen[m[1]] = true
		if _, ok := decisions.Title(m[2]); !ok || m[2] != m[3] {
			t.Errorf("%s differs by a decision %s that is not there, or links to %s", m[1], m[2], m[3])
		}
	}
}
