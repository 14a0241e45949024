package podsync

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/podplan"
)

func TestKillingEventMatchesUpstream(t *testing.T) {
	for _, tc := range []struct {
		name      string
		restart   v1.RestartPolicy
		container string
		cause     podplan.Cause
		want      string
	}{
		{"a pod that ends", "Always", "main", podplan.CauseTerminating, ""},
		{"another image", "Always", "main", podplan.CauseSpecChanged, "Container main definition changed, will be restarted"},
		{
			"another image where nothing else restarts",
			"Never",
			"main",
			podplan.CauseSpecChanged,
			"Container main definition changed, will be restarted",
		},
		{"another image of a sidecar", "Always", "side", podplan.CauseSpecChanged, "Init container side definition changed"},
		{
			"a liveness probe",
			"Always",
			"main",
			podplan.CauseLiveness,
			"Container main failed liveness probe, will be restarted",
		},
		{
			"a liveness probe on failure",
			"OnFailure",
			"main",
			podplan.CauseLiveness,
			"Container main failed liveness probe, will be restarted",
		},
		{"a liveness probe, never again", "Never", "main", podplan.CauseLiveness, "Container main failed liveness probe"},
		{"a startup probe, never again", "Never", "main", podplan.CauseStartup, "Container main failed startup probe"},
		{
			"a container that restarts though its pod does not",
			"Never",
			"again",
			podplan.CauseStartup,
			"Container again failed startup probe, will be restarted",
		},
		{
			"a container that does not restart though its pod does",
			"Always",
			"once",
			podplan.CauseLiveness,
			"Container once failed liveness probe",
		},
		{"a sidecar's liveness probe", "Always", "side", podplan.CauseLiveness, "Init container side failed liveness probe"},
		{"a sidecar's startup probe", "Never", "side", podplan.CauseStartup, "Init container side failed startup probe"},
		{"a resize", "Never", "main", podplan.CauseResize, "Container main resize requires restart"},
		{"a resize of a sidecar", "Always", "side", podplan.CauseResize, "Container side resize requires restart"},
		{"an unknown state", "Always", "main", podplan.CauseUnknownState, `Container is in "unknown" state, try killing it before restart`},
		{"an unknown state of an older instance", "Always", "first", podplan.CauseRemoval, "Container is in unknown state, try killing it before removal"},
		{"an unknown state of an init container", "Always", "first", podplan.CauseUnknownState, `Init container is in "unknown" state, try killing it before restart`},
		{"all are restarted", "Always", "main", podplan.CauseRestartAll, "killing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &v1.Pod{Spec: v1.PodSpec{
				RestartPolicy: tc.restart,
				InitContainers: []v1.Container{
					{Name: "first"},
					{Name: "side", RestartPolicy: ptr.To(v1.ContainerRestartPolicyAlways)},
				},
				Containers: []v1.Container{
					{Name: "main"},
					{Name: "again", RestartPolicy: ptr.To(v1.ContainerRestartPolicyOnFailure)},
					{Name: "once", RestartPolicy: ptr.To(v1.ContainerRestartPolicyNever)},
				},
			}}
			if got := killing(tc.cause, p, tc.container); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
