package script

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"keelson/test/kit/fakecri"
)

// A runtime that answers nonsense, for a while and whatever it is asked, or one
// question alone. Running pods are untouched; what happens meanwhile is noticed
// at the latest when it talks sense again; and then everything works as before.
func TestARuntimeThatAnswersNonsense(t *testing.T) {
	for _, lie := range slices.Sorted(maps.Keys(fakecri.Lies)) {
		oddly(t, lie, "any", "")
		if lie != "blank" { // not even the version of the interface is reported: it ends at once
			oddly(t, lie, "any", "restart")
		}
	}
	// Where the rest of what it says contradicts the lie. With its lists alone an agent
	// that has just started gets less than there is if they deny all traces of
	// a container, and an event right in all but the ids it names is believed.
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

// A runtime that does not answer, or takes long for every answer. That a probe
// gets no answer says nothing of its container.
func TestARuntimeThatStalls(t *testing.T) {
	for _, how := range []string{"hang", "delay=20"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			tellOdd(t, how, "fault odd any "+how, "")
		})
	}
}

// A runtime that says it has done what it was asked for, and has not. It is asked
// again, and not in a loop.
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

// tellOdd plays the story and returns what was asked while the runtime was odd.
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
			// What cannot be reported may be asked for once more: its name is taken.
			for line := range strings.Lines(out) {
				if !strings.Contains(line, " -> ") {
					t.Errorf("a pod that runs was not left alone: %s", line)
				}
			}
		case "calls":
			asked = out // the last time it is shown
		}
	}
	return asked
}

// oddStory: calm is left alone throughout; ends ends and begins begins while the
// runtime is odd, and leaves is deleted.
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
