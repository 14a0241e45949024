package script

import (
	"strings"
	"testing"

	"keelson/test/kit/parity"
)

// Without events of the runtime the agent calls PodSandboxStatus for a new sandbox. If the
// call fails, an event reports it, and it is retried.
func TestSandboxWhoseStatusFails(t *testing.T) {
	parity.ProvesPart(t, 20, "SRV-61")
	parity.ProvesPart(t, 2, "LIFE-51")
	s, err := Parse("sandbox-status", `
fault status PodSandboxStatus pod=app fail=broken times=3
apply app.yaml
wait app Ready
events

-- app.yaml --
spec: {containers: [{name: main}]}
`)
	if err != nil {
		t.Fatal(err)
	}
	s.Loose = true
	shown := play(t, s, mode{old: true}).shown
	const want = "app Warning FailedPodSandBoxStatus: Unable to get pod sandbox status: rpc error: code = Unknown desc = broken\n"
	if events := shown[len(shown)-1]; !strings.Contains(events, want) {
		t.Errorf("events are\n%swant among them\n%s", events, want)
	}
}
