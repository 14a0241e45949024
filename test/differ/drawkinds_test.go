package differ

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestEveryKindIsDrawn looks in 300 lives for each kind of thing that may be in one.
func TestEveryKindIsDrawn(t *testing.T) {
	probe := func(is func(corev1.ProbeHandler) bool) func(*Life) bool {
		return func(l *Life) bool {
			return slices.ContainsFunc(containers(l.Pod), func(c corev1.Container) bool {
				return slices.ContainsFunc([]*corev1.Probe{c.ReadinessProbe, c.LivenessProbe, c.StartupProbe}, func(p *corev1.Probe) bool {
					return p != nil && is(p.ProbeHandler)
				})
			})
		}
	}
	hook := func(of func(*corev1.Lifecycle) *corev1.LifecycleHandler) func(*Life) bool {
		return func(l *Life) bool {
			return slices.ContainsFunc(containers(l.Pod), func(c corev1.Container) bool {
				return c.Lifecycle != nil && of(c.Lifecycle) != nil && of(c.Lifecycle).HTTPGet != nil
			})
		}
	}
	h := Draw(1, 300, false)
	for _, kind := range []struct {
		what string
		in   func(*Life) bool
	}{
		{"exec probe", probe(func(p corev1.ProbeHandler) bool { return p.Exec != nil })},
		{"HTTP probe", probe(func(p corev1.ProbeHandler) bool { return p.HTTPGet != nil })},
		{"HTTP probe with headers", probe(func(p corev1.ProbeHandler) bool { return p.HTTPGet != nil && p.HTTPGet.HTTPHeaders != nil })},
		{"TCP probe", probe(func(p corev1.ProbeHandler) bool { return p.TCPSocket != nil })},
		{"gRPC probe", probe(func(p corev1.ProbeHandler) bool { return p.GRPC != nil })},
		{"HTTP PreStop hook", hook(func(l *corev1.Lifecycle) *corev1.LifecycleHandler { return l.PreStop })},
		{"HTTP PostStart hook", hook(func(l *corev1.Lifecycle) *corev1.LifecycleHandler { return l.PostStart })},
	} {
		if !slices.ContainsFunc(h.Lives, kind.in) {
			t.Errorf("no %s is drawn in 300 lives", kind.what)
		}
	}
}

// TestHostNetworkProbesInside looks for probes and hooks that would ask the node instead of the pod.
func TestHostNetworkProbesInside(t *testing.T) {
	for _, l := range Draw(2, 300, false).Lives {
		if !l.Pod.Spec.HostNetwork {
			continue
		}
		for _, c := range containers(l.Pod) {
			for _, p := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe, c.StartupProbe} {
				if p != nil && p.Exec == nil {
					t.Errorf("%s: %s on the host's network has the probe %+v", l.Name, c.Name, p)
				}
			}
			if c.Lifecycle == nil {
				continue
			}
			for _, hook := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
				if hook != nil && hook.HTTPGet != nil {
					t.Errorf("%s: %s on the host's network has the hook %+v", l.Name, c.Name, hook)
				}
			}
		}
	}
}
