package script

import (
	"strings"
	"testing"
)

// apiFaults are what an API server may do to a node, each with what ends it.
var apiFaults = []struct{ name, begin, end string }{
	{"conflicts", "api-fault odd patch any code=409\napi-fault odd2 update any code=409", "release odd\nrelease odd2"},
	{"too many requests", "api-fault odd any any code=429 retry=20", "release odd"},
	{"too many requests, with no word of when to come again", "api-fault odd any any code=429", "release odd"},
	{"internal errors", "api-fault odd any any code=500", "release odd"},
	{"unavailable", "api-fault odd any any code=503", "release odd"},
	{"forbidden", "api-fault odd any any code=403", "release odd"},
	{"unauthorized", "api-fault odd any any code=401", "release odd"},
	{"slow", "api-fault odd any any delay=8", "release odd"},
	{"slower than anybody waits", "api-fault odd any any delay=90", "release odd"},
	{"answers that get lost", "api-fault odd any any drop after", "release odd"},
	{"connections that break", "api-fault odd any any drop", "release odd"},
	{"gone", "api down", "api up"},
	{"partitioned", "api hang", "api up"},
	{"gone and then partitioned", "api down\nadvance 60\napi hang", "api up"},
}

// An API server that fails in any way leaves running pods untouched; containers
// that end are restarted by their policy. Once it is itself again the lease is
// renewed within 15 s, and everything else catches up without help.
func TestAnAPIServerThatFails(t *testing.T) {
	for _, f := range apiFaults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			s, err := Parse(f.name, strings.NewReplacer("BEGIN", f.begin, "END", f.end).Replace(apiStory))
			if err != nil {
				t.Fatal(err)
			}
			s.Loose = true
			play(t, s, mode{})
		})
	}
}

// apiStory: calm is left alone, ends ends and is restarted, leaves was deleted at
// the last moment.
const apiStory = `
apply calm.yaml ends.yaml=calm.yaml leaves.yaml=calm.yaml
static still.yaml=calm.yaml
wait calm Ready
wait ends Ready
wait leaves Ready
wait still-node1 Ready
wait lease renewed
calls
BEGIN
delete leaves
exit ends main 3
advance 10m
calls calm
----

calls still-node1
----

calls ends
----
CreateContainer ends/main#1
StartContainer ends/main#1

END
wait lease renewed within=15
wait node Ready within=15
wait ends main#1 Ready within=30
wait leaves gone within=60
status calm
----
Running
  is ContainersReady, Initialized, PodReadyToStartContainers, PodScheduled, Ready
  main: running, ready

apply begins.yaml=calm.yaml
wait begins Ready within=30
delete begins
delete calm
delete ends
unstatic still.yaml
wait begins gone within=30
wait calm gone within=30
wait ends gone within=30
wait still-node1 gone within=30
advance 70
left
----
nothing

-- calm.yaml --
spec:
  containers: [{name: main, livenessProbe: {exec: {command: [healthy]}}, readinessProbe: {exec: {command: [healthy]}}}]
`
