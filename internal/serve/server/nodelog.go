package server

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	maxLogServices = 4
	maxServiceName = 256
	maxTailLines   = 100_000
	journalTimeout = 30 * time.Second
	journalProgram = "journalctl"
	maxJournals    = 4 // concurrent queries: each is a process that reads a whole journal
)

// serviceName is the pattern of names of systemd units. Its characters have no meaning to a shell or in arguments of
// journalctl.
var serviceName = regexp.MustCompile(`^[a-zA-Z\-_.:0-9@]+$`)

// nodeLogQuery is a query for logs of services of the node, or for one file.
type nodeLogQuery struct {
	services, files []string
	since, until    *time.Time
	tail, boot      *int
	pattern         string
}

// parseNodeLogQuery parses a query. It returns nil without errors if there is none. A name with a slash is a file, and
// any other a service.
func parseNodeLogQuery(q url.Values) (*nodeLogQuery, field.ErrorList) {
	var n nodeLogQuery
	var errs field.ErrorList
	asked := q["query"]
	for _, name := range asked {
		switch {
		case strings.ContainsAny(name, `/\`):
			n.files = append(n.files, name)
		case strings.TrimSpace(name) != "":
			n.services = append(n.services, name)
		}
	}
	if len(asked) > 0 && len(n.files)+len(n.services) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("query"), asked, "may not be empty"))
	}
	moment := func(key string) *time.Time {
		text := q.Get(key)
		if text == "" {
			return nil
		}
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			errs = append(errs, field.Invalid(field.NewPath(key), text, "invalid time format"))
			return nil
		}
		return &t
	}
	number := func(key string) *int {
		text := q.Get(key)
		if text == "" {
			return nil
		}
		v, err := strconv.Atoi(text)
		if err != nil {
			errs = append(errs, field.Invalid(field.NewPath(key), text, err.Error()))
			return nil
		}
		return &v
	}
	n.since, n.until, n.tail, n.boot, n.pattern = moment("sinceTime"), moment("untilTime"), number("tailLines"),
		number("boot"), q.Get("pattern")
	if len(errs) > 0 {
		return nil, errs
	}
	if len(asked) == 0 && !n.hasOptions() {
		return nil, nil
	}
	return &n, nil
}

func (n *nodeLogQuery) hasOptions() bool {
	return n.since != nil || n.until != nil || n.tail != nil || n.boot != nil || n.pattern != ""
}

// validate validates the query. stat returns an error if a file cannot be read.
func (n *nodeLogQuery) validate(stat func(file string) error) (errs field.ErrorList) {
	query := field.NewPath("query")
	for _, s := range n.services {
		switch {
		case len(s) > maxServiceName:
			errs = append(errs, field.Invalid(query, s, fmt.Sprintf("length must be less than %d", maxServiceName)))
		case !serviceName.MatchString(s):
			errs = append(errs, field.Invalid(query, s, "input contains unsupported characters"))
		}
	}
	if len(n.services) > maxLogServices {
		errs = append(errs, field.TooMany(query, len(n.services), maxLogServices))
	}
	switch {
	case len(n.services)+len(n.files) == 0:
		errs = append(errs, field.Required(query, "cannot be empty with options"))
	case len(n.services) > 0 && len(n.files) > 0:
		errs = append(errs,
			field.Invalid(query, fmt.Sprintf("%v, %v", n.files, n.services), "cannot specify a file and service"))
	case len(n.files) > 1:
		errs = append(errs, field.Invalid(query, n.files, "cannot specify more than one file"))
	case len(n.files) == 1 && n.hasOptions():
		errs = append(errs, field.Invalid(query, n.files, "cannot specify file with options"))
	case len(n.files) == 1:
		if err := stat(n.files[0]); err != nil {
			errs = append(errs, field.Invalid(query, n.files, err.Error()))
		}
	}
	if n.since != nil && n.until != nil && n.since.After(*n.until) {
		errs = append(errs, field.Invalid(field.NewPath("untilTime"), n.until, "must be after `sinceTime`"))
	}
	if n.tail != nil && (*n.tail < 0 || *n.tail > maxTailLines) {
		errs = append(errs,
			field.Invalid(field.NewPath("tailLines"), *n.tail,
				fmt.Sprintf("must be between 0 and %d, inclusive", maxTailLines)))
	}
	if n.boot != nil && *n.boot > 0 {
		errs = append(errs, field.Invalid(field.NewPath("boot"), *n.boot, "must be less than 1"))
	}
	if _, err := regexp.Compile(n.pattern); err != nil {
		errs = append(errs, field.Invalid(field.NewPath("pattern"), n.pattern, err.Error()))
	}
	return errs
}

// journalArgs returns the arguments of journalctl for these services. Each value is part of the argument of its option
// and cannot be interpreted as another option.
func (n *nodeLogQuery) journalArgs(services []string) []string {
	args := []string{"--utc", "--no-pager", "--output=short-precise"}
	const form = "2006-01-02 15:04:05"
	if n.since != nil {
		args = append(args, "--since="+n.since.UTC().Format(form))
	}
	if n.until != nil {
		args = append(args, "--until="+n.until.UTC().Format(form))
	}
	if n.tail != nil {
		args = append(args, "--lines="+strconv.Itoa(*n.tail))
	}
	for _, service := range services {
		args = append(args, "--unit="+service)
	}
	if n.pattern != "" {
		args = append(args, "--grep="+n.pattern)
	}
	if n.boot != nil {
		args = append(args, "--boot="+strconv.Itoa(*n.boot))
	}
	return args
}

// logQueryHandler handles log queries, and passes other requests on to files.
func (s *Server) logQueryHandler(tree *logTree, files http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n, errs := parseNodeLogQuery(r.URL.Query())
		if len(errs) > 0 {
			http.Error(w, errs.ToAggregate().Error(), http.StatusBadRequest)
			return
		}
		if n == nil {
			files.ServeHTTP(w, r)
			return
		}
		if r.URL.Path != "/logs/" {
			http.Error(w, "path not allowed in query mode", http.StatusNotAcceptable)
			return
		}
		if errs := n.validate(tree.stat); len(errs) > 0 {
			http.Error(w, errs.ToAggregate().Error(), http.StatusNotAcceptable)
			return
		}
		if len(n.files) == 1 {
			r = r.Clone(r.Context())
			r.URL.Path = "/logs/" + strings.ReplaceAll(n.files[0], `\`, "/")
			files.ServeHTTP(w, r)
			return
		}
		s.serviceLogs(w, r, n, tree)
	}
}

// serviceLogs writes the journal entries of services that have any, and the log files of the others.
func (s *Server) serviceLogs(w http.ResponseWriter, r *http.Request, n *nodeLogQuery, tree *logTree) {
	select {
	case s.journals <- struct{}{}:
		defer func() { <-s.journals }()
	default:
		w.Header().Set("Retry-After", "1")
		writeText(w, http.StatusTooManyRequests, "too many log queries at a time")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), journalTimeout)
	defer cancel()
	w.Header().Set("Content-Type", "text/plain;charset=UTF-8")
	var out io.Writer = w
	if slices.Contains(strings.Split(strings.ReplaceAll(r.Header.Get("Accept-Encoding"), " ", ""), ","), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer z.Close() // an error means that the client is gone
		out = z
	}
	units, err := journalUnits(ctx)
	if err != nil {
		s.cfg.Log.Debug("failed to list journal units", "err", err)
	}
	var inJournal, inFiles []string
	for _, service := range n.services {
		if units[service] || units[service+".service"] {
			inJournal = append(inJournal, service)
		} else {
			inFiles = append(inFiles, service)
		}
	}
	if len(inJournal) > 0 {
		if err := copyJournal(ctx, out, n.journalArgs(inJournal)); err != nil {
			s.cfg.Log.Debug("failed to read journal", "services", inJournal, "err", err)
		}
	}
	if len(inFiles) > 0 && n.hasOptions() {
		fmt.Fprintf(out, "\noptions present and query resolved to log files for %v\ntry without specifying options\n",
			inFiles)
		return
	}
	for _, service := range inFiles {
		switch err := copyLogFile(out, tree, service); {
		case errors.Is(err, fs.ErrNotExist):
			fmt.Fprintf(out, "\nlog not found for %s\n", service)
		case err != nil:
			fmt.Fprintf(out, "\nerror getting log for %s: %v\n", service, err)
		}
	}
}

// journal returns a journalctl command with UTC times.
func journal(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, journalProgram, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	cmd.WaitDelay = time.Second // a child process may hold its output open
	return cmd
}

// journalUnits returns the units with journal entries. On a machine without a journal there are none.
func journalUnits(ctx context.Context) (map[string]bool, error) {
	list, err := journal(ctx, "--field", "_SYSTEMD_UNIT").Output()
	if err != nil {
		return nil, fmt.Errorf("list units: %w", err)
	}
	units := map[string]bool{}
	for unit := range strings.Lines(string(list)) {
		units[strings.TrimSpace(unit)] = true
	}
	return units, nil
}

// copyJournal writes the output of journalctl including stderr, because its error messages are about the caller's
// query.
func copyJournal(ctx context.Context, to io.Writer, args []string) error {
	cmd := journal(ctx, args...)
	cmd.Stdout, cmd.Stderr = to, to
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		fmt.Fprint(to, "\nerror: journal output not available\n")
		return fmt.Errorf("read journal: %w", err)
	}
	return nil
}

// copyLogFile writes the log file of a service: the first existing one of several names.
func copyLogFile(to io.Writer, tree *logTree, service string) error {
	err := fs.ErrNotExist
	for _, name := range []string{service, service + ".log", service + "/" + service + ".log"} {
		if err = copyFile(to, tree, name); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}

func copyFile(to io.Writer, tree *logTree, name string) error {
	f, err := tree.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() // only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fs.ErrNotExist
	}
	_, err = io.Copy(to, f)
	return err
}
