package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var (
	target   = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	makeLine = regexp.MustCompile("(?m)(?:^ +|`)make ([a-z][a-z-]*)")
)

// TestDocumentsNameTargetsThatExist checks that the make targets in the documents exist in the Makefile.
func TestDocumentsNameTargetsThatExist(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "mk", "*.mk"))
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, f := range append(files, filepath.Join(root, "Makefile")) {
		for _, m := range target.FindAllStringSubmatch(read(t, f), -1) {
			targets[m[1]] = true
		}
	}
	named := map[string]bool{}
	for _, doc := range []string{"README.md", "HACKING.md"} {
		for _, m := range makeLine.FindAllStringSubmatch(read(t, filepath.Join(root, doc)), -1) {
			named[m[1]] = true
			if !targets[m[1]] {
				t.Errorf("%s says `make %s`, and there is no such target", doc, m[1])
			}
		}
	}
	for _, must := range []string{"run", "test"} {
		if !named[must] {
			t.Errorf("no document says `make %s`", must)
		}
	}
}

// TestDocumentsLinkToFilesThatExist checks the links of the README.
func TestDocumentsLinkToFilesThatExist(t *testing.T) {
	for _, m := range regexp.MustCompile(`\]\(([^):#]+)\)`).FindAllStringSubmatch(read(t,
		filepath.Join(root, "README.md")), -1) {
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			t.Errorf("README.md links to %s: %v", m[1], err)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
