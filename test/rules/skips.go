package rules

import (
	"fmt"
	"go/ast"
	"io/fs"
	"path"
	"slices"
)

// Skips finds calls of the Skip methods of package testing. Tests must skip through test/kit/need, where continuous
// integration can turn a skip into a failure. Other modules are ignored, because they cannot import that package.
func Skips(files fs.FS) (violations []string, read int, err error) {
	importsNeed := func(p string, e fs.DirEntry) bool {
		if !e.IsDir() || p == "." {
			return true
		}
		_, err := fs.Stat(files, path.Join(p, "go.mod"))
		return err != nil && p != ".git" && p != "test/kit/need"
	}
	read, err = eachSource(files, ".", importsNeed, func(file source) {
		ast.Inspect(file.File, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			f, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, f.Sel.Name) {
				return true
			}
			if on, ok := f.X.(*ast.Ident); !ok || on.Name != "need" {
				violations = append(
					violations,
					fmt.Sprintf(
						"%s: a bare %s: call need.Skip or need.Root of test/kit/need",
						file.at(call),
						f.Sel.Name,
					),
				)
			}
			return true
		})
	})
	return violations, read, err
}
