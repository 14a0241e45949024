package observed

import (
	"strings"
	"testing"
	"time"

	"keelson/internal/pods/pod"
)

// A clock that is set back gives newer instances older times. If an exited instance
// counted as the newest, another would be started beside the running one.
func TestNewestInstanceByAttempt(t *testing.T) {
	at := func(minutes int) time.Time { return time.Date(2026, 1, 1, 12, minutes, 0, 0, time.UTC) }
	ss := []pod.Sandbox{{ID: "s1", Attempt: 1, CreatedAt: at(0)}, {ID: "s0", CreatedAt: at(30)}}
	cs := []pod.Container{
		{ID: "a1", Name: "a", Attempt: 1, CreatedAt: at(0)},
		{ID: "b0", Name: "b", CreatedAt: at(20)},
		{ID: "a0", Name: "a", CreatedAt: at(30)},
		{ID: "a2", Name: "a", Attempt: 2, CreatedAt: at(1)},
		{ID: "older a2", Name: "a", Attempt: 2, CreatedAt: at(0)},
	}
	sortSandboxes(ss)
	sortContainers(cs)
	r := pod.Runtime{Sandboxes: ss, Containers: cs}
	if s := r.Sandboxes[0].ID; s != "s1" {
		t.Errorf("the newest sandbox is %s", s)
	}
	var ids []string
	for _, c := range r.Instances("a") {
		ids = append(ids, c.ID)
	}
	if got := strings.Join(ids, ", "); got != "a2, older a2, a1, a0" {
		t.Errorf("the newest first: %s", got)
	}
	if r.Containers[1].ID != "b0" {
		t.Errorf("another container has lost its place: %+v", r.Containers)
	}
}
