package parity

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Record says that a test which names a row ran, and passed or skipped.
type Record struct {
	Row         string
	Package     string // import path
	Test        string // with subtests: TestX/case
	Parts       int    // how many tests prove the row together; 0: this one does
	Decision    string // by which the agent differs from the row; empty: it does not
	Skipped     bool   // the test skipped, which proves nothing
	Commit      string // the commit that was tested, with -changed where the checkout differed from it
	Fingerprint string // of the code that the test goes through (Fingerprints)
}

const recordSuffix = ".proven"

// name is different for every pair of a row and a test, so that test binaries that
// run at the same time never write the same file.
func (r Record) name() string {
	h := fnv.New64a()
	h.Write([]byte(r.Package + "\x00" + r.Test))
	return fmt.Sprintf("%s.%016x%s", r.Row, h.Sum64(), recordSuffix)
}

func (r Record) write(dir string) error {
	path := filepath.Join(dir, r.name())
	fields := []string{
		r.Row,
		r.Package,
		r.Test,
		strconv.Itoa(r.Parts),
		r.Decision,
		strconv.FormatBool(r.Skipped),
		r.Commit,
		r.Fingerprint,
	}
	text := strings.Join(fields, "\t") + "\n"
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
		rec, err := parseRecord(strings.TrimSuffix(string(text), "\n"))
		if err != nil {
			return nil, fmt.Errorf("read parity record %s: %w", path, err)
		}
		records = append(records, rec)
	}
	return records, nil
}

func parseRecord(line string) (Record, error) {
	fields := strings.Split(line, "\t")
	switch len(fields) {
	case 3, 5: // an older form, which names no code: the record is void
		return Record{
			Row:     fields[0],
			Package: fields[1],
			Test:    fields[2],
		}, nil
	case 8:
	default:
		return Record{},
			fmt.Errorf("%d fields, want row, package, test, parts, decision, skipped, commit and fingerprint",
				len(fields))
	}
	parts, err := strconv.Atoi(fields[3])
	if err != nil {
		return Record{}, fmt.Errorf("number of parts: %w", err)
	}
	skipped, err := strconv.ParseBool(fields[5])
	if err != nil {
		return Record{}, fmt.Errorf("whether it skipped: %w", err)
	}
	return Record{
		Row:         fields[0],
		Package:     fields[1],
		Test:        fields[2],
		Parts:       parts,
		Decision:    fields[4],
		Skipped:     skipped,
		Commit:      fields[6],
		Fingerprint: fields[7],
	}, nil
}
