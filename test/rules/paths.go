package rules

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
)

// quotedPath is a path of the repository in backticks. Those of packages in tables begin with their room.
var quotedPath = regexp.MustCompile("`((?:internal|cmd|test|tools|docs|pods|runtime|storage|resources|host|api|serve)" +
	"(?:/[a-z0-9_.-]+)+)`")

// Paths returns a message for each path in a document that does not exist, and the number of all paths.
func Paths(root fs.FS, document string) (violations []string, found int, err error) {
	data, err := fs.ReadFile(root, document)
	if err != nil {
		return nil, 0, fmt.Errorf("read document: %w", err)
	}
	for i, line := range strings.Split(string(data), "\n") {
		for _, m := range quotedPath.FindAllStringSubmatch(line, -1) {
			found++
			_, err := fs.Stat(root, m[1])
			if errors.Is(err, fs.ErrNotExist) {
				_, err = fs.Stat(root, "internal/"+m[1])
			}
			if err != nil {
				violations = append(violations, fmt.Sprintf("%s:%d: %s does not exist", document, i+1, m[1]))
			}
		}
	}
	return violations, found, nil
}
