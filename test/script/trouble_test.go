package script

import (
	"strings"
	"testing"
)

// trouble is a story of a node on which the runtime or the API server fails for a while. The
// pods calm and still are not changed. The container of ends exits, leaves is deleted, and
// begins is created.
type trouble struct {
	during string // steps from the beginning of the failure until it has ended and everything is up to date
	after  string // steps that must work as before then
	gone   string // how long the deletion of a pod may take then
	rest   string // after which time nothing may be left of the pods
}

// play runs the story. Output without a block is not compared.
func (x trouble) play(t *testing.T, name string) (*Scenario, result) {
	t.Helper()
	s, err := Parse(name,
		strings.NewReplacer("DURING\n", x.during, "AFTER\n", x.after, "GONE", x.gone,
			"REST", x.rest).Replace(troubleStory))
	if err != nil {
		t.Fatal(err)
	}
	s.Loose = true
	return s, play(t, s, mode{})
}

const troubleStory = `
apply calm.yaml ends.yaml=calm.yaml leaves.yaml=calm.yaml
static still.yaml=calm.yaml
wait calm Ready
wait ends Ready
wait leaves Ready
wait still-node1 Ready
DURING
status calm
----
Running
  is ContainersReady, Initialized, PodReadyToStartContainers, PodScheduled, Ready
  main: running, ready

AFTER
delete calm
delete ends
delete begins
unstatic still.yaml
wait calm gone within=GONE
wait ends gone within=GONE
wait begins gone within=GONE
wait still-node1 gone within=GONE
advance REST
left
----
nothing

-- calm.yaml --
spec:
  containers: [{name: main, livenessProbe: {exec: {command: [healthy]}}, readinessProbe: {exec: {command: [healthy]}}}]
-- begins.yaml --
spec: {containers: [{name: main, image: 'far:1'}]}
`
