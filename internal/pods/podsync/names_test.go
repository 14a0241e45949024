package podsync

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

// Static pods of one full name wait in the order in which they came, and one that goes while it waits is left out.
func TestPodsOfOneNameStartInTheOrderOfArrival(t *testing.T) {
	parity.ProvesPart(t, 3, "SRC-16")
	m := newMeasured(t)
	m.cfg.OnNameFree = func() {}
	workers := map[types.UID]*worker{}
	for _, uid := range []types.UID{"a", "b", "c", "d"} {
		spec := podNamed("web", pod.SourceFile)
		spec.UID = uid
		workers[uid] = m.worker(uid, spec)
	}
	expect := func(when string, first types.UID, asking ...types.UID) {
		t.Helper()
		for range 2 { // to ask again keeps the place
			for _, uid := range asking {
				if got := m.names.claim("web_ns", uid); got != (uid == first) {
					t.Errorf("%s: pod %s may start: %v", when, uid, got)
				}
			}
		}
	}
	expect("when the first has come", "a", "a")
	expect("when three more have come", "a", "d", "b", "c", "a")
	workers["b"].leaveName()
	expect("when one that waits has gone", "a", "c", "d", "a")
	workers["a"].leaveName()
	expect("when the first has ended", "d", "c", "d")
	workers["d"].leaveName()
	expect("when the second has ended", "c", "c")
}
