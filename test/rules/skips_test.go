package rules

import (
	"os"
	"testing"
	"testing/fstest"
)

func TestSkipsGoThroughNeed(t *testing.T) {
	violations, read, err := Skips(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	if read < 500 {
		t.Errorf("%d files were read", read)
	}
	report(t, violations)
}

func TestSkipsCatches(t *testing.T) {
	for name, tc := range map[string]struct {
		file, text, want string
	}{
		"a method of testing": {
			file: "a/a_test.go",
			text: "package a\nfunc f(t T) { t.Skipf(\"no %s\", 1) }\n",
			want: "a/a_test.go:2:15: a bare Skipf",
		},
		"the package for it": {
			file: "a/a_test.go",
			text: "package a\nfunc f(t T) { need.Skip(t, \"no disk\") }\n",
		},
		"that package itself": {
			file: "test/kit/need/skip.go",
			text: "package need\nfunc f(t T) { t.Skip() }\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, _, err := Skips(fstest.MapFS{tc.file: {Data: []byte(tc.text)}})
			if err != nil {
				t.Fatal(err)
			}
			check(t, got, tc.want)
		})
	}
}
