package rules

import (
	"fmt"
	"go/ast"
	"io/fs"
	"strings"
)

// maxFields is the maximum number of fields of a struct. Fields of an embedded struct count for that struct.
const maxFields = 25

// Sizes finds the struct types of the product that have more fields than maxFields.
func Sizes(files fs.FS) (violations []string, read int, err error) {
	product := func(p string, _ fs.DirEntry) bool { return !strings.HasSuffix(p, "_test.go") }
	for _, room := range []string{"cmd", "internal"} {
		n, err := eachSource(files, room, product, func(file source) {
			ast.Inspect(file.File, func(n ast.Node) bool {
				spec, ok := n.(*ast.TypeSpec)
				if !ok {
					return true
				}
				if s, ok := spec.Type.(*ast.StructType); ok && countFields(s) > maxFields {
					violations = append(
						violations,
						fmt.Sprintf("%s: %s has %d fields, the most is %d: make two types of it",
							file.at(spec), spec.Name, countFields(s), maxFields),
					)
				}
				return true
			})
		})
		read += n
		if err != nil {
			return nil, read, err
		}
	}
	return violations, read, nil
}

// countFields returns the number of fields. A line may declare several.
func countFields(s *ast.StructType) (n int) {
	for _, f := range s.Fields.List {
		n += max(len(f.Names), 1)
	}
	return n
}
