package differ

import "testing"

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
