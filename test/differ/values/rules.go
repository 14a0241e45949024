package values

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Rule states that some series differ, and why.
type Rule struct {
	Endpoint string
	Name     string // of the metric, or the field's path; * stands for anything, ? for one character
	Labels   string // label="value" of these series; empty: all
	How      string
	Why      string
	// Sometimes is set if the series do not differ in every run, or not on every machine.
	Sometimes bool
}

// Suffixes of the way in which series differ.
const (
	atTimes = ", at times"
	onV1    = ", on cgroup v1"
)

// ReadRules reads the rows of the table: endpoint, series, labels, how, why.
func ReadRules(text string) (out []Rule, err error) {
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 7 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`/") {
			continue
		}
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		r := Rule{Endpoint: cells[1], Name: cells[2], Labels: cells[3], How: cells[4], Why: cells[5]}
		for _, suffix := range []string{atTimes, onV1} {
			if how, ok := strings.CutSuffix(r.How, suffix); ok {
				r.How, r.Sometimes = how, true
			}
		}
		switch {
		case r.Why == "":
			return nil, fmt.Errorf("no reason is given for %s of %s", r.Name, r.Endpoint)
		case r.How != Missing && r.How != Extra && r.How != Unequal:
			return nil, fmt.Errorf("%s of %s differs in no way that there is: %q", r.Name, r.Endpoint, r.How)
		}
		out = append(out, r)
	}
	if len(out) == 0 {
		return nil, errors.New("no rules are listed")
	}
	return out, nil
}

// Covers reports whether a rule explains a finding.
func (r Rule) Covers(f Finding) bool {
	name, labels, _ := strings.Cut(f.Series, "{")
	return r.How == f.How && r.Endpoint == f.Endpoint && glob(r.Name).MatchString(name) &&
		(r.Labels == "" || glob("*"+r.Labels+"*").MatchString(labels))
}

func glob(pattern string) *regexp.Regexp {
	return regexp.MustCompile("^" + strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(pattern)) + "$")
}

// Judge returns the findings that no rule covers, and the rules that cover nothing although they apply in every run.
func Judge(findings []Finding, rules []Rule) (unexplained []Finding, idle []Rule) {
	used := make([]bool, len(rules))
	for _, f := range findings {
		covered := false
		for i, r := range rules {
			if r.Covers(f) {
				covered, used[i] = true, true
			}
		}
		if !covered {
			unexplained = append(unexplained, f)
		}
	}
	for i, r := range rules {
		if !used[i] && !r.Sometimes {
			idle = append(idle, r)
		}
	}
	return unexplained, idle
}

// ByRule lists how many findings each rule covers. A finding counts for the first rule that covers it.
func ByRule(findings []Finding, rules []Rule) (out []string) {
	for i, r := range rules {
		n := 0
		for _, f := range findings {
			if slices.IndexFunc(rules, func(r Rule) bool { return r.Covers(f) }) == i {
				n++
			}
		}
		if n > 0 {
			out = append(out, fmt.Sprintf("%d %s %s %s, %s: %s", n, r.Endpoint, r.Name, r.Labels, r.How, r.Why))
		}
	}
	return out
}
