package podplan

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestReplaces(t *testing.T) {
	always := ptr.To(v1.ContainerRestartPolicyAlways)
	inits := []v1.Container{{Name: "side", RestartPolicy: always}, {Name: "later", RestartPolicy: always}}
	for _, tc := range []struct {
		name      string
		policy    v1.RestartPolicy
		inits     []v1.Container
		container string
		cause     Cause
		want      bool
	}{
		{"a pod that ends", "Always", nil, "main", "", false},
		{"another image", "Never", nil, "main", "definition changed", true},
		{"a resize", "Never", nil, "main", "resize requires restart", true},
		{"an unknown state", "Always", nil, "main", "in an unknown state", true},
		{"a liveness probe", "Always", nil, "main", "failed liveness probe", true},
		{"a startup probe, never again but by a rule", "Never", nil, "main", "failed startup probe", false},
		{"a sidecar's liveness probe", "Never", inits, "later", "failed liveness probe", true},
		{"all are restarted", "Always", nil, "main", "all containers are restarted", false},
		{"another sandbox", "Always", nil, "main", "sandbox changed", true},
		{"another sandbox, after init containers", "Always", inits, "main", "sandbox changed", false},
		{"the first init container of another sandbox", "Always", inits, "side", "sandbox changed", true},
		{"a later init container of another sandbox", "Always", inits, "later", "sandbox changed", false},
		{"a container that was removed from the specification", "Always", nil, "lost", "definition changed", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &v1.Pod{Spec: v1.PodSpec{
				RestartPolicy:  tc.policy,
				InitContainers: tc.inits,
				Containers:     []v1.Container{{Name: "main"}},
			}}
			if got := replaces(tc.cause, p, tc.container); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}
