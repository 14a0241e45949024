package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// compileWith runs the compiler with a script in place of the go command, and returns what it reported.
func compileWith(t *testing.T, script string) (string, error) {
	t.Helper()
	golang := filepath.Join(t.TempDir(), "go")
	if err := os.WriteFile(golang, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p := newProgress(out, time.Now())
	p.logged = time.Time{} // the line about the current step is due
	c := compiler{golang: golang, out: "bin", progress: p}
	failure := c.compile(t.Context())
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text), failure
}

func TestCompileProgress(t *testing.T) {
	reported, err := compileWith(t, `
case $1 in
list) echo 'go: downloading example.org/a v1.0.0' >&2; printf 'a\nb\nc\n' ;;
build) printf 'a\nb\n' >&2 ;;
esac`)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"fetching Go modules: 1 so far\n", "fetched 1 Go modules\n",
		"compiled 2 packages into bin/kubelet and bin/run\n"} {
		if !strings.Contains(reported, want) {
			t.Errorf("not reported: %q in\n%s", want, reported)
		}
	}
}

// All packages are counted, also those that are listed after the go command has closed its standard error.
func TestCompileCountsAllPackages(t *testing.T) {
	golang := filepath.Join(t.TempDir(), "go")
	if err := os.WriteFile(golang, []byte("#!/bin/sh\nexec 2>&-\nsleep 0.1\nprintf 'a\\nb\\nc\\n'\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	if n, err := (compiler{golang: golang}).count(t.Context()); err != nil || n != 3 {
		t.Errorf("counted %d packages (%v), not 3", n, err)
	}
}

func TestCompileUpToDate(t *testing.T) {
	if reported, err := compileWith(t, "echo a"); err != nil || reported != "" {
		t.Errorf("reported %q, %v", reported, err)
	}
}

func TestCompileErrors(t *testing.T) {
	_, err := compileWith(t,
		`[ $1 = list ] || { printf 'a\n# example.org/b\nb.go:1: undefined: x and y\n' >&2; exit 1; }`)
	if err == nil || !strings.Contains(err.Error(), "b.go:1: undefined: x and y") ||
		strings.Contains(err.Error(), "\na\n") {
		t.Errorf("failed with %v; want the compiler's lines, without the packages that are fine", err)
	}
	_, err = compileWith(t, `echo 'go: example.org/a: no route to host' >&2; exit 1`)
	if err == nil || !strings.Contains(err.Error(), "fetch Go modules") ||
		!strings.Contains(err.Error(), "no route to host") {
		t.Errorf("failed with %v; want the step and the cause", err)
	}
}
