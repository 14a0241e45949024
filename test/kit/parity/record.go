package parity

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Record says that a test which names a row ran and passed.
type Record struct {
	Row     string
	Package string // import path
	Test    string // with subtests: TestX/case
}

const recordSuffix = ".proven"

// name gives every (row, test) a file of its own, so that test binaries
// running side by side never write the same one.
func (r Record) name() string {
	h := fnv.New64a()
	h.Write([]byte(r.Package + "\x00" + r.Test))
	return fmt.Sprintf("%s.%016x%s", r.Row, h.Sum64(), recordSuffix)
}

func (r Record) write(dir string) error {
	path := filepath.Join(dir, r.name())
	text := strings.Join([]string{r.Row, r.Package, r.Test}, "\t") + "\n"
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		return fmt.Errorf("write parity record: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write parity record: %w", err)
	}
	return nil
}

func (r Record) remove(dir string) error {
	err := os.Remove(filepath.Join(dir, r.name()))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove parity record: %w", err)
	}
	return nil
}

// Records reads every record in dir. A directory that does not exist holds
// none.
func Records(dir string) ([]Record, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read parity records: %w", err)
	}
	var records []Record
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), recordSuffix) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read parity record: %w", err)
		}
		fields := strings.Split(strings.TrimSuffix(string(text), "\n"), "\t")
		if len(fields) != 3 {
			return nil, fmt.Errorf("read parity record %s: %d fields, want row, package and test", path, len(fields))
		}
		records = append(records, Record{Row: fields[0], Package: fields[1], Test: fields[2]})
	}
	return records, nil
}

// Stale tells whether the sources under root no longer hold the test of this
// record or no longer name its row beside it: the test was removed or renamed,
// or does not claim the row any more. Where a test runs scenarios, the file that
// its case is named after may name the row as well, in a line that begins with
// "rows:".
func (r Record) Stale(root, module string) (bool, error) {
	rel, ok := strings.CutPrefix(r.Package, module)
	if !ok {
		return true, nil
	}
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(rel), "*.go"))
	if err != nil {
		return false, fmt.Errorf("list sources of %s: %w", r.Package, err)
	}
	test, scenario, _ := strings.Cut(r.Test, "/")
	var hasTest bool
	hasRow, err := r.inScenario(filepath.Join(root, filepath.FromSlash(rel), "testdata", scenario+".txt"))
	if err != nil {
		return false, err
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return false, fmt.Errorf("read sources of %s: %w", r.Package, err)
		}
		hasTest = hasTest || strings.Contains(string(text), "func "+test+"(")
		hasRow = hasRow || strings.Contains(string(text), `"`+r.Row+`"`)
	}
	return !hasTest || !hasRow, nil
}

// inScenario reports whether the scenario in the file claims the row; a file that
// does not exist claims nothing.
func (r Record) inScenario(file string) (bool, error) {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("read scenario: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if rows, ok := strings.CutPrefix(line, "rows:"); ok && slices.Contains(strings.Fields(rows), r.Row) {
			return true, nil
		}
	}
	return false, nil
}
