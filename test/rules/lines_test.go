package rules

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func TestLinesAreShort(t *testing.T) {
	violations, read, err := Lines(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	if read < 500 {
		t.Fatalf("read %d files: the directories moved", read)
	}
	report(t, violations)
}

func TestLinesCatches(t *testing.T) {
	long := strings.Repeat("x", maxColumns)
	files := fstest.MapFS{
		"cmd/a.go": {Data: []byte("package a\n\n// " + long + "\n")},
		"docs/a.go": {Data: []byte("package a\n\nvar text = `" + long + "\n" + long + "x\n`\n\nvar one = \"" + long +
			"\"\n")},
		"internal/a_test.go": {Data: []byte("package a\n\nvar " + long + " = `short\n`\n\nvar " + long + " = 1\n")},
		"test/a.go":          {Data: []byte("package a\n\n// " + strings.Repeat("─", maxColumns-3) + "\n")},
		"tools/a.go":         {Data: []byte("package a\n\nvar short, " + long + " = \"text\", 1\n")},
	}
	violations, read, err := Lines(files)
	if err != nil || read != len(files) {
		t.Fatalf("read %d files: %v", read, err)
	}
	want := []string{"cmd/a.go:3", "internal/a_test.go:6", "tools/a.go:3"}
	got := make([]string, len(violations))
	for i, v := range violations {
		got[i], _, _ = strings.Cut(v, ": ")
	}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}
