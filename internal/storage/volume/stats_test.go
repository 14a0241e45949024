package volume

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
	"keelson/test/kit/parity"
)

// Measure returns the number of the measurement as the used bytes.
func (k *fakeKind) Measure(ctx context.Context, r Request, _ Ready) (Measured, error) {
	k.mu.Lock()
	k.measured++
	n, err, hang := k.measured, k.fail["measure "+r.Name], k.hang["measure "+r.Name]
	k.mu.Unlock()
	if hang {
		<-ctx.Done()
		return Measured{}, ctx.Err()
	}
	return Measured{
		Usage:  mount.Usage{Used: uint64(n), Capacity: 100},
		Source: "du",
		Health: &Health{Abnormal: true, Message: "sick"},
	}, err
}

func (k *fakeKind) stall(name string, yes bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hang[name] = yes
}

func TestStatsAreMeasuredOnDemand(t *testing.T) {
	parity.ProvesPart(t, 3, "CFG-49")
	inBubble(t, func(t *testing.T, b *bench) {
		p := testPod("u", "a")
		b.Want(p)
		time.Sleep(24 * time.Hour)
		if b.kind.measured != 0 || b.Stats("u") != nil {
			t.Errorf("measured %d times without a call", b.kind.measured)
		}
		for i, want := range []uint64{1, 1, 2} {
			if i == 2 {
				time.Sleep(b.cfg.StatsPeriod)
			}
			b.Refresh(t.Context())
			s := b.Stats("u")
			if len(s) != 1 || s[0].Volume != "a" || s[0].Used != want || s[0].Capacity != 100 || s[0].Claim != "" ||
				!s[0].Local {
				t.Errorf("stats = %+v, want those of measuring %d", s, want)
			}
		}
		b.Release(pod.RefOf(p))
		synctest.Wait()
		if s := b.Stats("u"); s != nil {
			t.Errorf("stats of a released pod: %+v", s)
		}
	})
}

func TestRefreshOlder(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.Want(testPod("u", "a"))
		synctest.Wait()
		for i, age := range []time.Duration{time.Hour, time.Hour, 0, 10 * time.Second} {
			b.RefreshOlder(t.Context(), age)
			if want := []int{1, 1, 2, 2}[i]; b.kind.measured != want {
				t.Errorf("%d: measured %d times, want %d", i, b.kind.measured, want)
			}
		}
		time.Sleep(10 * time.Second)
		b.RefreshOlder(t.Context(), 10*time.Second)
		if b.kind.measured != 3 {
			t.Errorf("measured %d times", b.kind.measured)
		}
	})
}

// More volumes hang than are measured concurrently. Callers wait once, for a second; other volumes
// are measured as usual, and the last figures of those that hang are kept.
func TestStatsOfHangingVolumes(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var hung []string
		for i := range 3 * maxMeasurements {
			hung = append(hung, "h"+strconv.Itoa(i))
		}
		p, q := testPod("p", hung...), testPod("q", "good")
		b.Want(p)
		b.Want(q)
		synctest.Wait()
		b.Refresh(t.Context())
		seen := time.Now()
		for _, name := range hung {
			b.kind.stall("measure "+name, true)
		}
		time.Sleep(b.cfg.StatsPeriod)
		began := time.Now()
		b.Refresh(t.Context())
		if took := time.Since(began); took != statsTimeout {
			t.Errorf("the first caller waited %v", took)
		}
		for range 20 {
			began = time.Now()
			time.Sleep(b.cfg.StatsPeriod)
			b.Refresh(t.Context())
			if waited := time.Since(began) - b.cfg.StatsPeriod; waited != 0 {
				t.Errorf("a caller waited %v for volumes that are known to hang", waited)
			}
		}
		if s := b.Stats("q"); len(s) != 1 || !s[0].At.After(began) {
			t.Errorf("the good volume is shown as %+v", s)
		}
		s := b.Stats("p")
		if len(s) != len(hung) {
			t.Errorf("%d of %d volumes that hang are shown", len(s), len(hung))
		}
		for _, f := range s {
			if !f.At.Equal(seen) {
				t.Errorf("%s is shown as seen at %v", f.Volume, f.At)
			}
		}
		for _, name := range hung {
			b.kind.stall("measure "+name, false)
		}
		for range 3 {
			time.Sleep(measureTimeout)
			b.Refresh(t.Context())
			synctest.Wait()
		}
		for _, f := range b.Stats("p") {
			if f.At.Equal(seen) {
				t.Errorf("%s is not measured any more", f.Volume)
			}
		}
		b.Release(pod.RefOf(p))
		b.Release(pod.RefOf(q))
		synctest.Wait()
	})
}

// An abnormal volume is recorded once, and again when its condition changes.
func TestAbnormalVolumeEvents(t *testing.T) {
	parity.ProvesPart(t, 2, "VOL-28")
	parity.ProvesPart(t, 20, "SRV-61")
	inBubble(t, func(t *testing.T, b *bench) {
		b.Want(testPod("u", "a"))
		synctest.Wait()
		for range 5 {
			b.Refresh(t.Context())
			time.Sleep(b.cfg.StatsPeriod)
		}
		if got := b.events.Texts(); len(got) != 1 || got[0] != "Warning VolumeConditionAbnormal Volume a: sick" {
			t.Errorf("events %q", got)
		}
		b.Release(pod.Ref{UID: "u"})
		synctest.Wait()
	})
}

