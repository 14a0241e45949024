package eviction

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson/test/kit/parity"
)

func parse(t *testing.T, s Settings) []Threshold {
	t.Helper()
	ts, _, err := Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return ts
}

func TestParseSignals(t *testing.T) {
	parity.Proves(t, "EVIC-01", "EVIC-11")
	want := map[string]string{
		"memory.available":            "MemoryPressure",
		"allocatableMemory.available": "MemoryPressure",
		"nodefs.available":            "DiskPressure",
		"nodefs.inodesFree":           "DiskPressure",
		"imagefs.available":           "DiskPressure",
		"imagefs.inodesFree":          "DiskPressure",
		"containerfs.available":       "DiskPressure",
		"containerfs.inodesFree":      "DiskPressure",
		"pid.available":               "PIDPressure",
	}
	if len(signalInfo) != len(want) {
		t.Errorf("%d signals, want %d", len(signalInfo), len(want))
	}
	for signal, pressure := range want {
		hard := map[string]string{signal: "10"}
		if strings.HasPrefix(signal, "containerfs") { // follows from the others
			hard = map[string]string{"nodefs" + strings.TrimPrefix(signal, "containerfs"): "10"}
		}
		ts := addContainerFS(parse(t, Settings{Hard: hard}), Disks{})
		i := -1
		for j, th := range ts {
			if string(th.Signal) == signal {
				i = j
			}
		}
		if i < 0 {
			t.Errorf("%s is not looked at", signal)
			continue
		}
		seen := Observations{Signal(signal): {Capacity: 100, Available: 9, At: now}}
		_, f := State{}.Evaluate(ts[i:i+1], seen, hold, now)
		if got := fmt.Sprint(f.Pressures); got != "["+pressure+"]" {
			t.Errorf("%s: pressures %s, want %s", signal, got, pressure)
		}
		// The pressure condition remains for the transition period after it was last observed.
		s, _ := State{}.Evaluate(ts[i:i+1], seen, hold, now)
		enough := func(at int) Observations {
			return Observations{Signal(signal): {Capacity: 100, Available: 50, At: after(at)}}
		}
		s, f = s.Evaluate(ts[i:i+1], enough(299), hold, after(299))
		if len(f.Pressures) != 1 {
			t.Errorf("%s: pressures %v a second before the end of the transition period", signal, f.Pressures)
		}
		if _, f = s.Evaluate(ts[i:i+1], enough(300), hold, after(300)); len(f.Pressures) != 0 {
			t.Errorf("%s: pressures %v after the transition period", signal, f.Pressures)
		}
	}
}

