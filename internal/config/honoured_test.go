package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1beta1 "k8s.io/kubelet/config/v1beta1"
)

// settledHere are the fields that no other package reads, and why.
var settledHere = map[string]string{
	"featureGates":                 "becomes Gates",
	"mergeDefaultEvictionSettings": "decides what evictionHard is",
	"hairpinMode":                  "has no effect upstream either; it is checked",
	"iptablesDropBit":              "has no effect upstream either; it is checked",
	"iptablesMasqueradeBit":        "has no effect upstream either; it is checked",
	"runOnce":                      "is refused when true",
	"showHiddenMetricsForVersion":  "the last release hid nothing; it is checked",
}

// field is one value that an operator can set.
type field struct {
	path string // as in the file, such as authentication.webhook.enabled
	name string // of the Go field
}

// fieldsOf lists the fields of a struct, including those of nested structs.
func fieldsOf(t reflect.Type, prefix string) []field {
	var out []field
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "kind" || name == "apiVersion" {
			continue
		}
		of := f.Type
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if f.Anonymous && name == "" {
			out = append(out, fieldsOf(of, prefix)...)
			continue
		}
		if of.Kind() == reflect.Struct && !readsItself(of) {
			out = append(out, fieldsOf(of, prefix+name+".")...)
			continue
		}
		out = append(out, field{prefix + name, f.Name})
	}
	return out
}

// readsItself reports whether a struct decodes itself, and so is one value in the file.
func readsItself(t reflect.Type) bool {
	_, own := reflect.PointerTo(t).MethodByName("UnmarshalJSON")
	return own
}

// selected returns the names of all fields that the packages read.
func selected(t *testing.T, dirs ...string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	inspect(t, func(n ast.Node) {
		if s, ok := n.(*ast.SelectorExpr); ok {
			out[s.Sel.Name] = true
		}
	}, dirs...)
	return out
}

// inspect calls visit for each node of the syntax trees of the packages, without their tests.
func inspect(t *testing.T, visit func(ast.Node), dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("sources of %s: %v, %v", dir, files, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(tree, func(n ast.Node) bool {
				visit(n)
				return true
			})
		}
	}
}

// claimedRows returns the rows of the parity inventory that a test claims to prove.
func claimedRows(t *testing.T, root string) map[string]bool {
	t.Helper()
	rows := map[string]bool{}
	claim, row := regexp.MustCompile(`parity\.Proves(?:Part)?\(t,([^)]*)\)`), regexp.MustCompile(`"([A-Z]+-\d+)"`)
	head := regexp.MustCompile(`(?m)^(?:rows|part): (.*)$`) // of a scenario of test/script
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		scenario := strings.HasSuffix(path, ".txt") && filepath.Base(filepath.Dir(path)) == "testdata"
		if err != nil || !strings.HasSuffix(path, "_test.go") && !scenario {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range claim.FindAllSubmatch(text, -1) {
			for _, r := range row.FindAllSubmatch(m[1], -1) {
				rows[string(r[1])] = true
			}
		}
		for _, m := range head.FindAllSubmatch(text, -1) {
			for _, r := range strings.Fields(string(m[1])) {
				rows[r] = rows[r] || scenario
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestEveryFieldIsReadOrReported checks all fields of the configuration. A field is either read by
// the packages that build the agent, and has a row of the parity inventory that a test proves, or
// it is reported at the start as without effect.
func TestEveryFieldIsReadOrReported(t *testing.T) {
	fields := fieldsOf(reflect.TypeFor[v1beta1.KubeletConfiguration](), "")
	if len(fields) < 130 {
		t.Fatalf("%d fields", len(fields))
	}
	read := selected(t, "../app", "preflight", "reload", "settings", "../../cmd/kubelet")
	claimed := claimedRows(t, "../..")
	text, err := os.ReadFile("../../docs/parity/01-config-and-flags.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	rowsOf := func(path string) []string {
		var rows []string
		for line := range strings.Lines(string(text)) {
			cells := strings.Split(line, "|")
			if len(cells) < 5 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "CFG-") {
				continue
			}
			for _, named := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[3], -1) {
				// A row names a field, a part of it after a dot, or the group that it is in.
				if named[1] == path || strings.HasPrefix(path, named[1]+".") ||
					strings.HasPrefix(named[1], ".") && strings.HasSuffix(path, named[1]) ||
					strings.HasSuffix(path, "."+named[1]) && strings.HasPrefix(named[1], "cache") {
					rows = append(rows, strings.TrimSpace(cells[1]))
				}
			}
		}
		return rows
	}
	for _, f := range fields {
		known[f.path] = true
		unbuilt := slices.ContainsFunc(unbuiltFields, func(u string) bool {
			return f.path == u ||
				strings.HasPrefix(f.path, u+".")
		})
		if unbuilt {
			continue
		}
		if !read[f.name] && settledHere[f.path] == "" {
			t.Errorf("%s: it is not read, and it is not named as one without effect", f.path)
		}
		rows := rowsOf(f.path)
		if !slices.ContainsFunc(rows, func(r string) bool { return claimed[r] }) {
			t.Errorf("%s: no test proves a row about it (rows %v), and it is not named as one without effect", f.path,
				rows)
		}
	}
	for _, u := range unbuiltFields {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(known)), func(f string) bool {
			return f == u ||
				strings.HasPrefix(f, u+".")
		}) {
			t.Errorf("%s is declared to be without effect and is no field", u)
		}
	}
	for f := range settledHere {
		if !known[f] {
			t.Errorf("%s is no field", f)
		}
	}
}
