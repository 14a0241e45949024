package parity

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Place is where the sources under root make the claim of this record: the test,
// or the scenario. It is empty if the record is stale: the test was removed or renamed,
// or does not name the row any more. Cases of one test are one place, so that an old
// name of one of them does not count as another part.
//
// Where a test runs scenarios, the file that its case is named after makes the
// claim in a line that begins with "rows:", "part:" or "differs:".
func (r Record) Place(root, module string) (string, error) {
	rel, ok := strings.CutPrefix(r.Package, module)
	if !ok {
		return "", nil
	}
	dir := filepath.Join(root, filepath.FromSlash(rel))
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return "", fmt.Errorf("list sources of %s: %w", r.Package, err)
	}
	test, scenario, _ := strings.Cut(r.Test, "/")
	var hasTest, claimed bool
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return "", fmt.Errorf("read sources of %s: %w", r.Package, err)
		}
		hasTest = hasTest || strings.Contains(string(text), "func "+test+"(")
		claimed = claimed || r.claimedBy(string(text))
	}
	if !hasTest {
		return "", nil
	}
	inScenario, err := r.inScenario(filepath.Join(dir, "testdata", scenario+".txt"))
	switch {
	case err != nil:
		return "", err
	case inScenario:
		return r.Package + " " + r.Test, nil
	case claimed:
		return r.Package + " " + test, nil
	}
	return "", nil
}

// notWhole matches claims of a part of a row and of a difference.
var notWhole = regexp.MustCompile(`\b(ProvesPart|Differs)\([^)]*\)`)

// claimedBy reports whether a source makes the claim. The row of a claim of a whole row may
// be in a table; the other claims name their row in the call.
func (r Record) claimedBy(source string) bool {
	switch {
	case r.Decision != "":
		return strings.Contains(source, fmt.Sprintf("Differs(t, %q, %q)", r.Row, r.Decision))
	case r.Parts > 0:
		return strings.Contains(source, fmt.Sprintf("ProvesPart(t, %d, %q)", r.Parts, r.Row))
	}
	return strings.Contains(notWhole.ReplaceAllString(source, ""), strconv.Quote(r.Row))
}

// inScenario reports whether the scenario in the file makes the claim; a file that
// does not exist claims nothing.
func (r Record) inScenario(file string) (bool, error) {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("read scenario: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		head, value, _ := strings.Cut(line, ":")
		words := strings.Fields(value)
		switch {
		case r.Decision != "":
			if head == "differs" && slices.Equal(words, []string{r.Row, r.Decision}) {
				return true, nil
			}
		case r.Parts > 0:
			if head == "part" && slices.Equal(words, []string{strconv.Itoa(r.Parts), r.Row}) {
				return true, nil
			}
		case head == "rows" && slices.Contains(words, r.Row):
			return true, nil
		}
	}
	return false, nil
}
