package differ

import (
	"slices"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestSicknessOfProbes(t *testing.T) {
	track := &track{sick: map[string]sickness{}, clock: newClock(), news: make(chan struct{})}
	fails := func(probe string, want bool) {
		t.Helper()
		if got := track.fails(probe); got != want {
			t.Errorf("%s fails: %v, want %v", probe, got, want)
		}
	}
	for _, probe := range []string{"main0/startup", "main0/readiness", "main1/startup"} {
		fails(probe, false)
		track.setSick(probe, true)
	}
	track.healLocked("main0") // it was started for another reason, before a probe had failed
	for range 5 {
		fails("main0/startup", true)
		fails("main0/readiness", true)
		fails("main1/startup", true)
	}
	track.healLocked("main0")
	fails("main0/startup", false)
	fails("main0/readiness", true)
	fails("main1/startup", true)
	track.setSick("main0/readiness", false)
	fails("main0/readiness", false)
}

// TestUIDsOfSandboxes looks at the UIDs by which a pod is known that the API server may not have.
func TestUIDsOfSandboxes(t *testing.T) {
	track := &track{uids: []string{"1"}}
	box := func(uid string) *cri.PodSandboxConfig {
		return &cri.PodSandboxConfig{Metadata: &cri.PodSandboxMetadata{Uid: uid}}
	}
	track.noteUIDLocked(&cri.CreateContainerRequest{SandboxConfig: box("3")})
	for _, uid := range []string{"1", "2", "2", ""} {
		track.noteUIDLocked(&cri.RunPodSandboxRequest{Config: box(uid)})
	}
	if want := []string{"1", "2"}; !slices.Equal(track.uids, want) {
		t.Errorf("UIDs %v, want %v", track.uids, want)
	}
}
