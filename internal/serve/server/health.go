package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Check is a named health check.
type Check struct {
	Name string
	// Check returns an error if the check fails. It must not block.
	Check func() error
}

// Checks are the health checks of the agent.
type Checks []Check

// Failing lists those that fail, with their errors; empty if none does.
func (c Checks) Failing() string {
	var out []string
	for _, c := range c {
		if err := c.Check(); err != nil {
			out = append(out, c.Name+": "+err.Error())
		}
	}
	return strings.Join(out, "; ")
}

var ping = Check{Name: "ping", Check: func() error { return nil }}

func (s *Server) checks() []Check { return append([]Check{ping}, s.cfg.Checks...) }

func (s *Server) healthz() http.HandlerFunc    { return s.healthAll(s.checks()) }
func (s *Server) healthzOne() http.HandlerFunc { return s.healthOne(s.checks()) }

// healthAll handles all checks together. It withholds reasons, because callers may have no other rights.
func (s *Server) healthAll(checks []Check) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		report := health(checks, q["exclude"], s.observe)
		if len(report.failed) > 0 {
			s.cfg.Log.Warn("health check failed", "checks", report.failed)
			http.Error(w, report.text+"healthz check failed", http.StatusInternalServerError)
			return
		}
		if !q.Has("verbose") {
			writeText(w, http.StatusOK, "ok")
			return
		}
		writeText(w, http.StatusOK, report.text+"healthz check passed\n")
	}
}

// healthOne handles a single check. It shows the reason of a failure.
func (s *Server) healthOne(checks []Check) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		i := slices.IndexFunc(checks, func(c Check) bool { return c.Name == r.PathValue("check") })
		if i < 0 {
			http.Error(w, textNoSuchPath, http.StatusNotFound)
			return
		}
		if err := checks[i].Check(); err != nil {
			http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
			return
		}
		writeText(w, http.StatusOK, "ok")
	}
}

func (s *Server) observe(name string, err error) {
	status, value := "success", 1.0
	if err != nil {
		status, value = "error", 0
	}
	s.metrics.check.WithLabelValues(name, "healthz").Set(value)
	s.metrics.checks.WithLabelValues(name, "healthz", status).Inc()
}

type healthReport struct {
	text   string   // a line for each check
	failed []string // names and reasons, for the log only
}

// health runs the checks that are not excluded.
func health(checks []Check, exclude []string, observe func(string, error)) healthReport {
	var rep healthReport
	var b strings.Builder
	unknown := slices.Compact(slices.Sorted(slices.Values(exclude)))
	for _, c := range checks {
		if slices.Contains(exclude, c.Name) {
			unknown = slices.DeleteFunc(unknown, func(n string) bool { return n == c.Name })
			fmt.Fprintf(&b, "[+]%s excluded: ok\n", c.Name)
			continue
		}
		err := c.Check()
		observe(c.Name, err)
		if err != nil {
			rep.failed = append(rep.failed, c.Name+": "+err.Error())
			fmt.Fprintf(&b, "[-]%s failed: reason withheld\n", c.Name)
			continue
		}
		fmt.Fprintf(&b, "[+]%s ok\n", c.Name)
	}
	if len(unknown) > 0 {
		quoted := make([]string, len(unknown))
		for i, n := range unknown {
			quoted[i] = fmt.Sprintf("%q", n)
		}
		fmt.Fprintf(&b, "warn: some health checks cannot be excluded: no matches for %s\n", strings.Join(quoted, ","))
	}
	rep.text = b.String()
	return rep
}