func TestParseThresholdValues(t *testing.T) {
	parity.Proves(t, "EVIC-02")
	for text, want := range map[string]string{
		"100Mi": "104857600",
		"10%":   "100",
		"0%":    "off",
		"100%":  "off",
		"12.5%": "125",
		"0":     "bad",
		"-1":    "bad",
		"-5%":   "bad",
		"101%":  "bad",
		"many":  "bad",
		"":      "bad",
		"NaN%":  "bad",
	} {
		ts, _, err := Parse(Settings{Hard: map[string]string{"memory.available": text}})
		got := "off"
		switch {
		case err != nil:
			got = "bad"
			if !strings.Contains(err.Error(), "memory.available") || !strings.Contains(err.Error(), "evictionHard") {
				t.Errorf("%q: error %v", text, err)
			}
		case len(ts) == 1:
			got = fmt.Sprint(ts[0].Least.Of(1000))
		}
		if got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
	if _, _, err := Parse(Settings{Hard: map[string]string{"memory.free": "1Gi"}}); err == nil {
		t.Error("an unknown signal is taken")
	}
}

// The example in the Kubernetes documentation has a zero here.
func TestParseZeroMinimumReclaim(t *testing.T) {
	for text, good := range map[string]bool{
		"0Mi":   true,
		"0":     true,
		"0%":    true,
		"500Mi": true,
		"-1":    false,
		"much":  false,
	} {
		ts, _, err := Parse(Settings{
			Hard:           map[string]string{"memory.available": "1Gi"},
			MinimumReclaim: map[string]string{"memory.available": text},
		})
		if (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
		if reclaim := map[string]int64{"500Mi": 500 << 20}[text]; good &&
			(len(ts) != 1 || ts[0].Reclaim.Of(100<<30) != reclaim) {
			t.Errorf("%q is read as %+v", text, ts)
		}
	}
}

func TestParseSoftThresholdGracePeriod(t *testing.T) {
	parity.ProvesPart(t, 3, "EVIC-06")
	soft := map[string]string{"memory.available": "1Gi"}
	for _, grace := range []map[string]string{
		nil,
		{"memory.available": "soon"},
		{"memory.available": "-1s"},
		{"nodefs.available": "1m"},
	} {
		if _, _, err := Parse(Settings{Soft: soft, SoftGrace: grace}); err == nil {
			t.Errorf("grace %v is taken", grace)
		}
	}
	ts := parse(t, Settings{Soft: soft, SoftGrace: map[string]string{"memory.available": "90s"}})
	if len(ts) != 1 || ts[0].Grace != 90e9 || ts[0].Hard() {
		t.Errorf("thresholds %+v", ts)
	}
}

func TestAllocatableMemoryThreshold(t *testing.T) {
	// The scenarios evict-minimum and evict-soft show that each of the maps has its effect.
	parity.ProvesPart(t, 3, "CFG-71")
	s := Settings{
		Hard:           map[string]string{"memory.available": "1Gi", "nodefs.available": "10%"},
		Soft:           map[string]string{"memory.available": "2Gi"},
		SoftGrace:      map[string]string{"memory.available": "1m"},
		MinimumReclaim: map[string]string{"memory.available": "5Mi"},
	}
	if got := describe(parse(t, s)); got != "memory.available 1Gi+5Mi, nodefs.available 10%, memory.available 2Gi+5Mi "+
		"after 1m0s" {
		t.Error(got)
	}
	s.Enforced = true
	if got := describe(parse(t, s)); got != "memory.available 1Gi+5Mi, nodefs.available 10%, memory.available 2Gi+5Mi "+
		"after 1m0s, allocatableMemory.available 1Gi+5Mi" {
		t.Error(got)
	}
}

func describe(ts []Threshold) string {
	var out []string
	for _, t := range ts {
		text := string(t.Signal) + " " + t.Least.Quantity.String()
		if t.Least.Percent > 0 {
			text = fmt.Sprintf("%s %.0f%%", t.Signal, t.Least.Percent*100)
		}
		if !t.Reclaim.Quantity.IsZero() {
			text += "+" + t.Reclaim.Quantity.String()
		}
		if !t.Hard() {
			text += " after " + t.Grace.String()
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func TestContainerFSThresholds(t *testing.T) {
	parity.ProvesPart(t, 2, "EVIC-08")
	s := Settings{Hard: map[string]string{
		"nodefs.available":       "1Gi",
		"nodefs.inodesFree":      "1k",
		"imagefs.available":      "2Gi",
		"imagefs.inodesFree":     "2k",
		"containerfs.available":  "7Gi",
		"containerfs.inodesFree": "7k",
	}}
	ts, ignored, err := Parse(s)
	if err != nil || fmt.Sprint(ignored) != "[containerfs.available containerfs.inodesFree]" {
		t.Errorf("ignored %v, %v", ignored, err)
	}
	base := "imagefs.available 2Gi, imagefs.inodesFree 2k, nodefs.available 1Gi, nodefs.inodesFree 1k, "
	for d, want := range map[Disks]string{
		{}:                               "containerfs.available 1Gi, containerfs.inodesFree 1k",
		{Images: true}:                   "containerfs.available 2Gi, containerfs.inodesFree 2k",
		{Images: true, Containers: true}: "containerfs.available 1Gi, containerfs.inodesFree 1k",
	} {
		if got := describe(addContainerFS(ts, d)); got != base+want {
			t.Errorf("%+v: %s", d, got)
		}
	}
}

func TestReserve(t *testing.T) {
	parity.ProvesPart(t, 4, "NODE-28")
	ts := parse(t, Settings{
		Hard: map[string]string{
			"memory.available":  "10%",
			"nodefs.available":  "15%",
			"nodefs.inodesFree": "5%",
			"imagefs.available": "1Gi",
		},
		Soft:      map[string]string{"memory.available": "4Gi"},
		SoftGrace: map[string]string{"memory.available": "1m"},
		Enforced:  true,
	})
	got := Reserve(ts, v1.ResourceList{
		v1.ResourceMemory:           resource.MustParse("8Gi"),
		v1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
	})
	if m, d := got.Memory().Value(), got.StorageEphemeral().Value(); len(got) != 2 || m != 858993472 ||
		d != 16106128000 {
		t.Errorf("kept: %d of memory, %d of disk, %v", m, d, got)
	}
}
