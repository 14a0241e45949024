package stats

import (
	"strings"
	"testing"
)

// TestEphemeralStorageOutsideVolumes checks that the hosts file and the termination messages count as usage of the pod.
// Otherwise a container could fill the node's disk through them, and other pods would be evicted for it.
func TestEphemeralStorageOutsideVolumes(t *testing.T) {
	both(t, func(t *testing.T, v2 bool) {
		g := newGround(t, v2)
		used := func() uint64 {
			t.Helper()
			s, err := New(g.cfg).Summary(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			return *s.Pods[0].EphemeralStorage.UsedBytes
		}
		before := used()
		much := strings.Repeat("x", 4*mebi)
		for _, file := range []string{"etc-hosts", "containers/main/1a2b3c4d", "containers/done/ffffffff"} {
			g.write("root/pods/"+podUID+"/"+file, much)
			after := used()
			if after < before+4*mebi-4096 {
				t.Errorf("4 MiB in %s show as %d bytes of the pod's", file, after-before)
			}
			before = after
		}
	})
}
