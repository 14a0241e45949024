package rules

import (
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"strings"
	"unicode/utf8"
)

const (
	maxColumns = 120 // a tab counts as one
	// longText is the minimum length of a string whose line may be longer than maxColumns. Before a shorter string the
	// line can be broken.
	longText = 60
)

// Lines finds the lines of Go files that are longer than maxColumns. Lines of raw strings and of long strings are
// allowed.
func Lines(files fs.FS) (violations []string, read int, err error) {
	every := func(string, fs.DirEntry) bool { return true }
	var failed error
	for _, dir := range []string{"cmd", "docs", "internal", "test", "tools"} {
		n, err := eachSource(files, dir, every, func(file source) {
			name := file.at(file.File).Filename
			text, err := fs.ReadFile(files, name)
			if err != nil {
				failed = err
				return
			}
			long := linesOfTexts(file)
			for i, line := range strings.Split(string(text), "\n") {
				if columns := utf8.RuneCountInString(line); columns > maxColumns && !long[i+1] {
					violations = append(violations,
						fmt.Sprintf("%s:%d: has %d columns, the most is %d", name, i+1, columns, maxColumns))
				}
			}
		})
		read += n
		if err == nil {
			err = failed
		}
		if err != nil {
			return nil, read, err
		}
	}
	return violations, read, nil
}

// linesOfTexts returns the lines of a file that may be long because breaking them would break a text.
func linesOfTexts(file source) map[int]bool {
	lines := map[int]bool{}
	ast.Inspect(file.File, func(n ast.Node) bool {
		text, ok := n.(*ast.BasicLit)
		if !ok || text.Kind != token.STRING {
			return true
		}
		first, last := file.at(text).Line, file.set.Position(text.End()).Line
		if first == last && len(text.Value) < longText {
			return true
		}
		for line := first; line <= last; line++ {
			lines[line] = true
		}
		return true
	})
	return lines
}
