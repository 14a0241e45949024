package probe

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

// shown are the series that a scrape finds, with their counts.
func shown(t *testing.T, p *Prober) []string {
	t.Helper()
	reg := prometheus.NewRegistry()
	if err := reg.Register(p); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			n := m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			out = append(out, fmt.Sprintf("%s{%s} %v", f.GetName(), strings.Join(labels, ","), n))
		}
	}
	return out
}

func TestProbesAreCountedForAsLongAsTheirPodLives(t *testing.T) {
	parity.Proves(t, "PROBE-30")
	clinic(t, func(p *Prober, c *patient, _ *noted) {
		spec := podWith(v1.Container{LivenessProbe: execProbe(nil), ReadinessProbe: execProbe(nil)})
		p.Sync(spec, seen("1", time.Now()), nil, false)
		time.Sleep(15 * time.Second) // two probes each
		c.set(1, nil)
		time.Sleep(10 * time.Second)
		c.set(0, errors.New("no runtime"))
		time.Sleep(10 * time.Second)
		p.Sync(spec, pod.Runtime{}, nil, false) // between two instances of the container
		want := []string{
			"prober_probe_duration_seconds{container=c,namespace=ns,pod=p,probe_type=Liveness} 4",
			"prober_probe_duration_seconds{container=c,namespace=ns,pod=p,probe_type=Readiness} 4",
			"prober_probe_total{container=c,namespace=ns,pod=p,pod_uid=u,probe_type=Liveness,result=failed} 1",
			"prober_probe_total{container=c,namespace=ns,pod=p,pod_uid=u,probe_type=Liveness,result=successful} 2",
			"prober_probe_total{container=c,namespace=ns,pod=p,pod_uid=u,probe_type=Liveness,result=unknown} 1",
			"prober_probe_total{container=c,namespace=ns,pod=p,pod_uid=u,probe_type=Readiness,result=failed} 1",
			"prober_probe_total{container=c,namespace=ns,pod=p,pod_uid=u,probe_type=Readiness,result=successful} 2",
			"prober_probe_total{container=c,namespace=ns,pod=p,pod_uid=u,probe_type=Readiness,result=unknown} 1",
		}
		if got := shown(t, p); !slices.Equal(got, want) {
			t.Errorf("metrics are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		p.Sync(spec, pod.Runtime{}, nil, true)
		if got := shown(t, p); len(got) != 0 {
			t.Errorf("metrics of a pod that has ended are %v, want none", got)
		}
		c.set(0, nil)
		p.Sync(spec, seen("2", time.Now()), nil, false)
		time.Sleep(time.Second)
		if got := shown(t, p); len(got) != 4 {
			t.Errorf("metrics are %v, want those of two probes", got)
		}
		p.Forget(spec.UID)
		if got := shown(t, p); len(got) != 0 {
			t.Errorf("metrics of a forgotten pod are %v, want none", got)
		}
	})
}
