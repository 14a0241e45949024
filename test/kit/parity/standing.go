package parity

import (
	"fmt"
	"slices"
	"strings"
)

// Standing is the state of one row by the records of its tests.
type Standing struct {
	Proven   bool
	Decision string   // the row differs by it, and a test shows what is done instead
	Problem  string   // why the claims of the row show neither
	Tests    []string // all that claim something of the row, sorted
	Skipped  []string // tests that claim something of the row, and skipped
	Void     []string // tests that passed before the code that they go through changed
}

// Standings combines the records whose claims the sources under root still make. A record
// is void if the code that its test goes through has changed since. A record of a test that
// skipped proves nothing. Both kinds are listed in the standing of their row.
func Standings(records []Record, root, module string) (map[string]Standing, error) {
	now := NewFingerprints(root, module)
	standings := map[string]Standing{}
	claims := map[string][]placed{}
	for _, r := range records {
		place, err := r.Place(root, module)
		if err != nil {
			return nil, err
		}
		if place == "" {
			continue
		}
		sum, err := now.Of(r.Package)
		if err != nil {
			return nil, err
		}
		s := standings[r.Row]
		switch {
		case r.Fingerprint != sum:
			s.Void = append(s.Void, r.Package+" "+r.Test)
		case r.Skipped:
			s.Skipped = append(s.Skipped, r.Package+" "+r.Test)
		default:
			claims[r.Row] = append(claims[r.Row], placed{r, place})
		}
		standings[r.Row] = s
	}
	for row, c := range claims {
		s := judge(c)
		s.Skipped, s.Void = standings[row].Skipped, standings[row].Void
		standings[row] = s
	}
	for _, s := range standings {
		slices.Sort(s.Skipped)
		slices.Sort(s.Void)
	}
	return standings, nil
}

// placed is a record with the place of its claim.
type placed struct {
	Record
	place string
}

// judge combines all claims of one row. Claims that contradict each other prove nothing:
// one of them is wrong, and this package cannot decide which.
func judge(claims []placed) Standing {
	var s Standing
	var whole bool
	var counts []int // the numbers of parts that the claims name
	var decided, parts []string
	for _, c := range claims {
		s.Tests = append(s.Tests, c.Package+" "+c.Test)
		switch {
		case c.Decision != "":
			decided = append(decided, c.Decision)
		case c.Parts > 0:
			counts, parts = append(counts, c.Parts), append(parts, c.place)
		default:
			whole = true
		}
	}
	for _, l := range []*[]string{&s.Tests, &decided, &parts} {
		slices.Sort(*l)
		*l = slices.Compact(*l)
	}
	slices.Sort(counts)
	counts = slices.Compact(counts)

	switch {
	case len(decided) > 0 && (whole || len(parts) > 0):
		s.Problem = fmt.Sprintf("one test proves it and another shows that it differs by %s",
			strings.Join(decided, ", "))
	case len(decided) > 1:
		s.Problem = fmt.Sprintf("differs by more than one decision: %s", strings.Join(decided, ", "))
	case len(decided) == 1:
		s.Decision = decided[0]
	case whole:
		s.Proven = true
	case len(counts) > 1:
		s.Problem = fmt.Sprintf("its tests do not agree on how many of them prove it together: %s", join(counts))
	case len(parts) > counts[0]:
		s.Problem = fmt.Sprintf("%d tests say that %d prove it together", len(parts), counts[0])
	case len(parts) < counts[0]:
		s.Problem = fmt.Sprintf("%d of the %d tests that prove it together passed", len(parts), counts[0])
	default:
		s.Proven = true
	}
	return s
}

func join(numbers []int) string {
	words := make([]string, len(numbers))
	for i, n := range numbers {
		words[i] = fmt.Sprint(n)
	}
	return strings.Join(words, ", ")
}
