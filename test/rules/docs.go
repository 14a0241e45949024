package rules

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// Docs returns a message for each directory below dir that has no doc.go with a package comment. This applies to
// packages and to rooms. A room has packages below it, and its only own file is a doc.go.
func Docs(root, dir string) ([]string, error) {
	dirs := map[string]bool{}
	top := filepath.Join(root, dir)
	err := filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		for at := filepath.Dir(path); at != top && !dirs[at]; at = filepath.Dir(at) {
			dirs[at] = true
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find packages: %w", err)
	}
	var out []string
	for path := range dirs {
		const mode = parser.ParseComments | parser.PackageClauseOnly
		doc, err := parser.ParseFile(token.NewFileSet(), filepath.Join(path, "doc.go"), nil, mode)
		if err == nil && doc.Doc != nil {
			continue
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return nil, fmt.Errorf("name package: %w", err)
		}
		out = append(out, fmt.Sprintf("%s has no doc.go with a package comment: add one that says what happens in it",
			filepath.ToSlash(name)))
	}
	slices.Sort(out)
	return out, nil
}
