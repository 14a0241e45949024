package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
)

// source is a parsed Go file.
type source struct {
	*ast.File
	set *token.FileSet
}

// at is the file, line and column of a node.
func (s source) at(n ast.Node) token.Position { return s.set.Position(n.Pos()) }

// eachSource parses the Go files below a directory for which keep returns true, and returns their number. It skips
// directories for which keep returns false.
func eachSource(
	files fs.FS, dir string, keep func(p string, e fs.DirEntry) bool, look func(source),
) (read int, err error) {
	err = fs.WalkDir(files, dir, func(p string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !e.IsDir() && path.Ext(p) != ".go":
			return nil
		case !keep(p, e):
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		case e.IsDir():
			return nil
		}
		text, err := fs.ReadFile(files, p)
		if err != nil {
			return err
		}
		read++
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, p, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		look(source{File: file, set: set})
		return nil
	})
	return read, err
}
