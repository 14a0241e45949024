package parity

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"keelson/docs/decisions"
	inventory "keelson/docs/parity"
)

// Table renders what `make parity` prints: the numbers of rows that are proven
// and that differ, the rows that differ, the rows that are not proven by subsystem
// and priority, the rows that tests claim but do not prove, with the reason
// (contradictory, void, skipped), and one line per subsystem.
func Table(rows []inventory.Row, standings map[string]Standing) string {
	var differ, odd, skipped strings.Builder
	var void []string
	proven, differing, skips := 0, 0, 0
	open := map[string][]string{} // "LIFE P0" -> numbers of unproven rows
	counts := map[string]tally{}
	for _, r := range rows {
		key := r.Subsystem + " " + r.Priority
		c, s := counts[key], standings[r.ID]
		c.all++
		switch {
		case s.Proven:
			c.proven++
			proven++
		case s.Decision != "":
			c.differ++
			differing++
			title, _ := decisions.Title(s.Decision)
			fmt.Fprintf(&differ, "  %-7s %s: %s\n", r.ID, s.Decision, title)
		default:
			open[key] = append(open[key], strings.TrimPrefix(r.ID, r.Subsystem+"-"))
		}
		if s.Problem != "" {
			fmt.Fprintf(&odd, "  %-7s %s\n", r.ID, s.Problem)
		}
		for _, test := range s.Skipped {
			skips++
			fmt.Fprintf(&skipped, "  %-7s %s\n", r.ID, test)
		}
		if len(s.Void) > 0 && !s.Proven && s.Decision == "" {
			void = append(void, r.ID)
		}
		counts[key] = c
	}

	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d rows are proven by tests that ran and passed.\n", proven, len(rows))
	if differing > 0 {
		fmt.Fprintf(&b, "%d differ on purpose, each by a decision and with a test of what is done instead:\n\n%s",
			differing, differ.String())
	}
	if proven+differing < len(rows) {
		b.WriteString("\nNot proven:\n")
		for _, s := range inventory.Subsystems {
			for _, p := range inventory.Priorities {
				if ids := open[s+" "+p]; len(ids) > 0 {
					slices.SortFunc(ids, func(a, b string) int { return cmp.Or(len(a)-len(b), cmp.Compare(a, b)) })
					writeWrapped(&b, fmt.Sprintf("  %-5s %s ", s, p), ids)
				}
			}
		}
	}
	if odd.Len() > 0 {
		fmt.Fprintf(&b, "\nClaimed, and not proven by it:\n%s", odd.String())
	}
	if len(void) > 0 {
		fmt.Fprintf(&b,
			"\nNot proven any more: the code that their tests go through has changed since they passed (%d):\n",
			len(void))
		writeWrapped(&b, " ", void)
	}
	if skips > 0 {
		fmt.Fprintf(&b, "\nClaimed by tests that skipped (%d):\n%s", skips, skipped.String())
	}
	b.WriteString("\nProven, and those that differ, by priority:\n")
	for _, s := range inventory.Subsystems {
		b.WriteString(s)
		for _, p := range inventory.Priorities {
			fmt.Fprintf(&b, " %s %s", p, counts[s+" "+p])
		}
		b.WriteString("\n")
	}
	return b.String()
}

type tally struct{ proven, differ, all int }

// String is 28/30, or 28+2/30 with two that differ.
func (t tally) String() string {
	if t.differ == 0 {
		return fmt.Sprintf("%d/%d", t.proven, t.all)
	}
	return fmt.Sprintf("%d+%d/%d", t.proven, t.differ, t.all)
}

const tableWidth = 100

// writeWrapped writes words behind head, continued on indented lines.
func writeWrapped(b *strings.Builder, head string, words []string) {
	line := head
	for _, w := range words {
		if len(line)+1+len(w) > tableWidth {
			b.WriteString(line + "\n")
			line = strings.Repeat(" ", len(head))
		}
		line += " " + w
	}
	b.WriteString(line + "\n")
}
