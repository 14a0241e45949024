package values

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
)

// Ways in which a series differs.
const (
	Missing = "only upstream"
	Extra   = "only here"
	Unequal = "value"
)

// Finding is a series that differs.
type Finding struct {
	Endpoint, Series string
	How              string
	Before, Here     Value
	After            Value
}

func (f Finding) String() string {
	if f.How == Unequal {
		return fmt.Sprintf("%s %s: %s here, upstream %s and then %s", f.Endpoint, f.Series, f.Here, f.Before, f.After)
	}
	return fmt.Sprintf("%s %s: %s", f.Endpoint, f.Series, f.How)
}

// How far a fluctuating gauge may lie outside of the reference's values, as a fraction of them.
const (
	slack = 0.25
	// Other programs of the machine change the values meanwhile.
	slackOfMachine = 2
)

// ofMachine reports whether a series is about the whole machine.
func ofMachine(series string) bool {
	return strings.Contains(series, `id="/"`) || strings.HasPrefix(series, "node_") ||
		strings.HasPrefix(series, "node.") && !strings.HasPrefix(series, "node.systemContainers.")
}

// Whose are the counters of an endpoint.
type Whose bool

const (
	OfNode  Whose = false // of the kernel or the runtime: they continue from one agent to the next
	OfAgent Whose = true  // they start at zero with the agent: only whether they are zero is compared
)

// Compare returns the differences between the agent and the reference, which ran before and after it.
func Compare(endpoint string, counters Whose, before, here, after Shot) (out []Finding) {
	all := maps.Clone(before)
	maps.Copy(all, here)
	maps.Copy(all, after)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		b, wasThere := before[key]
		h, isHere := here[key]
		a, isThere := after[key]
		f := Finding{Endpoint: endpoint, Series: key, Before: b, Here: h, After: a}
		switch {
		case wasThere && isThere && !isHere:
			f.How = Missing
		case !wasThere && !isThere:
			f.How = Extra
		case !wasThere || !isThere || !isHere || fits(key, counters, b, h, a):
			continue // the reference does not always show it
		default:
			f.How = Unequal
		}
		out = append(out, f)
	}
	return out
}

// inUse are the gauges of memory in use, which the kernel counts in batches for each CPU, and of the processes and open
// files of the whole machine. If the reference shows the same value in both turns, that is by chance.
var inUse = regexp.MustCompile(`^(` + strings.Join([]string{
	`(container|pod|node)_memory_(cache|kernel_usage|mapped_file|rss|total_(in)?active_file_bytes|usage_bytes|working_set_bytes)\b.*`,
	`.*\.memory\.(usage|workingSet|rss|available)Bytes\b.*`,
	`container_(processes|file_descriptors|sockets)\{.*id="/".*`,
	`node\.rlimit\.curproc`,
}, "|") + `)$`)

// fits reports whether h agrees with the values b and a that the reference reported before and after.
func fits(key string, counters Whose, b, h, a Value) bool {
	if counters == OfAgent && h.Grows {
		return (b.Number > 0) != (a.Number > 0) || (h.Number > 0) == (b.Number > 0)
	}
	if b.Text != "" || a.Text != "" || h.Text != "" {
		return b.Text != a.Text || h.Text == b.Text
	}
	if b.Number == a.Number && !inUse.MatchString(key) {
		return h.Number == b.Number || math.IsNaN(b.Number) && math.IsNaN(h.Number)
	}
	least, most := min(b.Number, a.Number), max(b.Number, a.Number)
	if !h.Grows {
		off := slack * max(math.Abs(least), math.Abs(most))
		if ofMachine(key) {
			off = slackOfMachine * max(math.Abs(least), math.Abs(most))
		}
		least, most = least-off, most+off
	}
	return h.Number >= least && h.Number <= most
}

// Common counts the series that all three turns have: their values are compared.
func Common(before, here, after Shot) (n int) {
	for series := range here {
		_, wasThere := before[series]
		_, isThere := after[series]
		if wasThere && isThere {
			n++
		}
	}
	return n
}
