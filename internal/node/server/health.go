package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Check is one named answer to "are you well?".
type Check struct {
	Name string
	// Check returns what is wrong, or nil. It must not block.
	Check func() error
}

var ping = Check{Name: "ping", Check: func() error { return nil }}

func (s *Server) checks() []Check { return append([]Check{ping}, s.cfg.Checks...) }

func (s *Server) healthz() http.HandlerFunc    { return s.healthAll(s.checks()) }
func (s *Server) healthzOne() http.HandlerFunc { return s.healthOne(s.checks()) }

// healthAll answers for all checks together. It withholds causes, since a
// caller of this path may have no other right.
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

// healthOne answers for a single check, and says what is wrong with it.
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
	failed []string // name and cause, for the log; the answer withholds the cause
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
