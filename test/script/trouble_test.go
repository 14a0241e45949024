package script

import (
	"strings"
	"testing"
)

// trouble is a story of a node whose outside world is not itself for a while. Of
// the pods calm and still nothing is wanted throughout; ends and leaves are there
// to end and to be deleted, begins to be made.
type trouble struct {
	during string // from the beginning of the trouble until it is over and all have caught up
	after  string // what works as ever then
	gone   string // how long a pod may take to go then
	rest   string // how long what is left of them may stay
}

// play plays the story. Only blocks that are there are compared.
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
