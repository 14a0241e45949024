package parity

import (
	"os"
	"path/filepath"
	"testing"
)

func TestJudge(t *testing.T) {
	whole := placed{Record{Package: "m/a", Test: "TestWhole"}, "m/a TestWhole"}
	part := func(test string, of int) placed {
		return placed{Record{Package: "m/a", Test: test, Parts: of}, "m/a " + test}
	}
	differs := func(test, decision string) placed {
		return placed{Record{Package: "m/a", Test: test, Decision: decision}, "m/a " + test}
	}
	for _, c := range []struct {
		name     string
		claims   []placed
		proven   bool
		decision string
		problem  string
	}{
		{name: "one test proves it", claims: []placed{whole}, proven: true},
		{name: "two tests prove it, each of them", claims: []placed{whole, whole}, proven: true},
		{name: "all parts are there", claims: []placed{part("TestA", 2), part("TestB", 2)}, proven: true},
		{name: "a part is missing", claims: []placed{part("TestA", 3), part("TestB", 3)},
			problem: "2 of the 3 tests that prove it together passed"},
		{name: "one test counts once", claims: []placed{part("TestA", 2), part("TestA", 2)},
			problem: "1 of the 2 tests that prove it together passed"},
		{name: "more parts than were said", claims: []placed{part("TestA", 2), part("TestB", 2), part("TestC", 2)},
			problem: "3 tests say that 2 prove it together"},
		{name: "parts do not agree on their number", claims: []placed{part("TestA", 2), part("TestB", 3), part("TestC", 2)},
			problem: "its tests do not agree on how many of them prove it together: 2, 3"},
		{name: "one test does what others do together", claims: []placed{part("TestA", 3), whole}, proven: true},
		{name: "it differs", claims: []placed{differs("TestA", "0005")}, decision: "0005"},
		{name: "two tests show how it differs", claims: []placed{differs("TestA", "0005"), differs("TestB", "0005")}, decision: "0005"},
		{name: "it differs by two decisions", claims: []placed{differs("TestA", "0005"), differs("TestB", "0003")},
			problem: "differs by more than one decision: 0003, 0005"},
		{name: "it is proven and differs", claims: []placed{whole, differs("TestA", "0005")},
			problem: "one test proves it and another shows that it differs by 0005"},
		{name: "a part is proven and it differs", claims: []placed{part("TestA", 2), differs("TestB", "0005")},
			problem: "one test proves it and another shows that it differs by 0005"},
	} {
		got := judge(c.claims)
		if got.Proven != c.proven || got.Decision != c.decision || got.Problem != c.problem {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// Two cases of one test are one part, two scenarios are two, and a claim that the
// sources do not make any more counts for nothing.
func TestStandings(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"a_test.go":          "package a\nfunc TestA(t *testing.T) { parity.ProvesPart(t, 2, \"RT-01\") }\n",
		"testdata/one.txt":   "part: 2 RT-02\n",
		"testdata/other.txt": "part: 2 RT-02\n",
	} {
		file := filepath.Join(root, "a", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Standings([]Record{
		{Row: "RT-01", Package: "m/a", Test: "TestA/case", Parts: 2},
		{Row: "RT-01", Package: "m/a", Test: "TestA/renamed", Parts: 2},
		{Row: "RT-02", Package: "m/a", Test: "TestA/one", Parts: 2},
		{Row: "RT-02", Package: "m/a", Test: "TestA/other", Parts: 2},
		{Row: "RT-03", Package: "m/a", Test: "TestGone"},
	}, root, "m")
	if err != nil {
		t.Fatal(err)
	}
	if s := got["RT-01"]; s.Proven || s.Problem != "1 of the 2 tests that prove it together passed" {
		t.Errorf("two cases of one test: %+v", s)
	}
	if s := got["RT-02"]; !s.Proven {
		t.Errorf("two scenarios: %+v", s)
	}
	if s, ok := got["RT-03"]; ok {
		t.Errorf("a test that is gone: %+v", s)
	}
}