// A measurement that hangs does not delay the release.
func TestReleaseDuringHangingMeasurement(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		p := testPod("u", "a")
		b.Want(p)
		synctest.Wait()
		b.kind.stall("measure a", true)
		b.Refresh(t.Context())
		b.Refresh(t.Context())
		synctest.Wait()
		b.kind.mu.Lock()
		n := b.kind.measured
		b.kind.mu.Unlock()
		if n != 1 {
			t.Errorf("%d measurings of one volume that hangs", n)
		}
		b.Release(pod.RefOf(p))
		synctest.Wait()
		if done, err := b.Released("u"); !done || err != nil {
			t.Errorf("released = %v, %v while a measuring hung", done, err)
		}
	})
}

// TestStatsDisabled: a negative period disables measurements.
func TestStatsDisabled(t *testing.T) {
	parity.ProvesPart(t, 3, "CFG-49")
	inBubble(t, func(t *testing.T, b *bench) {
		b.cfg.StatsPeriod = -time.Second
		b.Want(testPod("u", "a"))
		synctest.Wait()
		b.Refresh(t.Context())
		time.Sleep(time.Hour)
		b.Refresh(t.Context())
		if s := b.Stats("u"); len(s) != 0 || b.kind.measured != 0 {
			t.Errorf("measured %d times, stats %v", b.kind.measured, s)
		}
	})
}

// TestVolumesOfEarlierAgent: a volume mounted by an earlier agent counts as attached without a
// check.
func TestVolumesOfEarlierAgent(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(PlaceOf(root, "u", "test/fake", "old", false).Path, 0o755); err != nil {
		t.Fatal(err)
	}
	inBubbleOver(t, root, func(t *testing.T, b *bench) {
		verified := func(n int) string {
			return `storage_operation_duration_seconds{migrated="false",operation_name="verify_controller_attached_volume",` +
				`status="success",volume_plugin="test/fake"} ` + strconv.Itoa(
				n,
			)
		}
		p := testPod("u", "old", "new")
		b.Want(p)
		synctest.Wait()
		got := scrape(t, b.Manager)
		for _, want := range []string{
			verified(1),
			`reconstruct_volume_operations_total{} 1`,
			`storage_operation_duration_seconds{migrated="false",operation_name="volume_mount",status="success",` +
				`volume_plugin="test/fake"} 2`,
		} {
			if !slices.Contains(got, want) {
				t.Errorf("no %s in\n%s", want, strings.Join(got, "\n"))
			}
		}
		b.Release(pod.RefOf(p))
		synctest.Wait()
		b.Want(p) // the earlier volumes are released first, and this counts as another pod of the same name
		synctest.Wait()
		if got := scrape(t, b.Manager); !slices.Contains(got, verified(3)) {
			t.Errorf("no %s in\n%s", verified(3), strings.Join(got, "\n"))
		}
	})
}

func TestMetrics(t *testing.T) {
	parity.ProvesPart(t, 4, "VOL-11")
	inBubble(t, func(t *testing.T, b *bench) {
		p := testPod("u", "a", "b")
		p.Spec.Volumes[1].Ephemeral = &v1.EphemeralVolumeSource{} // also served by the fake
		b.kind.set("b", &Waiting{For: "volume to be attached", Attach: true})
		b.Want(p)
		synctest.Wait()
		b.kind.set("b", errors.New("no"))
		b.Again("u")
		time.Sleep(time.Second)
		b.kind.set("b", nil)
		time.Sleep(time.Second)
		got := scrape(t, b.Manager)
		for _, want := range []string{
			`storage_operation_duration_seconds{migrated="false",operation_name="volume_mount",status="success",` +
				`volume_plugin="test/fake"} 2`,
			`storage_operation_duration_seconds{migrated="false",operation_name="volume_mount",status="fail-unknown",` +
				`volume_plugin="test/fake"} 2`,
			`storage_operation_duration_seconds{migrated="false",operation_name="verify_controller_attached_volume",` +
				`status="success",volume_plugin="test/fake"} 2`,
			`storage_operation_duration_seconds{migrated="false",operation_name="verify_controller_attached_volume",` +
				`status="fail-unknown",volume_plugin="test/fake"} 1`,
			`volume_operation_total_seconds{operation_name="overall_volume_mount",plugin_name="test/fake"} 2`,
			`volume_manager_total_volumes{plugin_name="test/fake",state="desired_state_of_world"} 2`,
			`volume_manager_total_volumes{plugin_name="test/fake",state="actual_state_of_world"} 2`,
			`kubelet_volume_stats_capacity_bytes{namespace="ns",persistentvolumeclaim="u-b"} 100`,
			`kubelet_volume_stats_health_status_abnormal{namespace="ns",persistentvolumeclaim="u-b"} 1`,
			`kubelet_volume_metric_collection_duration_seconds{metric_source="du"} 2`,
			`reconstruct_volume_operations_total{} 0`,
			`force_cleaned_failed_volume_operations_total{} 0`,
		} {
			if !slices.Contains(got, want) {
				t.Errorf("no %s in\n%s", want, strings.Join(got, "\n"))
			}
		}
		b.Release(pod.RefOf(p))
		synctest.Wait()
		if got := scrape(t,
			b.Manager); !slices.Contains(got,
			`storage_operation_duration_seconds{migrated="false",operation_name="volume_unmount",status="success",`+
				`volume_plugin="test/fake"} 2`) {
			t.Errorf("no unmounts in\n%s", strings.Join(got, "\n"))
		}
	})
}

// scrape returns metrics as lines; a histogram as its number of observations.
func scrape(t *testing.T, c prometheus.Collector) []string {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	// Twice, because the first one starts measurements.
	if _, err := r.Gather(); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+`="`+l.GetValue()+`"`)
			}
			n := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			out = append(out, f.GetName()+"{"+strings.Join(labels, ",")+"} "+strconv.FormatFloat(n, 'g', -1, 64))
		}
	}
	return out
}
