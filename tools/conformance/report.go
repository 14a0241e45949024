package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// report has the fields of ginkgo's JSON report that are read.
type report struct {
	SpecReports []spec
}

type spec struct {
	ContainerHierarchyTexts []string
	LeafNodeText            string
	LeafNodeType            string
	State                   string
	Failure                 struct{ Message string }
}

// result is the result of a run by spec name. Specs that were not selected are in none of the lists.
type result struct {
	passed  []string
	failed  map[string]string // name → message
	skipped []string          // selected, but found unable to run here
	suite   []string          // what failed outside the specs
}

func readReport(file string) (result, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return result{}, fmt.Errorf("read report: %w", err)
	}
	var all []report
	if err := json.Unmarshal(data, &all); err != nil {
		return result{}, fmt.Errorf("read report %s: %w", file, err)
	}
	return sortOut(all), nil
}

func sortOut(all []report) result {
	res := result{failed: map[string]string{}}
	for _, r := range all {
		for _, s := range r.SpecReports {
			name := strings.TrimSpace(strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " "))
			switch {
			case s.LeafNodeType != "It":
				if s.State != "passed" && s.State != "skipped" {
					res.suite = append(res.suite, s.LeafNodeType+" "+s.State+": "+oneLine(s.Failure.Message))
				}
			case s.State == "passed":
				res.passed = append(res.passed, name)
			case s.State == "skipped" || s.State == "pending":
				if s.Failure.Message != "" { // else it was not selected
					res.skipped = append(res.skipped, name)
				}
			default:
				res.failed[name] = s.State + ": " + oneLine(s.Failure.Message)
			}
		}
	}
	slices.Sort(res.passed)
	slices.Sort(res.skipped)
	return res
}

var space = regexp.MustCompile(`\s+`)

func oneLine(message string) string {
	m := space.ReplaceAllString(strings.TrimSpace(message), " ")
	return m[:min(len(m), 300)]
}

// print prints failures and the count, and the specs of the known file that did
// not pass although they were selected.
func (r result) print(w io.Writer, known string) error {
	names := make([]string, 0, len(r.failed))
	for n := range r.failed {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		fmt.Fprintf(w, "FAILED %s\n       %s\n", n, r.failed[n])
	}
	for _, s := range r.suite {
		fmt.Fprintln(w, "SUITE", s)
	}
	if known != "" {
		data, err := os.ReadFile(known)
		if err != nil {
			return fmt.Errorf("read known specs: %w", err)
		}
		for line := range strings.Lines(string(data)) {
			n := strings.TrimSpace(line)
			_, failed := r.failed[n]
			if failed || slices.Contains(r.skipped, n) {
				fmt.Fprintln(w, "KNOWN TO PASS ELSEWHERE", n)
			}
		}
	}
	_, err := fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", len(r.passed), len(r.failed), len(r.skipped))
	return err
}
