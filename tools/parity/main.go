// Command parity prints how many rows of docs/parity are proven by tests that ran and passed, the rows from which the
// agent differs on purpose, the rows that are neither, and one line per subsystem.
//
// It reads the records that the tests of the last run left in KEELSON_PARITY_DIR. With -run it first runs the tests of
// the named packages again (by default of every package whose tests claim rows), also those that need a real runtime, a
// cluster or a guest machine.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
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
	run := flag.Bool("run", false, "run the tests that prove rows first, those with the build tags e2e and guest too")
	guest := flag.String("guest", "", "program that runs a test binary in a guest machine, for -run")
	rows := flag.Bool("tests", false, "list each claimed row with its tests")
	flag.Parse()
	if err := report(*dir, *run, *guest, *rows, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "parity:", err)
		os.Exit(1)
	}
}

func report(dir string, run bool, guest string, listTests bool, packages []string) error {
	if dir == "" {
		return fmt.Errorf("no directory of records: set %s or pass -dir", parity.Env)
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	var failed error
	if run {
		failed = runTests(root, dir, guest, packages)
	}
	records, err := parity.Records(dir)
	if err != nil {
		return err
	}
	fmt.Printf("At commit %s:\n", parity.Commit(root))
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

// runTests removes the records of earlier runs and runs the tests again: those without a build tag first, then those of
// each tag. A failed test is reported after the table: its rows are not proven.
func runTests(root, dir, guest string, packages []string) error {
	if err := forget(dir); err != nil {
		return err
	}
	claiming, err := proving(root)
	if err != nil {
		return err
	}
	var failed []error
	for _, tag := range []string{"", "e2e", "guest"} {
		var list []string
		for _, p := range claiming[tag] {
			if len(packages) == 0 || slices.Contains(packages, p) {
				list = append(list, p)
			}
		}
		if len(list) == 0 {
			continue
		}
		args := []string{"test", "-count=1", "-timeout=60m"}
		if tag != "" {
			// One package at a time: each starts whole nodes.
			args = append(args, "-p=1", "-tags="+tag)
		}
		if tag == "guest" {
			args = append(args, "-exec="+guest)
		}
		fmt.Fprintf(os.Stderr, "parity: running the tests of %d packages%s\n", len(list), with(tag))
		cmd := exec.Command("go", append(args, list...)...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), parity.Env+"="+dir)
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			failed = append(failed, fmt.Errorf("run the tests that prove rows%s: %w", with(tag), err))
		}
	}
	return errors.Join(failed...)
}

func with(tag string) string {
	if tag == "" {
		return ""
	}
	return " with build tag " + tag
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

// constraint matches the build tag that a test file asks for.
var constraint = regexp.MustCompile(`(?m)^//go:build (\w+)$`)

// proving lists the packages whose tests claim rows, by the build tag of those tests.
func proving(root string) (map[string][]string, error) {
	found := map[string]map[string]bool{}
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
		if !claims.Match(text) {
			return nil
		}
		rel, err := filepath.Rel(root, filepath.Dir(p))
		if err != nil {
			return err
		}
		tag := ""
		if m := constraint.FindSubmatch(text); m != nil {
			tag = string(m[1])
		}
		if found[tag] == nil {
			found[tag] = map[string]bool{}
		}
		found[tag]["./"+path.Clean(filepath.ToSlash(rel))] = true
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for tests that prove rows: %w", err)
	}
	lists := map[string][]string{}
	for tag, packages := range found {
		lists[tag] = slices.Sorted(maps.Keys(packages))
	}
	return lists, nil
}
