package rig

import (
	"strings"
	"testing"
)

const savedRules = `*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:CNI-0a1b - [0:0]
:CNI-9f9f - [0:0]
:CNI-DN-77 - [0:0]
:CNI-DN-88 - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A POSTROUTING -s 10.231.4.2/32 -m comment --comment "name: \"keelson-rig-1\" id: \"aa\"" -j CNI-0a1b
-A POSTROUTING -s 10.231.44.2/32 -m comment --comment "name: \"keelson-rig-11\" id: \"bb\"" -j CNI-9f9f
-A CNI-0a1b -d 10.231.4.0/22 -m comment --comment "name: \"keelson-rig-1\" id: \"aa\"" -j ACCEPT
-A CNI-9f9f -d 10.231.44.0/22 -m comment --comment "name: \"keelson-rig-11\" id: \"bb\"" -j ACCEPT
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"keelson-rig-1\" id: \"aa\"" -j CNI-DN-77
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"keelson-rig-11\" id: \"bb\"" -j CNI-DN-88
COMMIT
`

func TestUndoRemovesOneNetworksRulesOnly(t *testing.T) {
	got := undo(savedRules, "keelson-rig-1", false)
	want := `*nat
-D POSTROUTING -s 10.231.4.2/32 -m comment --comment "name: \"keelson-rig-1\" id: \"aa\"" -j CNI-0a1b
-D CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"keelson-rig-1\" id: \"aa\"" -j CNI-DN-77
-F CNI-0a1b
-F CNI-DN-77
-X CNI-0a1b
-X CNI-DN-77
COMMIT
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestUndoOfTheLastNetworkRemovesTheSharedChains(t *testing.T) {
	got := undo(savedRules, "keelson-rig-1", true)
	for _, line := range []string{
		"-D PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT\n", "-F CNI-HOSTPORT-DNAT\n",
		"-X CNI-HOSTPORT-DNAT\n",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("no %q in\n%s", line, got)
		}
	}
}

func TestUndoOfNothingIsNothing(t *testing.T) {
	if got := undo(savedRules, "keelson-rig-3", false); got != "" {
		t.Errorf("got %q", got)
	}
}
