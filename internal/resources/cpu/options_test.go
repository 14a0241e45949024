package cpu

import (
	"strings"
	"testing"

	"keelson/test/kit/parity"
	"keelson/test/kit/placement"
)

// TestOptionErrorsMatchUpstream compares with what upstream's agent logged
// when it did not start.
func TestOptionErrorsMatchUpstream(t *testing.T) {
	parity.Proves(t, "RES-28")
	scenes, err := placement.Load("../../../test/kit/placement/testdata")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, s := range scenes {
		if s.Start == "" || s.Config.Memory != "" || !strings.Contains(s.Start, "policy error") {
			continue // another part reports this error
		}
		n++
		t.Run(s.Name, func(t *testing.T) {
			_, err := poolFor(t, s, t.TempDir())
			if err == nil {
				t.Fatalf("it starts; upstream: %s", s.Start)
			}
			_, cause, _ := strings.Cut(strings.ReplaceAll(s.Start, `\"`, `"`), "policy error: ")
			if logged := strings.TrimPrefix(err.Error(), "new static policy error: "); logged+`"` != cause {
				t.Errorf("%s\nupstream: %s", logged, cause)
			}
		})
	}
	if n < 12 {
		t.Errorf("%d scenes were compared", n)
	}
}
