// Command parity prints how many rows of docs/parity are proven by tests that
// ran and passed, those that the agent differs from on purpose, the rows that are
// neither, and one line per subsystem.
//
// It reads the records that the tests of the last run left in
// KEELSON_PARITY_DIR; with -run it first runs the tests of the packages named
// (by default every package whose tests claim rows) afresh.
package main

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	inventory "keelson/docs/parity"
	"keelson/test/kit/parity"
)

func main() {
	dir := flag.String("dir", os.Getenv(parity.Env), "directory of the records")
	run := flag.Bool("run", false, "run the tests that prove rows first")
	rows := flag.Bool("tests", false, "list each claimed row with its tests")
	flag.Parse()
	if err := report(*dir, *run, *rows, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "parity:", err)
		os.Exit(1)
	}
}

func report(dir string, run, listTests bool, packages []string) error {
	if dir == "" {
		return fmt.Errorf("no directory of records: set %s or pass -dir", parity.Env)
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	var failed error
	if run {
		failed = runTests(root, dir, packages)
	}
	records, err := parity.Records(dir)
	if err != nil {
		return err
	}
	standings, err := parity.Standings(records, root, "keelson")
	if err != nil {
		return err
	}
	if listTests {
		for _, row := range inventory.Rows() {
			for _, t := range standings[row.ID].Tests {
				fmt.Printf("%s  %s  %s\n", row.ID, row.Capability, t)
			}
		}
	}
	fmt.Print(parity.Table(inventory.Rows(), standings))
	return failed
}

func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	mod := strings.TrimSpace(string(out))
	if filepath.Base(mod) != "go.mod" {
		return "", fmt.Errorf("find the module: the working directory is outside it")
	}
	return filepath.Dir(mod), nil
}

// runTests forgets what earlier runs recorded and runs the tests anew. A
// failed test is reported after the table: its rows are simply not proven.
func runTests(root, dir string, packages []string) error {
	if err := forget(dir); err != nil {
		return err
	}
	if len(packages) == 0 {
		var err error
		if packages, err = proving(root); err != nil {
			return err
		}
	}
	if len(packages) == 0 {
		return nil
	}
	cmd := exec.Command("go", append([]string{"test", "-count=1"}, packages...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), parity.Env+"="+dir)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run the tests that prove rows: %w", err)
	}
	return nil
}

func forget(dir string) error {
	old, err := filepath.Glob(filepath.Join(dir, "*.proven"))
	if err != nil {
		return fmt.Errorf("list parity records: %w", err)
	}
	for _, f := range old {
		if err := os.Remove(f); err != nil {
			return fmt.Errorf("remove parity record: %w", err)
		}
	}
	return nil
}

// claims matches the calls by which a test claims rows.
var claims = regexp.MustCompile(`\bparity\.(Proves|ProvesPart|Differs)\(`)

// proving lists the packages whose tests claim rows.
func proving(root string) ([]string, error) {
	found := map[string]bool{}
	err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && p != root {
			if strings.HasPrefix(e.Name(), ".") {
				return filepath.SkipDir
			}
			// A folder with a go.mod is a module of its own.
			if _, err := os.Stat(filepath.Join(p, "go.mod")); err == nil {
				return filepath.SkipDir
			}
		}
		if e.IsDir() || !strings.HasSuffix(e.Name(), "_test.go") {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		if claims.Match(text) {
			rel, err := filepath.Rel(root, filepath.Dir(p))
			if err != nil {
				return err
			}
			found["./"+path.Clean(filepath.ToSlash(rel))] = true
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for tests that prove rows: %w", err)
	}
	var list []string
	for p := range found {
		list = append(list, p)
	}
	slices.Sort(list)
	return list, nil
}
