package volume

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
)

// Measure tells the number of this measuring as the used bytes.
func (k *fakeKind) Measure(ctx context.Context, r Request, _ Ready) (Measured, error) {
	k.mu.Lock()
	k.measured++
	n, err, hang := k.measured, k.fail["measure "+r.Name], k.hang["measure "+r.Name]
	k.mu.Unlock()
	if hang {
		<-ctx.Done()
		return Measured{}, ctx.Err()
	}
	return Measured{Usage: mount.Usage{Used: uint64(n), Capacity: 100}, Source: "du", Health: &stats.VolumeHealthStats{Abnormal: true}}, err
}

func TestStatsAreMeasuredWhenSomebodyAsks(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		p := testPod("u", "a")
		b.Want(p)
		time.Sleep(24 * time.Hour)
		if b.kind.measured != 0 {
			t.Errorf("measured %d times and nobody asked", b.kind.measured)
		}
		for i, want := range []uint64{1, 1, 2} {
			if i == 2 {
				time.Sleep(b.cfg.StatsPeriod)
			}
			s := b.Stats(t.Context(), "u")
			if len(s) != 1 || s[0].Name != "a" || *s[0].UsedBytes != want || *s[0].CapacityBytes != 100 || s[0].PVCRef != nil {
				t.Errorf("stats = %+v, want those of measuring %d", s, want)
			}
		}
		// One that hangs is shown as it was, and holds up nobody for long.
		b.kind.hang["measure a"] = true
		time.Sleep(b.cfg.StatsPeriod)
		began := time.Now()
		if s := b.Stats(t.Context(), "u"); len(s) != 1 || *s[0].UsedBytes != 2 || !s[0].Time.Time.Before(began) {
			t.Errorf("stats = %+v, want the last ones that were seen, with their time", s)
		}
		if took := time.Since(began); took != statsPatience {
			t.Errorf("it took %v", took)
		}
		if n := b.kind.measured; n != 3 {
			t.Errorf("measured %d times", n)
		}
		b.Stats(t.Context(), "u")
		if n := b.kind.measured; n != 3 {
			t.Errorf("a second measuring was begun beside one that hangs")
		}
		b.Release(pod.RefOf(p))
		synctest.Wait()
		if done, err := b.Released("u"); !done || err != nil {
			t.Errorf("released = %v, %v while a measuring hung", done, err)
		}
		if s := b.Stats(t.Context(), "u"); s != nil {
			t.Errorf("stats of a released pod: %+v", s)
		}
	})
}

func TestMetrics(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		p := testPod("u", "a", "b")
		p.Spec.Volumes[1].Ephemeral = &v1.EphemeralVolumeSource{} // served by the fake all the same
		b.kind.set("b", errors.New("no"))
		b.Want(p)
		time.Sleep(time.Second)
		b.kind.set("b", nil)
		time.Sleep(time.Second)
		got := scrape(t, b.Manager)
		for _, want := range []string{
			`storage_operation_duration_seconds{migrated="false",operation_name="volume_mount",status="success",volume_plugin="test/fake"} 2`,
			`storage_operation_duration_seconds{migrated="false",operation_name="volume_mount",status="fail-unknown",volume_plugin="test/fake"} 2`,
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
		if got := scrape(t, b.Manager); !slices.Contains(got, `storage_operation_duration_seconds{migrated="false",operation_name="volume_unmount",status="success",volume_plugin="test/fake"} 2`) {
			t.Errorf("no unmounts in\n%s", strings.Join(got, "\n"))
		}
	})
}

// scrape shows metrics as lines; a histogram as the number of its observations.
func scrape(t *testing.T, c prometheus.Collector) []string {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	// Twice, because the first one has figures measured.
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
