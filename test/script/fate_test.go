package script

import (
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
)

var allFates = flag.Bool("fates", false,
	"have every call meet every fate, and not one of them, and look for the same end")

// The answer of a call is lost, in each run that of a different call that changes something in
// the runtime. The agent reads the state from the runtime; nothing is started twice, and no
// invariant is broken. With -fates the scenario must also come to the same end, which a few
// cannot.
func TestAnswersThatGetLost(t *testing.T) {
	for number, s := range scenarios(t) {
		if !s.Crash || s.Timely {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(s.Name), ".txt"), func(t *testing.T) {
			t.Parallel()
			calm := play(t, s, mode{})
			for at := 1; at <= calm.changes; at++ {
				for i := range fates {
					f := fates[i]
					f.strict = *allFates
					if !*allFates && (number+at)%len(fates) != i {
						continue
					}
					t.Run(fmt.Sprintf("%s-%d", f.name, at), func(t *testing.T) {
						t.Parallel()
						got := play(t, s, mode{fate: &f, fateAt: at})
						if !got.broken && !f.diverges() && !maps.Equal(got.starts, calm.starts) {
							t.Errorf("%s was %s: started\n%v, otherwise\n%v\n%s", got.fated, f.name, got.starts,
								calm.starts, got.trace)
						}
					})
				}
			}
		})
	}
}
