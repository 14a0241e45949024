package parity

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	inventory "keelson/docs/parity"
)

// Table renders what `make parity` prints: the number of proven rows, the
// other rows by subsystem and priority, and one line per subsystem.
func Table(rows []inventory.Row, proven map[string]bool) string {
	var b strings.Builder
	count := 0
	open := map[string][]string{} // "LIFE P0" -> numbers of unproven rows
	done, all := map[string]int{}, map[string]int{}
	for _, r := range rows {
		key := r.Subsystem + " " + r.Priority
		all[key]++
		if proven[r.ID] {
			done[key]++
			count++
			continue
		}
		open[key] = append(open[key], strings.TrimPrefix(r.ID, r.Subsystem+"-"))
	}

	fmt.Fprintf(&b, "%d of %d rows are proven by a test that ran and passed.\n", count, len(rows))
	if count < len(rows) {
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
	b.WriteString("\n")
	for _, s := range inventory.Subsystems {
		b.WriteString(s)
		for _, p := range inventory.Priorities {
			fmt.Fprintf(&b, " %s %d/%d", p, done[s+" "+p], all[s+" "+p])
		}
		b.WriteString("\n")
	}
	return b.String()
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
