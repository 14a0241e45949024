package rules

import (
	"os"
	"testing"
	"testing/fstest"
)

func TestPathsInDocumentsExist(t *testing.T) {
	for _, document := range []string{"docs/architecture.md", "docs/glossary.md", "HACKING.md"} {
		violations, found, err := Paths(os.DirFS(root), document)
		if err != nil {
			t.Fatal(err)
		}
		if found < 3 {
			t.Errorf("%s: found %d paths", document, found)
		}
		report(t, violations)
	}
}

func TestPathsCatches(t *testing.T) {
	files := fstest.MapFS{
		"internal/pods/pod/pod.go": {},
		"a.md": {Data: []byte(
			"`pods/pod`, `internal/pods/pod/pod.go`, `pods` and `none/of`\n`internal/pods/gone`\n")},
	}
	violations, found, err := Paths(files, "a.md")
	if err != nil || found != 3 {
		t.Fatalf("found %d, %v", found, err)
	}
	check(t, violations, "a.md:2: internal/pods/gone does not exist")
}
