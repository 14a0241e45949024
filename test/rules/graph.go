package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// Package is the output of `go list` for one package.
type Package struct {
	ImportPath string
	Doc        string   // first sentence of the package comment
	GoFiles    []string // without tests
	Imports    []string // of GoFiles
	Module     *struct{ Path string }
}

// List lists every package of the module in dir and all packages that they import. It also lists packages that do not
// build, because only their imports are needed.
func List(dir string) ([]Package, error) {
	cmd := exec.Command("go", "list", "-e", "-deps", "-tags", "grpcnotrace",
		"-json=ImportPath,Doc,GoFiles,Imports,Module", "./...")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w: %s", err, stderr.String())
	}
	var pkgs []Package
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var p Package
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs, nil
		} else if err != nil {
			return nil, fmt.Errorf("parse list of packages: %w", err)
		}
		pkgs = append(pkgs, p)
	}
}

// Comments returns a message for each package of the module that has code but no package comment.
func Comments(pkgs []Package) []string {
	var out []string
	for _, p := range pkgs {
		if p.Module == nil || p.Module.Path != Module || len(p.GoFiles) == 0 {
			continue
		}
		if p.Doc == "" {
			out = append(out,
				fmt.Sprintf(
					"%s has no package comment: add a doc.go that says what it owns, what it reads, its states and its lock order", p.ImportPath))
		}
	}
	return out
}

// shunned are the libraries that the product must not import. Each of them costs megabytes of binary and memory, or is
// the program that this agent replaces.
var shunned = []string{
	"k8s.io/kubernetes",
	"k8s.io/client-go/kubernetes",
	"k8s.io/client-go/informers",
	"k8s.io/client-go/listers",
	"golang.org/x/net/trace", // calls methods by name, so that the linker cannot remove unused methods
}

// Shunned returns a message for each product package that imports one of the shunned libraries, directly or through
// another library.
func Shunned(pkgs []Package) []string {
	byPath := map[string]Package{}
	for _, p := range pkgs {
		byPath[p.ImportPath] = p
	}
	var out []string
	for _, p := range pkgs {
		if _, ok := productPath(p.ImportPath); !ok {
			continue
		}
		for _, imp := range p.Imports {
			if _, own := productPath(imp); own {
				continue // that package is checked on its own
			}
			if chain := pathToShunned(byPath, imp, map[string]bool{}); chain != nil {
				out = append(out,
					fmt.Sprintf(
						"%s imports %s, which the product does without: use a rest.RESTClient with the scheme of internal/api/client, or write the part that is needed",
						p.ImportPath,
						strings.Join(chain, " → "),
					))
			}
		}
	}
	slices.Sort(out)
	return out
}

// pathToShunned finds a chain of imports from a package to a shunned one.
func pathToShunned(byPath map[string]Package, from string, seen map[string]bool) []string {
	for _, s := range shunned {
		if from == s || strings.HasPrefix(from, s+"/") {
			return []string{from}
		}
	}
	if seen[from] {
		return nil
	}
	seen[from] = true
	for _, imp := range byPath[from].Imports {
		if chain := pathToShunned(byPath, imp, seen); chain != nil {
			return append([]string{from}, chain...)
		}
	}
	return nil
}

var namesUpstream = regexp.MustCompile(`(?m)^.*\bk8s\.io/kubernetes\s.*$`)

// GoMod returns a message for each line of the product's go.mod that names upstream's module.
func GoMod(text string) []string {
	var out []string
	for _, line := range namesUpstream.FindAllString(text, -1) {
		out = append(out,
			fmt.Sprintf("go.mod names upstream (%s): what needs it lives in a module of its own under test/",
				strings.TrimSpace(line)))
	}
	return out
}
