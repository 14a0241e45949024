package differ

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestRuleForAmountsOfInitContainers(t *testing.T) {
	amount := func(container string) corev1.EnvVar {
		return corev1.EnvVar{
			Name:      "MEMORY",
			ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: container, Resource: "limits.memory"}},
		}
	}
	for _, tc := range []struct {
		what, named, where, theirs string
		ruled                      bool
	}{
		{"of an init container", "init", "CreateContainer config.envs[MEMORY].value", "0", true},
		{"of a regular container", "main", "CreateContainer config.envs[MEMORY].value", "0", false},
		{"of itself", "", "CreateContainer config.envs[MEMORY].value", "0", false},
		{"of an init container, not 0", "init", "CreateContainer config.envs[MEMORY].value", "7", false},
		{"another variable", "init", "CreateContainer config.envs[OTHER].value", "0", false},
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init", Env: []corev1.EnvVar{amount(tc.named)}}},
			Containers:     []corev1.Container{{Name: "main"}},
		}}
		d := Difference{Kind: "request", Where: tc.where, Ours: "24", Theirs: tc.theirs, Life: &Life{Pod: p}, scene: &scene{}}
		if got := ruleFor(d) != nil; got != tc.ruled {
			t.Errorf("%s: ruled %v, want %v", tc.what, got, tc.ruled)
		}
	}
}
