package rules

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

func TestTypesAreSmall(t *testing.T) {
	violations, read, err := Sizes(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	if read < 500 {
		t.Errorf("%d files were read", read)
	}
	report(t, violations)
}

func TestSizesCatches(t *testing.T) {
	fields := func(n int) string { return strings.Repeat("_, _ int\n", n/2) + strings.Repeat("E\n", n%2) }
	got, read, err := Sizes(fstest.MapFS{
		"cmd/a.go":             {Data: []byte("package main\ntype most struct {\n" + fields(25) + "}\n")},
		"internal/b/b.go":      {Data: []byte("package b\ntype large struct {\n" + fields(26) + "}\n")},
		"internal/b/b_test.go": {Data: []byte("package b\ntype rig struct {\n" + fields(40) + "}\n")},
	})
	if err != nil || read != 2 {
		t.Fatalf("%d files, %v", read, err)
	}
	if len(got) != 1 || !strings.HasPrefix(got[0], "internal/b/b.go:2:6: large has 26 fields") {
		t.Errorf("caught %q", got)
	}
}
