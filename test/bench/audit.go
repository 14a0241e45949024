package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// auditPolicy makes the API server log each request of a node once, when it is received.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted, ResponseComplete, Panic]
rules:
- level: Metadata
  userGroups: ["system:nodes"]
- level: None
`

// audit reads the node's requests from the audit log of the API server.
type audit struct{ file string }

// newAudit writes the policy and returns the flags of the API server.
func newAudit(dir string) (audit, []string, error) {
	policy := filepath.Join(dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o644); err != nil {
		return audit{}, nil, err
	}
	a := audit{filepath.Join(dir, "audit.log")}
	return a, []string{"--audit-policy-file=" + policy, "--audit-log-path=" + a.file, "--audit-log-mode=blocking"}, nil
}

// asked is one request.
type asked struct {
	Verb      string `json:"verb"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Name        string `json:"name"`
	} `json:"objectRef"`
}

func (a asked) String() string {
	s := a.Verb + " " + a.ObjectRef.Resource
	if a.ObjectRef.Subresource != "" {
		s += "/" + a.ObjectRef.Subresource
	}
	return s
}

// size returns the current size of the log.
func (a audit) size() (int64, error) {
	fi, err := os.Stat(a.file)
	if os.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read audit log: %w", err)
	}
	return fi.Size(), nil
}

// since counts the requests after a position in the log by verb and resource. Requests for the node itself, such as
// heartbeats, are left out.
func (a audit) since(from int64) (map[string]int, error) {
	f, err := os.Open(a.file)
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(from, 0); err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	counts := map[string]int{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var q asked
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			return nil, fmt.Errorf("read audit log: %w", err)
		}
		switch q.ObjectRef.Resource {
		case "nodes", "leases", "csinodes", "resourceslices":
			continue
		}
		counts[q.String()]++
	}
	return counts, lines.Err()
}

// list formats the counts, most frequent first.
func list(counts map[string]int) string {
	var names []string
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return counts[b] - counts[a] })
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, counts[name])
	}
	return strings.Join(names, ", ")
}
