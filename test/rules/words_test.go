package rules

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// Words that are literary where the trade has a term are refused in Go files, documents and comments of scenarios.
func TestTextsUseTheTradesWords(t *testing.T) {
	violations, read, used, err := Words(os.DirFS(root), wordExceptions)
	if err != nil {
		t.Fatal(err)
	}
	if read < 1000 {
		t.Errorf("%d files were read", read)
	}
	report(t, violations)
	for _, e := range wordExceptions {
		if !used[e] {
			t.Errorf("the exception for %q in %s is not used any more: remove it", e.text, e.files)
		}
		if len(strings.Fields(e.why)) < 3 {
			t.Errorf("the exception for %q in %s has no reason", e.text, e.files)
		}
	}
}

func TestWordsCatches(t *testing.T) {
	files := fstest.MapFS{
		"a/a.go": {Data: []byte(`// Package a is told
// by lot, politely; old is by
// lot. Retold is another word.
package a

var notTold, toldUID, untold = "one that nobody knows", 'x', "nobody is allowed"

func bytold() { println(toldUID, 1) }

func aTestOfAWish() { byLot, by, wound_up, HTTPTold, windsUpper := 1, 2, 3, 4, 5 }
`)},
		"a/b.md":      {Data: []byte("# A pod that is\nwound\nup\n\nIt is terminated.\n")},
		"a/told.txt":  {Data: []byte("told")},
		".git/a.md":   {Data: []byte("told")},
		"b/listed.go": {Data: []byte("// Told is what it was told.\npackage b\n")},
	}
	except := []wordException{
		{files: "a/*.go", text: "nobody is allowed", why: "a test of exceptions"},
		{files: "b/listed.go", why: "a test of exceptions"},
	}
	violations, read, used, err := Words(files, except)
	if err != nil || read != 3 || len(used) != 2 {
		t.Fatalf("%d files, %v, used %v", read, err, used)
	}
	var got []string
	for _, v := range violations {
		got = append(got, v[:strings.Index(v, ": write")])
	}
	want := []string{
		`a/a.go:1: "told"`,
		`a/a.go:2: "by lot"`,
		`a/a.go:2: "by lot"`,
		`a/a.go:2: "politely"`,
		`a/a.go:6: "nobody"`,
		`a/a.go:6: the name notTold`,
		`a/a.go:6: the name toldUID`,
		`a/a.go:10: the name HTTPTold`,
		`a/a.go:10: the name aTestOfAWish`,
		`a/a.go:10: the name byLot`,
		`a/a.go:10: the name wound_up`,
		`a/b.md:2: "wound up"`,
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("caught\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Of a scenario only the comments are read: what it shows and its manifests are contents.
func TestWordsCatchesCommentsOfScenarios(t *testing.T) {
	files := fstest.MapFS{
		"a/testdata/a.txt": {Data: []byte(`# A pod is evicted by
# lot, and nobody
rows: told
# is told.
apply told.yaml
events told
----
# HELP told is shown
nobody

  # A pod that is wound
#
# up.

# Ends by

# lot: these are two comments.
-- a.yaml --
# told
-- b.sh --

# told
`)},
		"a/testdata/b.txt":      {Data: []byte("nobody\n#nobody")},
		"a/testdata/b/c.txt":    {Data: []byte("# told\r\n")},
		"a/testdata/d.txt.orig": {Data: []byte("# told\n")},
		"a/d.txt":               {Data: []byte("# told\n")},
		"a/mytestdata/d.txt":    {Data: []byte("# told\n")},
	}
	violations, read, _, err := Words(files, nil)
	if err != nil || read != 3 {
		t.Fatalf("%d files, %v", read, err)
	}
	var got []string
	for _, v := range violations {
		got = append(got, v[:strings.Index(v, ": write")])
	}
	want := []string{
		`a/testdata/a.txt:11: "wound up"`,
		`a/testdata/a.txt:1: "by lot"`,
		`a/testdata/a.txt:2: "nobody"`,
		`a/testdata/a.txt:4: "told"`,
		`a/testdata/b.txt:2: "nobody"`,
		`a/testdata/b/c.txt:1: "told"`,
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("caught\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
