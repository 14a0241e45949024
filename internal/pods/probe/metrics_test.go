package probe

import (
	"errors"
	"maps"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
	"keelson/test/kit/scrape"
)

func TestProbesAreCountedForAsLongAsTheirPodLives(t *testing.T) {
	parity.Proves(t, "PROBE-30")
	clinic(t, func(p *Prober, c *patient, _ *noted) {
		spec := podWith(v1.Container{LivenessProbe: execProbe(nil), ReadinessProbe: execProbe(nil)})
		p.Sync(spec, seen("1", time.Now()), nil, false)
		time.Sleep(15 * time.Second) // one liveness probe, two readiness probes
		c.set(1, nil)
		time.Sleep(10 * time.Second)
		c.set(0, errors.New("no runtime"))
		time.Sleep(10 * time.Second)
		p.Sync(spec, pod.Runtime{}, nil, false) // between two instances of the container
		want := map[string]float64{
			"prober_probe_duration_seconds{container=c,namespace=ns,pod=p,probe_type=Liveness}":                   3,
			"prober_probe_duration_seconds{container=c,namespace=ns,pod=p,probe_type=Readiness}":                  4,
			"prober_probe_total{container=c,namespace=ns,pod=p,pod_uid=u,probe_type=Liveness,result=failed}":      1,
			"prober_probe_total{container=c,namespace=ns,pod=p,pod_uid=u,probe_type=Liveness,result=successful}":  1,
			"prober_probe_total{container=c,namespace=ns,pod=p,pod_uid=u,probe_type=Liveness,result=unknown}":     1,
			"prober_probe_total{container=c,namespace=ns,pod=p,pod_uid=u,probe_type=Readiness,result=failed}":     1,
			"prober_probe_total{container=c,namespace=ns,pod=p,pod_uid=u,probe_type=Readiness,result=successful}": 2,
			"prober_probe_total{container=c,namespace=ns,pod=p,pod_uid=u,probe_type=Readiness,result=unknown}":    1,
		}
		if got := scrape.Of(t, p); !maps.Equal(got, want) {
			t.Errorf("metrics are %v, want %v", got, want)
		}
		p.Sync(spec, pod.Runtime{}, nil, true)
		if got := scrape.Of(t, p); len(got) != 0 {
			t.Errorf("metrics of a pod that has ended are %v, want none", got)
		}
		c.set(0, nil)
		p.Sync(spec, seen("2", time.Now()), nil, false)
		time.Sleep(11 * time.Second)
		if got := scrape.Of(t, p); len(got) != 4 {
			t.Errorf("metrics are %v, want those of two probes", got)
		}
		p.Forget(spec.UID)
		if got := scrape.Of(t, p); len(got) != 0 {
			t.Errorf("metrics of a forgotten pod are %v, want none", got)
		}
	})
}
