package parity

import (
	"os"
	"path/filepath"
	"slices"
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
		{name: "more parts than were stated", claims: []placed{part("TestA", 2), part("TestB", 2), part("TestC", 2)},
			problem: "3 tests say that 2 prove it together"},
		{name: "parts do not agree on their number", claims: []placed{part("TestA", 2), part("TestB", 3), part("TestC", 2)},
			problem: "its tests do not agree on how many of them prove it together: 2, 3"},
		{name: "one test does what others do together", claims: []placed{part("TestA", 3), whole}, proven: true},
		{name: "it differs", claims: []placed{differs("TestA", "0005")}, decision: "0005"},
		{
			name:     "two tests show how it differs",
			claims:   []placed{differs("TestA", "0005"), differs("TestB", "0005")},
			decision: "0005",
		},
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

// Two cases of one test are one part, two scenarios are two parts, and a claim that the
// sources do not make any more is ignored.
func TestStandings(t *testing.T) {
	root := sources(t, map[string]string{
		"a/a_test.go":          "package a\nimport _ \"m/b\"\nfunc TestA(t *testing.T) { parity.ProvesPart(t, 2, \"RT-01\") }\n",
		"a/testdata/one.txt":   "part: 2 RT-02\n",
		"a/testdata/other.txt": "part: 2 RT-02\n",
		"b/b.go":               "package b\n",
	})
	a := fingerprint(t, root, "m/a")
	got, err := Standings([]Record{
		{Row: "RT-01", Package: "m/a", Test: "TestA/case", Parts: 2, Fingerprint: a},
		{Row: "RT-01", Package: "m/a", Test: "TestA/renamed", Parts: 2, Fingerprint: a},
		{Row: "RT-02", Package: "m/a", Test: "TestA/one", Parts: 2, Fingerprint: a},
		{Row: "RT-02", Package: "m/a", Test: "TestA/other", Parts: 2, Fingerprint: a},
		{Row: "RT-03", Package: "m/a", Test: "TestGone", Fingerprint: a},
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

// A record proves its row as long as the code that its test goes through does not change: its
// package, the packages that it imports, their test data, the versions of other modules and, for
// tests of the whole agent, the binary. A test that skipped proves nothing. Void records and
// skips are listed.
func TestStandingsOfSkippedAndVoidRecords(t *testing.T) {
	root := sources(t, map[string]string{
		"a/a_test.go":        "package a\nimport _ \"m/b\"\nfunc TestA(t *testing.T) { parity.Proves(t, \"RT-01\") }\n",
		"b/b.go":             "package b\n",
		"b/testdata/in.json": "{}\n",
		"c/c.go":             "package c\n",
		"test/e/e_test.go":   "package e\nfunc TestE(t *testing.T) { parity.Proves(t, \"RT-02\") }\n",
		"cmd/kubelet/k.go":   "package main\nimport _ \"m/c\"\n",
	})
	records := []Record{
		{Row: "RT-01", Package: "m/a", Test: "TestA", Fingerprint: fingerprint(t, root, "m/a")},
		{Row: "RT-02", Package: "m/test/e", Test: "TestE", Fingerprint: fingerprint(t, root, "m/test/e")},
	}
	for _, c := range []struct {
		name    string
		changed string
		void    []string
	}{
		{name: "nothing changed"},
		{name: "the test's own package", changed: "a/a_test.go", void: []string{"RT-01"}},
		{name: "a package that it imports", changed: "b/b.go", void: []string{"RT-01"}},
		{name: "test data of that", changed: "b/testdata/in.json", void: []string{"RT-01"}},
		{name: "what the binary alone imports", changed: "c/c.go", void: []string{"RT-02"}},
		{name: "the versions of modules", changed: "go.mod", void: []string{"RT-01", "RT-02"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.changed != "" {
				file := filepath.Join(root, c.changed)
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				write(t, file, string(text)+"\n\n")
				defer write(t, file, string(text))
			}
			got, err := Standings(records, root, "m")
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range []string{"RT-01", "RT-02"} {
				s := got[row]
				if void := slices.Contains(c.void, row); s.Proven == void || (len(s.Void) == 1) != void {
					t.Errorf("%s: %+v", row, s)
				}
			}
		})
	}

	records[0].Skipped = true
	got, err := Standings(records, root, "m")
	if err != nil {
		t.Fatal(err)
	}
	if s := got["RT-01"]; s.Proven || !slices.Equal(s.Skipped, []string{"m/a TestA"}) {
		t.Errorf("a test that skipped: %+v", s)
	}
}

// sources writes a module named m.
func sources(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	write(t, filepath.Join(root, "go.mod"), "module m\n")
	for name, text := range files {
		write(t, filepath.Join(root, name), text)
	}
	return root
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func fingerprint(t *testing.T, root, pkg string) string {
	t.Helper()
	sum, err := NewFingerprints(root, "m").Of(pkg)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}
