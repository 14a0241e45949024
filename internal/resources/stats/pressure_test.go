package stats

import (
	"fmt"
	"os"
	"strings"
	"testing"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson/internal/host/cgroup"
	"keelson/internal/host/machine"
	"keelson/test/kit/need"
	"keelson/test/kit/parity"
)

// stalls returns the total stall times that the kernel of this machine reports, in microseconds.
func stalls(t *testing.T, of string) (some, full uint64) {
	t.Helper()
	text, err := os.ReadFile("/proc/pressure/" + of)
	if err != nil {
		need.Skip(t, "this kernel reports no pressure", err)
	}
	for line := range strings.Lines(string(text)) {
		into := map[string]*uint64{"some": &some, "full": &full}[strings.Fields(line)[0]]
		var a, b, c float64
		if _, err := fmt.Sscanf(line[strings.Index(line, "avg10"):], "avg10=%f avg60=%f avg300=%f total=%d", &a, &b, &c,
			into); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	}
	return some, full
}

// TestPressureStallInformation compares the summary with values that are read from the kernel before and after it.
func TestPressureStallInformation(t *testing.T) {
	parity.ProvesPart(t, 2, "SRV-42")
	const cpu, memory, io = "cpu", "memory", "io"
	type pair struct{ some, full uint64 }
	var before, after = map[string]pair{}, map[string]pair{}
	read := func(into map[string]pair) {
		for _, of := range []string{cpu, memory, io} {
			some, full := stalls(t, of)
			into[of] = pair{some, full}
		}
	}
	groups, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	g := newGround(t, false)
	g.cfg.Host, g.cfg.Groups, g.cfg.Tree = machine.Host(), groups, nil
	g.cfg.Pods = func() []Pod { return nil }
	read(before)
	s, err := New(g.cfg).Summary(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	read(after)
	for of, psi := range map[string]*statsapi.PSIStats{
		cpu:    s.Node.CPU.PSI,
		memory: s.Node.Memory.PSI,
		io:     s.Node.IO.PSI,
	} {
		if psi == nil {
			t.Errorf("%s: nothing of pressure", of)
			continue
		}
		if psi.Some.Total < before[of].some || psi.Some.Total > after[of].some || psi.Full.Total < before[of].full ||
			psi.Full.Total > after[of].full {
			t.Errorf("%s: %+v, the kernel says %+v before and %+v after", of, psi, before[of], after[of])
		}
	}
}
