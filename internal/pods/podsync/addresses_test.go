package podsync

import (
	"slices"
	"testing"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

// That the cloud has chosen otherwise is said once of each pod, for each address.
func TestAMismatchIsSaidOnceOfAPod(t *testing.T) {
	parity.ProvesPart(t, 20, "SRV-61")
	said, now := &noted{}, ""
	m := newMeasured(t)
	m.cfg.Events, m.cfg.AddressMismatch = said, func() string { return now }
	a, b := m.worker("a", podNamed("a", pod.SourceAPI)), m.worker("b", podNamed("b", pod.SourceAPI))
	for _, text := range []string{"", "one", "one", "another", "", "another"} {
		now = text
		a.tellMismatch()
	}
	b.tellMismatch()
	const begin = "Warning HostIPsIPFamilyMismatch "
	if want := []string{begin + "one", begin + "another", begin + "another", begin + "another"}; !slices.Equal(said.said, want) {
		t.Errorf("said %q, want %q", said.said, want)
	}
}
