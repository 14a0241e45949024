package parity

import (
	"fmt"
	"slices"
	"strings"
)

// Standing is what the tests that passed say of one row.
type Standing struct {
	Proven   bool
	Decision string   // the row differs by it, and a test shows what is done instead
	Problem  string   // why claims that were made come to neither
	Tests    []string // all that claim something of the row, sorted
}

// Standings sums up the records that the sources under root still bear out.
func Standings(records []Record, root, module string) (map[string]Standing, error) {
	claims := map[string][]placed{}
	for _, r := range records {
		place, err := r.Place(root, module)
		if err != nil {
			return nil, err
		}
		if place != "" {
			claims[r.Row] = append(claims[r.Row], placed{r, place})
		}
	}
	standings := map[string]Standing{}
	for row, c := range claims {
		standings[row] = judge(c)
	}
	return standings, nil
}

// placed is a record with the test that it is of.
type placed struct {
	Record
	place string
}

// judge weighs all claims of one row. Claims that contradict each other come to
// nothing: one of them is wrong, and which is not for this package to say.
func judge(claims []placed) Standing {
	var s Standing
	var whole bool
	var counts []int // that parts name
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
		s.Problem = fmt.Sprintf("one test proves it and another shows that it differs by %s", strings.Join(decided, ", "))
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
