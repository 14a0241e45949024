package script

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
)

// explain asks the agent why a pod is as it is, as the administrator does. What
// differs from run to run, UIDs and addresses, is left out.
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

// drawn are the lines of the picture: where several pods start at once, it is the
// luck of the moment which of them waits a millisecond for another.
var drawn = regexp.MustCompile(`^(start|step|later) `)

// few are milliseconds: pods that start at once lend each other some.
var few = regexp.MustCompile(`( )[0-9] ms`)

// varying is what no two runs have in common.
var varying = regexp.MustCompile(`   [0-9a-z]{8}-[0-9a-z-]{27}|   10(\.\d+){3}`)
