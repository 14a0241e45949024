package script

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
)

// explain requests the agent's explanation of a pod's state, as an administrator does. UIDs
// and addresses are left out, because they differ between runs.
func (r *Run) explain(args []string) (string, error) {
	r.life.Lock()
	a := r.agent
	r.life.Unlock()
	if a == nil {
		return "", errors.New("explain: there is no agent")
	}
	a.mu.Lock()
	h := a.local
	a.mu.Unlock()
	if h == nil {
		return "", errors.New("explain: the agent does not answer yet")
	}
	path := "/debug/keelson/pods?output=text"
	if len(args) > 0 {
		path = "/debug/keelson/pods/" + Namespace + "/" + args[0] + "?output=text"
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	var out strings.Builder
	for line := range strings.Lines(few.ReplaceAllString(varying.ReplaceAllString(w.Body.String(), ""), "${1}n ms")) {
		drawing := drawn.MatchString(line) && (len(args) < 2 || args[1] != "drawn")
		if line = strings.TrimRight(line, " \n"); line != "" && !drawing { // an empty line ends a block
			out.WriteString(line + "\n")
		}
	}
	return out.String(), nil
}

// drawn are the lines of the chart: where several pods start at once, it is random
// which of them waits a millisecond for another.
var drawn = regexp.MustCompile(`^(start|step|later) `)

// few are a few milliseconds: pods that start at once delay each other by a random number of them.
var few = regexp.MustCompile(`( )[0-9] ms`)

// varying are the parts that differ in every run: UIDs and addresses.
var varying = regexp.MustCompile(`   [0-9a-z]{8}-[0-9a-z-]{27}|   10(\.\d+){3}`)
