package differ

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestEveryKindIsDrawn looks in 300 lives for each feature that a life can have.
func TestEveryKindIsDrawn(t *testing.T) {
	probe := func(is func(corev1.ProbeHandler) bool) func(*Life) bool {
		return func(l *Life) bool {
			return slices.ContainsFunc(containers(l.Pod), func(c corev1.Container) bool {
				return slices.ContainsFunc([]*corev1.Probe{c.ReadinessProbe, c.LivenessProbe, c.StartupProbe},
					func(p *corev1.Probe) bool {
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
	step := func(verb string) func(*Life) bool { return func(l *Life) bool { return len(l.steps(verb)) > 0 } }
	tolerates := func(is func(*int64) bool) func(*Life) bool {
		return func(l *Life) bool {
			return slices.ContainsFunc(l.Pod.Spec.Tolerations,
				func(t corev1.Toleration) bool { return is(t.TolerationSeconds) })
		}
	}
	has := func(is func(corev1.Container) bool) func(*Life) bool {
		return func(l *Life) bool { return slices.ContainsFunc(containers(l.Pod), is) }
	}
	h := Draw(1, 300, allPods)
	for _, kind := range []struct {
		what string
		in   func(*Life) bool
	}{
		{"exec probe", probe(func(p corev1.ProbeHandler) bool { return p.Exec != nil })},
		{"HTTP probe", probe(func(p corev1.ProbeHandler) bool { return p.HTTPGet != nil })},
		{
			"HTTP probe with headers",
			probe(func(p corev1.ProbeHandler) bool { return p.HTTPGet != nil && p.HTTPGet.HTTPHeaders != nil }),
		},
		{"TCP probe", probe(func(p corev1.ProbeHandler) bool { return p.TCPSocket != nil })},
		{"gRPC probe", probe(func(p corev1.ProbeHandler) bool { return p.GRPC != nil })},
		{"HTTP PreStop hook", hook(func(l *corev1.Lifecycle) *corev1.LifecycleHandler { return l.PreStop })},
		{"HTTP PostStart hook", hook(func(l *corev1.Lifecycle) *corev1.LifecycleHandler { return l.PostStart })},
		{"eviction", step(evict)},
		{"pod without tolerations", func(l *Life) bool { return len(l.Pod.Spec.Tolerations) == 0 }},
		{"pod that tolerates for ever", tolerates(func(s *int64) bool { return s == nil })},
		{"pod that tolerates for 2 s", tolerates(func(s *int64) bool { return s != nil && *s == 2 })},
		{"static pod", func(l *Life) bool { return l.Static && len(l.Pod.Spec.Tolerations) == 0 }},
		{"user namespace", func(l *Life) bool { return l.Pod.Spec.HostUsers != nil && !*l.Pod.Spec.HostUsers }},
		{
			"pod-level requests",
			func(l *Life) bool { return l.Pod.Spec.Resources != nil && l.Pod.Spec.Resources.Limits == nil },
		},
		{"pod-level limits", func(l *Life) bool { return l.Pod.Spec.Resources != nil && l.Pod.Spec.Resources.Limits != nil }},
		{"huge pages", has(func(c corev1.Container) bool { _, ok := c.Resources.Requests["hugepages-2Mi"]; return ok })},
		{"host port", has(func(c corev1.Container) bool {
			return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.HostPort != 0 })
		})},
		{"variable of a file", has(func(c corev1.Container) bool {
			return slices.ContainsFunc(c.Env,
				func(e corev1.EnvVar) bool { return e.ValueFrom != nil && e.ValueFrom.FileKeyRef != nil })
		})},
		{"mounted file of a ConfigMap", func(l *Life) bool {
			return has(func(c corev1.Container) bool {
				return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
					return m.SubPath != "" &&
						slices.ContainsFunc(l.Pod.Spec.Volumes,
							func(v corev1.Volume) bool { return v.Name == m.Name && v.ConfigMap != nil })
				})
			})(l)
		}},
		{"rule that restarts all containers", has(func(c corev1.Container) bool {
			return slices.ContainsFunc(c.RestartPolicyRules,
				func(r corev1.ContainerRestartRule) bool { return r.Action == "RestartAllContainers" })
		})},
		{"object that comes late", func(l *Life) bool { return len(l.lateObjects()) > 0 }},
		{"call that hangs", func(l *Life) bool {
			return slices.ContainsFunc(l.Faults, func(f Fault) bool { return f.DelayMS >= 8000 && f.DelayMS < 20000 })
		}},
		{"init container out of memory", func(l *Life) bool {
			return slices.ContainsFunc(l.Pod.Spec.InitContainers, func(c corev1.Container) bool {
				return c.RestartPolicy == nil && strings.Contains(l.program(c.Name, 0), "oom")
			})
		}},
		{"sidecar out of memory", func(l *Life) bool {
			return slices.ContainsFunc(l.Pod.Spec.InitContainers, func(c corev1.Container) bool {
				return c.RestartPolicy != nil && strings.Contains(l.program(c.Name, 0), "oom")
			})
		}},
	} {
		if !slices.ContainsFunc(h.Lives, kind.in) {
			t.Errorf("no %s is drawn in 300 lives", kind.what)
		}
	}
}

// TestEveryInterludeIsDrawn looks in 100 histories for each kind of interlude.
func TestEveryInterludeIsDrawn(t *testing.T) {
	drawn := map[string]bool{}
	for seed := range uint64(100) {
		for _, kind := range Draw(seed, 0, allPods).Between {
			drawn[kind] = true
		}
	}
	for _, kind := range []string{
		"nothing", "restart agent", "kill agent", "freeze agent", "restart runtime", "lose events",
		"taint node", "cordon node", "cut off", "cut off, given up",
	} {
		if !drawn[kind] {
			t.Errorf("%q is not drawn in 100 histories", kind)
		}
	}
}

// TestHostNetworkProbesInside looks for probes and hooks that would go to the node instead of the pod.
func TestHostNetworkProbesInside(t *testing.T) {
	for _, l := range Draw(2, 300, allPods).Lives {
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

// TestRealHistoriesCanBeLived looks in 300 lives for features that cannot be run on containerd.
func TestRealHistoriesCanBeLived(t *testing.T) {
	verbs := map[string]bool{}
	for _, l := range Draw(1, 300, realPods).Lives {
		if len(l.Faults) > 0 {
			t.Errorf("%s has faults", l.Name)
		}
		for _, c := range containers(l.Pod) {
			if !slices.Contains([]string{"app:1", "app:2", "app:3"}, c.Image) {
				t.Errorf("%s has image %s", l.Name, c.Image)
			}
			for _, p := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe, c.StartupProbe} {
				if p != nil && p.Exec == nil {
					t.Errorf("%s has a network probe", l.Name)
				}
			}
		}
		for _, a := range l.Acts {
			for _, s := range slices.Concat(a.Steps, a.Down) {
				verbs[s.Verb] = true
			}
		}
	}
	if verbs[oom] {
		t.Error("a container is to run out of memory")
	}
	for _, verb := range []string{exit, killBox, sick, patch, resize, ephemeral, putObject, remove, evict} {
		if !verbs[verb] {
			t.Errorf("no step is %q", verb)
		}
	}
	interludes := map[string]bool{}
	for seed := range uint64(100) {
		for _, kind := range Draw(seed, 0, realPods).Between {
			interludes[kind] = true
		}
	}
	if interludes[loseEvents] || !interludes[restartRuntime] || !interludes[killAgent] {
		t.Errorf("interludes are %v", interludes)
	}
}
