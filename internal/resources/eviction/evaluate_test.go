package eviction

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/test/kit/parity"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const hold = 5 * time.Minute

func after(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }

// look is one check with the memory that is available at that time.
type look struct {
	at   int   // seconds
	left int64 // -1: it could not be measured
	age  int   // seconds, of the measurement
	want string
}

func TestEvaluate(t *testing.T) {
	parity.ProvesPart(t, 3, "EVIC-06")
	parity.ProvesPart(t, 3, "EVIC-07")
	hard := Settings{Hard: map[string]string{"memory.available": "100"}}
	soft := Settings{
		Soft:      map[string]string{"memory.available": "100"},
		SoftGrace: map[string]string{"memory.available": "1m"},
	}
	reclaim := hard
	reclaim.MinimumReclaim = map[string]string{"memory.available": "50"}
	for name, tc := range map[string]struct {
		settings Settings
		looks    []look
	}{
		"exactly the threshold is no pressure": {hard, []look{{0, 100, 0, ""}}},
		"a hard threshold is acted on at once, and again with a new measurement": {hard, []look{
			{0, 99, 0, "pressed act"}, {10, 98, 0, "pressed act"}}},
		"the same measurement causes no second action": {hard, []look{
			{0, 99, 0, "pressed act"}, {10, 99, 10, "pressed"}, {20, 99, 0, "pressed act"}}},
		"an old measurement is ignored":    {hard, []look{{60, 1, 31, ""}}},
		"a missing measurement is ignored": {hard, []look{{0, -1, 0, ""}}},
		"pressure remains without new measurements": {hard, []look{
			{0, 99, 0, "pressed act"}, {10, -1, 0, "pressed"}, {310, -1, 0, ""}}},
		"a soft threshold waits for its grace period": {soft, []look{
			{0, 99, 0, "pressed next 60"}, {59, 99, 0, "pressed next 60"}, {60, 99, 0, "pressed act"}}},
		"the grace period restarts after recovery": {soft, []look{
			{0, 99, 0, "pressed next 60"},
			{30, 100, 0, "pressed"},
			{40, 99, 0, "pressed next 100"},
			{60, 99, 0, "pressed next 100"},
			{100, 99, 0, "pressed act"},
		}},
		"minimum reclaim after an action": {reclaim, []look{
			{0, 120, 0, ""},
			{10, 99, 0, "pressed act"},
			{20, 120, 0, "pressed act"},
			{30, 149, 0, "pressed act"},
			{40, 150, 0, "pressed"},
			{50, 120, 0, "pressed"},
		}},
	} {
		ts := parse(t, tc.settings)
		var s State
		for i, l := range tc.looks {
			seen := Observations{}
			if l.left >= 0 {
				seen[MemoryAvailable] = Observation{Capacity: 1000, Available: l.left, At: after(l.at - l.age)}
			}
			var f Finding
			s, f = s.Evaluate(ts, seen, hold, after(l.at))
			if got := sayFinding(f); got != l.want {
				t.Errorf("%s: look %d: %q, want %q", name, i, got, l.want)
			}
		}
	}
}

func sayFinding(f Finding) string {
	var out []string
	if len(f.Pressures) > 0 {
		out = append(out, "pressed")
	}
	if len(f.Act) > 0 {
		out = append(out, "act")
	}
	if !f.Next.IsZero() {
		out = append(out, fmt.Sprintf("next %.0f", f.Next.Sub(now).Seconds()))
	}
	return strings.Join(out, " ")
}

func TestMemoryThresholdComesFirst(t *testing.T) {
	parity.Proves(t, "EVIC-19")
	signals := []Signal{
		"of.anothers",
		PIDAvailable,
		NodeFSAvailable,
		MemoryAvailable,
		ImageFSInodesFree,
		AllocatableMemory,
	}
	var ts []Threshold
	seen := Observations{}
	for _, s := range signals {
		ts = append(ts, Threshold{Signal: s, Least: Amount{Percent: 0.5}})
		seen[s] = Observation{Capacity: 100, Available: 1, At: now}
	}
	_, f := State{}.Evaluate(ts, seen, hold, now)
	var got []string
	for _, m := range f.Act {
		got = append(got, string(m.Signal))
	}
	if want := "memory.available allocatableMemory.available pid.available nodefs.available imagefs.inodesFree " +
		"of.anothers"; strings.Join(got, " ") != want {
		t.Errorf("order %v", got)
	}
	if m, ok := mostUrgent(f.Act[5:]); ok {
		t.Errorf("%s is acted on, of which nothing can be given back", m.Signal)
	}
	if m, ok := mostUrgent(f.Act); !ok || m.Signal != MemoryAvailable {
		t.Errorf("the first to act on is %s", m.Signal)
	}
}

// TestEvaluateIgnoresOldMeasurements evaluates random sequences of measurements.
func TestEvaluateIgnoresOldMeasurements(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		ts := parse(t, Settings{
			Hard:           map[string]string{"memory.available": "100", "pid.available": "10%"},
			Soft:           map[string]string{"memory.available": "200"},
			SoftGrace:      map[string]string{"memory.available": "20s"},
			MinimumReclaim: map[string]string{"memory.available": "30"},
		})
		var s State
		at, measured := now, map[Signal]time.Time{}
		var pressed time.Time
		for range 40 {
			at = at.Add(time.Duration(rnd.IntN(20_000)) * time.Millisecond)
			seen := Observations{}
			for _, sig := range []Signal{MemoryAvailable, PIDAvailable} {
				if rnd.IntN(5) == 0 {
					continue
				}
				seen[sig] = Observation{
					Capacity:  1000,
					Available: rnd.Int64N(400),
					At:        at.Add(-time.Duration(rnd.IntN(50_000)) * time.Millisecond),
				}
			}
			before := s
			var f Finding
			s, f = s.Evaluate(ts, seen, hold, at)
			for _, m := range f.Act {
				o, known := seen[m.Signal]
				switch {
				case !known || at.Sub(o.At) > stale:
					t.Fatalf("acts on %s, which was not measured or long ago", m.Signal)
				case o.Available >= m.Least.Of(o.Capacity)+m.Reclaim.Of(o.Capacity):
					t.Fatalf("acts on %s though %d are left", m.Signal, o.Available)
				case !measured[m.Signal].IsZero() && before.seen[m.Signal].Equal(measured[m.Signal]) &&
					!o.At.After(measured[m.Signal]):
					t.Fatalf("acts on %s twice by one measurement", m.Signal)
				case m.Grace > 0 && at.Sub(s.since[m.key()]) < m.Grace:
					t.Fatalf("acts on %s within its grace", m.Signal)
				}
			}
			for sig, o := range seen {
				if at.Sub(o.At) <= stale {
					measured[sig] = o.At
				}
			}
			has := len(f.Pressures) > 0 && f.Pressures[0] == v1.NodeMemoryPressure
			if o, ok := seen[MemoryAvailable]; ok && at.Sub(o.At) <= stale && o.Available < 200 {
				pressed = at
				if !has {
					t.Fatal("memory is short and there is no pressure")
				}
			}
			if has && (pressed.IsZero() && len(f.Act) == 0 && s.pressed[v1.NodeMemoryPressure].IsZero()) {
				t.Fatal("pressure without a reason")
			}
		}
	}
}
