package bench

import (
	"math"
	"os"
	"strings"
	"testing"
	"time"
)

func TestSamples(t *testing.T) {
	var s Samples
	if s.P(0.99) != 0 || s.Median() != 0 {
		t.Error("no samples are not zero")
	}
	for i := 100; i >= 1; i-- {
		s = append(s, time.Duration(i))
	}
	for _, c := range []struct {
		q    float64
		want time.Duration
	}{{0.5, 50}, {0.99, 99}, {1, 100}, {0.001, 1}} {
		if got := s.P(c.q); got != c.want {
			t.Errorf("P(%v) = %d, want %d", c.q, got, c.want)
		}
	}
	if got := (Samples{10, 1, 20, 3}).Median(); got != 6 {
		t.Errorf("median of four is %d, want 6", got)
	}
	if s[0] != 100 {
		t.Error("reading percentiles reordered the samples")
	}
}

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		name string
		v    Verdict
		want string
	}{
		{"a ratio that is kept", Verdict{Bound: readyByHand, Value: 1.18}, "F2  1.18 ≤ 1.20 ok     create→Ready one at a time, × by hand"},
		{
			"the bound itself is kept",
			Verdict{Bound: restartEnds, Value: 0},
			"F12 0.00 ≤ 0.00 ok     restart: containers restarted",
		},
		{"a time that is too long", Verdict{Bound: ownShareP50, Value: 20.4, Note: "cold"}, "F1  20.4 ms ≤ 20 ms short  own share of create→Ready, p50, fake runtime (cold)"},
		{"nothing to compare with is not kept", Verdict{Bound: readyByPeer, Value: ratio(1.0, 0)}, "F2  +Inf ≤ 0.40 short  create→Ready one at a time, × upstream"},
	} {
		if got := c.v.String(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if !math.IsInf(ratio(time.Second, 0), 1) {
		t.Error("a ratio to nothing is finite")
	}
}

func TestChoose(t *testing.T) {
	quick, err := choose(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range quick {
		if s.long {
			t.Errorf("%s is played unasked", s.name)
		}
	}
	got, err := choose([]string{"f3", "size"})
	if err != nil || len(got) != 2 || got[0].name != "size" || got[1].name != "full" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := choose([]string{"F1", "F99"}); err == nil || !strings.Contains(err.Error(), "F99") {
		t.Errorf("a figure that nothing measures: %v", err)
	}
}

func TestReport(t *testing.T) {
	r := NewReport()
	r.Times("F2", "create→Ready", onReal, map[string]Samples{Ours: {2 * time.Millisecond}, Hand: {time.Millisecond}})
	r.Hold(binarySize, 33, "")
	r.Hold(readyByHand, 2, "")
	r.Failed("crowd", os.ErrDeadlineExceeded)
	var b strings.Builder
	if err := r.Print(&b); err != nil {
		t.Fatal(err)
	}
	out := b.String()
	if f2, f15 := strings.Index(out, "\nF2  2.00 ≤ 1.20 short"), strings.Index(out, "\nF15 33 MB ≤ 40 MB ok"); f2 < 0 ||
		f15 < f2 {
		t.Errorf("verdicts missing or out of order:\n%s", out)
	}
	for _, want := range []string{"2.0 / 2.0 (1)", "not measured: crowd", "Load average"} {
		if !strings.Contains(out, want) {
			t.Errorf("report lacks %q:\n%s", want, out)
		}
	}
	if r.Complete() {
		t.Error("a failed scene leaves the report complete")
	}
}

func TestUse(t *testing.T) {
	before, err := use(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); time.Since(begin) < time.Minute; {
		after, err := use(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if after.CPU > before.CPU && after.Switches > 0 {
			rss, err := resident(os.Getpid())
			if err != nil || rss < 1 {
				t.Errorf("%v MiB, %v", rss, err)
			}
			return
		}
	}
	t.Error("a busy minute used no CPU")
}
