package observed

import (
	"testing"
	"time"

	"keelson/test/kit/parity"
	"keelson/test/kit/scrape"
)

func TestMetrics(t *testing.T) {
	parity.Proves(t, "RT-27")
	inTime(t, func(f *fakeRuntime) {
		f.run("u1", "s1")
		f.start("u1", "s1", "main", "c1")
		f.start("u1", "s1", "side", "c2")
		f.exit("c2", 0)
		f.run("u2", "s2")
		f.start("u2", "s2", "main", "c3")
	}, func(t *testing.T, r *rig) {
		expect := func(want map[string]float64) {
			t.Helper()
			got := scrape.Of(t, r.Cache)
			for name, n := range want {
				if have, ok := got[name]; !ok || have != n {
					t.Errorf("%s = %v, %v; want %v", name, have, ok, n)
				}
			}
		}
		listed := float64(time.Now().Unix())
		expect(map[string]float64{
			"kubelet_running_pods":                                2,
			"kubelet_running_containers{container_state=created}": 0,
			"kubelet_running_containers{container_state=running}": 2,
			"kubelet_running_containers{container_state=exited}":  1,
			"kubelet_running_containers{container_state=unknown}": 0,
			"kubelet_pleg_relist_duration_seconds":                1,
			"kubelet_pleg_relist_interval_seconds":                0,
			"kubelet_pleg_pod_relist_duration_seconds":            2,
			"kubelet_pleg_last_seen_seconds":                      listed,
			"kubelet_pleg_discard_events":                         0,
			"kubelet_evented_pleg_connection_success_count":       0,
			"kubelet_evented_pleg_connection_error_count":         0,
			"kubelet_evented_pleg_connection_latency_seconds":     0,
		})
		r.after(5 * time.Second)
		r.fake.exit("c3", 1)
		r.after(0)
		expect(map[string]float64{
			"kubelet_running_pods":                                2,
			"kubelet_running_containers{container_state=running}": 1,
			"kubelet_running_containers{container_state=exited}":  2,
			"kubelet_evented_pleg_connection_success_count":       1,
			"kubelet_evented_pleg_connection_latency_seconds":     1,
		})
		r.fake.breakStream()
		r.after(10 * time.Second)
		expect(map[string]float64{
			"kubelet_evented_pleg_connection_success_count": 2,
			"kubelet_evented_pleg_connection_error_count":   1,
		})
		got := scrape.Of(t, r.Cache)
		if n := got["kubelet_pleg_relist_interval_seconds"]; n == 0 ||
			got["kubelet_pleg_relist_duration_seconds"] != n+1 {
			t.Errorf("metrics are %v, want an interval between each two lists", got)
		}
		if got["kubelet_pleg_last_seen_seconds"] <= listed {
			t.Errorf("last seen %v, want later than %v", got["kubelet_pleg_last_seen_seconds"], listed)
		}
	})
}
