package differ

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestDrawIsReproducible(t *testing.T) {
	text := func(h *History) string {
		data, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	one := text(Draw(7, 30, allPods))
	if again := text(Draw(7, 30, allPods)); one != again {
		t.Error("one seed draws two histories")
	}
	if one == text(Draw(8, 30, allPods)) {
		t.Error("two seeds draw one history")
	}
	all, alone := Draw(7, 30, allPods).Lives[12], drawLife(7, 12, allPods)
	if a, b := text(&History{Lives: []*Life{all}}), text(&History{Lives: []*Life{alone}}); a != b {
		t.Errorf("a life is another one when it is drawn alone:\n%s\n%s", a, b)
	}
}

func TestCopyHasNothingOfTheName(t *testing.T) {
	l := drawLife(3, 5, allPods)
	data, err := json.Marshal(l.copy("other"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data), l.Name) {
		t.Errorf("the copy still speaks of %s: %s", l.Name, data)
	}
}

// TestCopyTakesTheSameSteps copies lives as is done to run them again.
func TestCopyTakesTheSameSteps(t *testing.T) {
	for _, l := range Draw(3, 50, allPods).Lives {
		again := l.copy("other")
		for i, a := range l.Acts {
			for k, s := range a.Steps {
				want := strings.ReplaceAll(s.String(), l.Name, "other")
				if got := again.Acts[i].Steps[k].String(); got != want {
					t.Errorf("%s: step %q is copied as %q", l.Name, want, got)
				}
			}
		}
	}
}

func TestFlatten(t *testing.T) {
	a, err := flatten([]byte(`{"c":[{"name":"x","v":1},{"name":"y","v":2}],"e":{},"l":[1,2]}`))
	if err != nil {
		t.Fatal(err)
	}
	b, err := flatten([]byte(`{"c":[{"name":"y","v":3},{"name":"x","v":1}],"e":{},"l":[1]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(unlike(a, b), " "); got != "c[y].v l[1]" {
		t.Errorf("differ at %q, want c[y].v l[1]", got)
	}
	if a.at("c[y].v") != "2" || b.at("l[1]") != absent {
		t.Errorf("leaves are %v and %v", a, b)
	}
}

func TestEveryCutLeavesALife(t *testing.T) {
	l := drawLife(1, 14, allPods)
	n := 0
	for _, c := range cuts(l) {
		smaller := c.apply(l)
		if smaller == nil {
			continue
		}
		n++
		before, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		after, err := json.Marshal(smaller)
		if err != nil {
			t.Fatal(err)
		}
		if len(after) >= len(before) {
			t.Errorf("leaving out %s makes a life no smaller", c.what)
		}
		if smaller.Acts[0].Steps[0].Verb != create {
			t.Errorf("leaving out %s leaves a pod that is never created", c.what)
		}
	}
	if n < 10 {
		t.Errorf("%d parts can be left out, want 10 at least", n)
	}
}
