package rules

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// claimed holds the claims of the tests about one row of the parity inventory.
type claimed struct {
	whole, differs []string         // the tests
	parts          map[int][]string // by the number of tests that prove the row together
}

// claims holds the claims of all tests by row.
type claims map[string]*claimed

func (c claims) of(row string) *claimed {
	if c[row] == nil {
		c[row] = &claimed{parts: map[int][]string{}}
	}
	return c[row]
}

// Claims finds rows with inconsistent claims, whether or not the tests pass: the number of parts differs from the
// number that they state, or the row is claimed in two ways.
func Claims(files fs.FS) (violations []string, read int, err error) {
	all := claims{}
	err = fs.WalkDir(files, ".", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !e.IsDir():
		case path == ".git" || path == "test/kit/parity": // its tests make claims to test the package itself
			return fs.SkipDir
		default:
			return nil
		}
		scenario := strings.Contains(path, "testdata/") && strings.HasSuffix(path, ".txt")
		if !scenario && !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		read++
		if scenario {
			all.readHead(path, string(text))
			return nil
		}
		return all.readTests(path, text)
	})
	return all.violations(), read, err
}

func (c claims) violations() (out []string) {
	for _, row := range slices.Sorted(maps.Keys(c)) {
		r := c[row]
		for n, tests := range r.parts {
			if len(tests) != n {
				out = append(out, fmt.Sprintf("%s is proven by %d tests together, and %d say so: %s",
					row, n, len(tests), strings.Join(tests, ", ")))
			}
		}
		ways := len(r.parts)
		for _, tests := range [][]string{r.whole, r.differs} {
			if len(tests) > 0 {
				ways++
			}
		}
		if ways > 1 {
			out = append(out, fmt.Sprintf("%s is claimed in %d ways: whole by %v, in parts by %v, as differing by %v",
				row, ways, r.whole, r.parts, r.differs))
		}
	}
	return out
}

var headLine = regexp.MustCompile(`(?m)^(rows|part|differs): (.*)$`)

// readHead reads the head of a scenario.
func (c claims) readHead(path, text string) {
	head, _, _ := strings.Cut(text, "\n\n")
	for _, m := range headLine.FindAllStringSubmatch(head, -1) {
		words := strings.Fields(m[2])
		switch m[1] {
		case "rows":
			for _, row := range words {
				c.of(row).whole = append(c.of(row).whole, path)
			}
		case "part":
			if n, err := strconv.Atoi(words[0]); err == nil && len(words) == 2 {
				c.of(words[1]).parts[n] = append(c.of(words[1]).parts[n], path)
			}
		case "differs":
			c.of(words[0]).differs = append(c.of(words[0]).differs, path)
		}
	}
}

// readTests reads the calls of parity in the tests of a file.
func (c claims) readTests(path string, text []byte) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		test := filepath.Dir(path) + "." + f.Name.Name
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				c.readCall(test, call)
			}
			return true
		})
	}
	return nil
}

func (c claims) readCall(test string, call *ast.CallExpr) {
	fun, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || nameOf(fun.X) != "parity" {
		return
	}
	var words []string
	for _, arg := range call.Args[1:] {
		lit, ok := arg.(*ast.BasicLit)
		if !ok {
			return
		}
		words = append(words, strings.Trim(lit.Value, `"`))
	}
	switch fun.Sel.Name {
	case "Proves":
		for _, row := range words {
			c.of(row).whole = append(c.of(row).whole, test)
		}
	case "ProvesPart":
		if n, err := strconv.Atoi(words[0]); err == nil && !slices.Contains(c.of(words[1]).parts[n], test) {
			c.of(words[1]).parts[n] = append(c.of(words[1]).parts[n], test)
		}
	case "Differs":
		c.of(words[0]).differs = append(c.of(words[0]).differs, test)
	}
}
