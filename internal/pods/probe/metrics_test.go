package probe

import (
	"errors"
	"maps"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/test/kit/eventlog"
	"keelson/test/kit/parity"
	"keelson/test/kit/scrape"
)

func TestMetricsAreDeletedWithPod(t *testing.T) {
	parity.ProvesPart(t, 2, "PROBE-30")
	withProber(t, func(p *Prober, c *fakeContainer, _ *eventlog.Log) {
		spec := podWith(v1.Container{LivenessProbe: execProbe(nil), ReadinessProbe: execProbe(nil)})
		p.Sync(podplan.View{Pod: spec, Have: seen("1", time.Now())}, nil, false)
		time.Sleep(15 * time.Second) // one liveness probe, two readiness probes
		c.set(1, nil)
		time.Sleep(10 * time.Second)
		c.set(0, errors.New("no runtime"))
		time.Sleep(10 * time.Second)
		p.Sync(podplan.View{Pod: spec, Have: pod.Runtime{}}, nil, false) // between two instances of the container
		want := map[string]float64{
			"prober_probe_duration_seconds{container=c,namespace=ns,pod=p,probe_type=Liveness}":                   1,
			"prober_probe_duration_seconds{container=c,namespace=ns,pod=p,probe_type=Readiness}":                  2,
			"prober_probe_total{container=c,namespace=ns,pod=p,pod_uid=u,probe_type=Liveness,result=failed}":      1,
			"prober_probe_total{container=c,namespace=ns,pod=p,pod_uid=u,probe_type=Liveness,result=successful}":  1,
			"prober_probe_total{container=c,namespace=ns,pod=p,pod_uid=u,probe_type=Readiness,result=failed}":     1,
			"prober_probe_total{container=c,namespace=ns,pod=p,pod_uid=u,probe_type=Readiness,result=successful}": 2,
		}
		if got := scrape.Of(t, p); !maps.Equal(got, want) {
			t.Errorf("metrics are %v, want %v", got, want)
		}
		p.Sync(podplan.View{Pod: spec, Have: pod.Runtime{}}, nil, true)
		if got := scrape.Of(t, p); len(got) != 0 {
			t.Errorf("metrics of a pod that has ended are %v, want none", got)
		}
		c.set(0, nil)
		p.Sync(podplan.View{Pod: spec, Have: seen("2", time.Now())}, nil, false)
		time.Sleep(11 * time.Second)
		if got := scrape.Of(t, p); len(got) != 4 {
			t.Errorf("metrics are %v, want those of two probes", got)
		}
		p.Forget(spec.UID)
		if got := scrape.Of(t, p); len(got) != 0 {
			t.Errorf("metrics of a removed pod are %v, want none", got)
		}
	})
}

// The series of a container that is not restarted are removed, although its pod still runs.
func TestMetricsOfEndedContainerAreDeleted(t *testing.T) {
	parity.ProvesPart(t, 2, "PROBE-15")
	for _, tc := range []struct {
		policy v1.RestartPolicy
		code   int32
		all    bool // another container's end restarts all of them
		left   int
	}{
		{v1.RestartPolicyNever, 1, false, 2},
		{v1.RestartPolicyOnFailure, 0, false, 2},
		{v1.RestartPolicyOnFailure, 1, false, 4},
		{v1.RestartPolicyAlways, 0, false, 4},
		{v1.RestartPolicyNever, 137, true, 4},
	} {
		withProber(t, func(p *Prober, _ *fakeContainer, _ *eventlog.Log) {
			spec := podWith(v1.Container{ReadinessProbe: execProbe(nil)})
			spec.Spec.RestartPolicy = tc.policy
			other := *spec.Spec.Containers[0].DeepCopy()
			other.Name = "other"
			spec.Spec.Containers = append(spec.Spec.Containers, other)
			have := seen("1", time.Now())
			have.Containers = append(have.Containers, pod.Container{
				ID:        "2",
				Name:      "other",
				State:     pod.StateRunning,
				StartedAt: time.Now(),
			})
			p.Sync(podplan.View{Pod: spec, Have: have}, nil, false)
			time.Sleep(5 * time.Second)
			if got := scrape.Of(t, p); len(got) != 4 {
				t.Fatalf("metrics are %v, want those of two probes", got)
			}
			have.Containers[0].State, have.Containers[0].ExitCode = pod.StateExited, tc.code
			if tc.all {
				spec.Spec.Containers[1].RestartPolicyRules = []v1.ContainerRestartRule{{
					Action: v1.ContainerRestartRuleActionRestartAllContainers,
					ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
						Operator: v1.ContainerRestartRuleOnExitCodesOpIn,
						Values:   []int32{88},
					},
				}}
				have.Containers[1].State, have.Containers[1].ExitCode = pod.StateExited, 88
			}
			p.Sync(podplan.View{Pod: spec, Have: have}, nil, false)
			if p.Result(spec, have.Containers[0]).Ready {
				t.Error("an ended container is ready")
			}
			if got := scrape.Of(t, p); len(got) != tc.left {
				t.Errorf("%s, ended with %d: metrics are %v, want %d", tc.policy, tc.code, got, tc.left)
			}
		})
	}
}
