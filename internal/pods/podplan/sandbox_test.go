package podplan

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

// Whatever is wrong with a sandbox, what runs in it is stopped, the sandbox is stopped, and the next one has the next
// number.
func TestSandboxesThatAreReplaced(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-34")
	box := func(id string, attempt uint32, edit func(*pod.Sandbox)) pod.Sandbox {
		s := pod.Sandbox{ID: id, Attempt: attempt, Ready: true, IPs: []string{"10.0.0.1"}}
		if edit != nil {
			edit(&s)
		}
		return s
	}
	for _, tc := range []struct {
		name      string
		sandboxes []pod.Sandbox
		stops     string // of sandboxes, once the container is down
		attempt   int
	}{
		{"not ready", []pod.Sandbox{box("s0", 0, func(s *pod.Sandbox) { s.Ready = false })}, "", 1},
		{"two are ready", []pod.Sandbox{box("s0", 4, nil), box("old", 3, nil)}, "stop sandbox s0, stop sandbox old", 5},
		{"on the host's network", []pod.Sandbox{box("s0", 1, func(s *pod.Sandbox) { s.HostNetwork = true })}, "stop sandbox s0", 2},
		{"without an address", []pod.Sandbox{box("s0", 1, func(s *pod.Sandbox) { s.IPs = nil })}, "stop sandbox s0", 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := spec("a", v1.RestartPolicyAlways)
			decide := func(c pod.Container, down bool) Plan {
				have := pod.Runtime{Sandboxes: append([]pod.Sandbox(nil), tc.sandboxes...), Containers: []pod.Container{c}}
				for i := range have.Sandboxes {
					have.Sandboxes[i].Ready = have.Sandboxes[i].Ready && !down
				}
				return Decide(Input{Now: now, Pod: p, NetworkReady: true, VolumesReady: true, Have: have,
					Images: images(p, 1), Probes: started("a")})
			}
			if got := say(decide(running("a"), false)); got != "stop a-id" {
				t.Errorf("with a container that runs: %s", got)
			}
			if got := say(decide(exited("a", 137), false)); tc.stops != "" && got != tc.stops {
				t.Errorf("with its container down: %s, want %s", got, tc.stops)
			}
			steps := slices.DeleteFunc(decide(exited("a", 137), true).Steps, func(s Step) bool { return s.Verb == RemoveSandbox })
			if len(steps) != 1 || steps[0].Verb != RunSandbox || steps[0].Attempt != tc.attempt {
				t.Errorf("with its sandbox down: %+v, want a sandbox %d", steps, tc.attempt)
			}
		})
	}
	plan := Decide(Input{Now: now, Pod: spec("a", v1.RestartPolicyAlways), NetworkReady: true, VolumesReady: true})
	if len(plan.Steps) == 0 || plan.Steps[0].Verb != RunSandbox || plan.Steps[0].Attempt != 0 {
		t.Errorf("without a sandbox: %+v, want the first", plan.Steps)
	}
}

// Ephemeral containers come before init containers, these before regular ones, and a resize for which the pod has no
// room yet before those alone.
func TestOrderOfStarts(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-36")
	p := spec("i : a b", v1.RestartPolicyAlways)
	p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e", Image: "i"}}}
	have := have(true)
	for _, want := range []string{"e", "i", "a", "b"} {
		for _, resizing := range []bool{true, false} {
			plan := Decide(Input{Now: now, Pod: p, Have: have, NetworkReady: true, VolumesReady: true, Images: images(p, 0),
				Probes: started("a", "b", "e"), Resizing: resizing})
			started := ""
			for _, s := range plan.Steps {
				if s.Verb == Start {
					started += s.Target
				}
			}
			expected := want
			if resizing && (want == "a" || want == "b") {
				expected = ""
			}
			if started != expected {
				t.Errorf("resizing %v: %q starts, want %q", resizing, started, expected)
			}
		}
		c := running(want)
		if want == "i" {
			c = exited("i", 0)
		}
		have.Containers = append(have.Containers, c)
	}
}
