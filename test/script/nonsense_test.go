package script

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"keelson/test/kit/fakecri"
)

// A runtime gives wrong answers for a while, to all calls or to one method. Running
// pods are not affected. What happens meanwhile is detected at the latest when the
// answers are right again, and then everything works as before.
func TestARuntimeThatAnswersNonsense(t *testing.T) {
	for _, lie := range slices.Sorted(maps.Keys(fakecri.Lies)) {
		oddly(t, lie, "any", "")
		if lie != "blank" { // not even the version of the interface is reported: it ends at once
			oddly(t, lie, "any", "restart")
		}
	}
	// Only lies that other answers contradict: if wrong lists hide all traces of a container, an
	// agent that has just started cannot detect that, and an event with wrong IDs is believed.
	for _, lie := range []string{"garbage", "other-ids", "other-sandbox"} {
		oddly(t, lie, "ListContainers", "restart")
	}
	for _, lie := range []string{"garbage", "no-ids", "first-state"} {
		oddly(t, lie, "GetContainerEvents", "")
	}
	for _, method := range []string{"ListContainers", "ContainerStatus", "PodSandboxStatus", "ImageStatus", "PullImage",
		"CreateContainer"} {
		oddly(t, "other-ids", method, "")
	}
}

func oddly(t *testing.T, lie, method, restart string) {
	name := strings.TrimSuffix(lie+"/"+method+"/"+restart, "/")
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		tellOdd(t, name, fmt.Sprintf("fault odd %s lie=%s", method, lie), restart)
	})
}

// A runtime does not answer, or takes long for every answer. A probe without an
// answer does not count as a failure of its container.
func TestARuntimeThatStalls(t *testing.T) {
	for _, how := range []string{"hang", "delay=20"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			tellOdd(t, how, "fault odd any "+how, "")
		})
	}
}

// A runtime reports success without an effect. The call is repeated, but not in a
// tight loop.
func TestARuntimeThatDoesNothing(t *testing.T) {
	for _, method := range []string{"RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "CreateContainer",
		"StartContainer", "StopContainer", "RemoveContainer", "PullImage"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			calls := tellOdd(t, method, "fault odd "+method+" idle", "")
			if n := strings.Count(calls, method+" "); n > 180 {
				t.Errorf("asked %d times in twelve minutes", n)
			}
		})
	}
}

// tellOdd runs the story and returns the calls that were made while the runtime was faulty.
func tellOdd(t *testing.T, name, fault, restart string) (asked string) {
	s, r := trouble{
		during: strings.NewReplacer("FAULT", fault, "RESTART", restart).Replace(oddStory),
		after:  "wait node Ready within=15\nexit calm main 1\nwait calm main#1 within=20\n",
		gone:   "60", rest: "130",
	}.play(t, name)
	if t.Failed() {
		return ""
	}
	for i, out := range r.shown {
		switch strings.Join(s.steps[i].args, " ") {
		case "calls calm", "calls still-node1":
			// A creation whose result cannot be read may be repeated once: it fails, since the name is reserved.
			for line := range strings.Lines(out) {
				if !strings.Contains(line, " -> ") {
					t.Errorf("a pod that runs was not left alone: %s", line)
				}
			}
		case "calls":
			asked = out // the output of the last calls step
		}
	}
	return asked
}

// oddStory: calm is not changed; while the runtime is faulty ends exits, begins is
// created, and leaves is deleted.
const oddStory = `calls
FAULT
RESTART
advance 5
exit ends main 1
apply begins.yaml
delete leaves
advance 12m
calls calm
calls still-node1
calls
release odd
wait begins Ready within=400
wait ends Ready within=400
wait leaves gone within=400
`
