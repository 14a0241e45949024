package script

import (
	"keelson/test/kit/parity"
	"strings"
	"testing"
)

// hungCall is a call to the runtime that never returns for one pod.
type hungCall struct {
	method string
	// reported is the event that reports what a deletion waits for; empty if the pod is
	// deleted although the call hangs.
	reported string
}

var hungCalls = []hungCall{
	{
		method:   "RunPodSandbox",
		reported: "FailedCreatePodSandBox: Failed to create pod sandbox: rpc error: code = DeadlineExceeded",
	},
	{method: "PullImage"},
	{method: "ImageStatus"},
	{method: "CreateContainer", reported: "Failed: Error: context deadline exceeded"},
	{method: "StartContainer", reported: "Failed: Error: context deadline exceeded"},
	// Often an event of the runtime has reported everything.
	{method: "ContainerStatus", reported: "FailedSync: error determining status: rpc error: code = DeadlineExceeded"},
	// The reason is FailedSync or FailedPodSandBoxStatus, depending on which call is first.
	{method: "PodSandboxStatus", reported: "status: rpc error: code = DeadlineExceeded"},
	{method: "ExecSync"},
	{method: "StopContainer", reported: `failed to "KillContainer" for "main" with KillContainerError: "rpc error: code = DeadlineExceeded`},
	{method: "StopPodSandbox", reported: `failed to "KillPodSandbox" for "<stuck>" with KillPodSandboxError: "rpc error: code = DeadlineExceeded`},
	{method: "RemoveContainer"},
	{method: "RemovePodSandbox"},
}

// A pod whose calls hang for ever does not affect other pods: they start, are
// restarted and end as fast as before, and the node is ready. An event reports what
// the deletion of the pod waits for, and the deletion completes once the call returns.
// The number of goroutines does not increase meanwhile.
func TestAPodWhoseCallsHang(t *testing.T) {
	parity.ProvesPart(t, 20, "SRV-61")
	for _, c := range hungCalls {
		t.Run(c.method, func(t *testing.T) { // one at a time: goroutines are counted
			s, err := Parse(c.method, strings.NewReplacer("METHOD", c.method).Replace(hungStory))
			if err != nil {
				t.Fatal(err)
			}
			s.Loose = true
			shown := map[string]string{}
			for i, out := range play(t, s, mode{}).shown {
				shown[s.steps[i].args[0]] = out
			}
			if t.Failed() {
				return
			}
			switch gone := shown["status"] == "gone\n"; {
			case gone:
			case c.reported == "":
				t.Errorf("while %s hangs, the deleted pod is not gone; it is\n%s", c.method, shown["status"])
			case !strings.Contains(shown["events"], c.reported):
				t.Errorf("while %s hangs, no event says %s, but\n%s", c.method, c.reported, shown["events"])
			}
		})
	}
}

// hungStory: the test checks output that is not compared with a block.
const hungStory = `
fault hung METHOD pod=stuck hang
apply stuck.yaml
advance 5
apply other.yaml
wait other Ready within=2
exit other main 1
wait other main#1 within=2
delete stuck
advance 30
wait node Ready within=1
status stuck
steady 30m
wait node Ready within=1
hanging hung 2
apply next.yaml=other.yaml
wait next Ready within=2
delete other
wait other gone within=2
events stuck
release hung
wait stuck gone within=20
delete next
wait next gone within=2
advance 70
left
----
nothing

-- stuck.yaml --
spec:
  containers:
  - {name: main, image: 'other:1', livenessProbe: {exec: {command: [healthy]}, periodSeconds: 1}}
-- other.yaml --
spec: {containers: [{name: main}]}
`
