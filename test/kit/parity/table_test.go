package parity

import (
	"strings"
	"testing"

	inventory "keelson/docs/parity"
)

func TestTable(t *testing.T) {
	rows := []inventory.Row{
		{ID: "SRC-01", Subsystem: "SRC", Priority: "P0"},
		{ID: "SRC-04", Subsystem: "SRC", Priority: "P0"},
		{ID: "LIFE-01", Subsystem: "LIFE", Priority: "P0"},
		{ID: "LIFE-02", Subsystem: "LIFE", Priority: "P0"},
		{ID: "LIFE-03", Subsystem: "LIFE", Priority: "P3"},
	}
	got := Table(rows, map[string]Standing{
		"LIFE-01": {Proven: true},
		"LIFE-02": {Problem: "1 of the 2 tests that prove it together passed"},
		"LIFE-03": {Skipped: []string{"m/a TestThree"}},
		"SRC-01":  {Void: []string{"m/a TestOne"}},
		"SRC-04":  {Decision: "0003", Void: []string{"m/a TestFour"}},
	})
	want := `1 of 5 rows are proven by tests that ran and passed.
1 differ on purpose, each by a decision and with a test of what is done instead:

  SRC-04  0003: An invalid manifest does not terminate its pod

Not proven:
  SRC   P0  01
  LIFE  P0  02
  LIFE  P3  03

Claimed, and not proven by it:
  LIFE-02 1 of the 2 tests that prove it together passed

Not proven any more: the code that their tests go through has changed since they passed (1):
  SRC-01

Claimed by tests that skipped (1):
  LIFE-03 m/a TestThree

Proven, and those that differ, by priority:
CFG P0 0/0 P1 0/0 P2 0/0 P3 0/0
SRC P0 0+1/2 P1 0/0 P2 0/0 P3 0/0
LIFE P0 1/2 P1 0/0 P2 0/0 P3 0/1
`
	if !strings.HasPrefix(got, want) {
		t.Errorf("the table is\n%s\nand does not begin with\n%s", got, want)
	}
	if lines := strings.Split(strings.TrimSpace(got), "\n"); !strings.HasPrefix(lines[len(lines)-1], "PLUG P0 ") {
		t.Errorf("the last line is %q", lines[len(lines)-1])
	}
	if got := Table(rows[:1], map[string]Standing{"SRC-01": {Proven: true}}); strings.Contains(got,
		"differ on purpose") || strings.Contains(got, "Not proven") {
		t.Errorf("with all rows proven the table is\n%s", got)
	}
}
