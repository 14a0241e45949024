package podplan

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

// For each reason to replace a sandbox, its containers are stopped, then the sandbox, and the next sandbox has the next
// attempt number.
func TestReplacedSandboxes(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-34")
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
		{"on the host's network",
			[]pod.Sandbox{box("s0", 1, func(s *pod.Sandbox) { s.HostNetwork = true })}, "stop sandbox s0", 2},
		{"without an address", []pod.Sandbox{box("s0", 1, func(s *pod.Sandbox) { s.IPs = nil })}, "stop sandbox s0", 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := spec("a", v1.RestartPolicyAlways)
			decide := func(c pod.Container, down bool, stopped map[string]bool) Plan {
				have := pod.Runtime{
					Sandboxes:  append([]pod.Sandbox(nil), tc.sandboxes...),
					Containers: []pod.Container{c},
				}
				for i := range have.Sandboxes {
					have.Sandboxes[i].Ready = have.Sandboxes[i].Ready && !down
				}
				return decide(Input{
					Now:       now,
					Pod:       p,
					Have:      have,
					Images:    images(p, 1),
					Probes:    started("a"),
					Readiness: Readiness{NetworkReady: true, VolumesReady: true},
					History:   History{SandboxStopped: stopped},
				})
			}
			if got := say(decide(running("a"), false, nil)); got != "stop a-id" {
				t.Errorf("with a container that runs: %s", got)
			}
			if got := say(decide(exited("a", 137), false, nil)); tc.stops != "" && got != tc.stops {
				t.Errorf("with its container down: %s, want %s", got, tc.stops)
			}
			replaced := func(stopped map[string]bool) []Step {
				plan := decide(exited("a", 137), true, stopped)
				return slices.DeleteFunc(plan.Steps, func(s Step) bool { return s.Verb == RemoveSandbox })
			}
			if steps := replaced(nil); len(steps) == 0 || steps[0].Verb != StopSandbox ||
				steps[0].Target != Sandbox("s0") {
				t.Errorf("with its sandbox down: %+v, want it stopped", steps)
			}
			steps := replaced(map[string]bool{"s0": true, "old": true})
			if len(steps) != 1 || steps[0].Verb != RunSandbox || steps[0].Attempt != tc.attempt {
				t.Errorf("with its sandbox stopped: %+v, want a sandbox %d", steps, tc.attempt)
			}
		})
	}
	plan := decide(Input{
		Now:       now,
		Pod:       spec("a", v1.RestartPolicyAlways),
		Readiness: Readiness{NetworkReady: true, VolumesReady: true},
	})
	if len(plan.Steps) == 0 || plan.Steps[0].Verb != RunSandbox || plan.Steps[0].Attempt != 0 {
		t.Errorf("without a sandbox: %+v, want the first", plan.Steps)
	}
}

// A sandbox that died is stopped once, before the next one is run and when its pod ends: its network is held
// until then.
func TestDeadSandboxesAreStopped(t *testing.T) {
	dead := have(false, exited("a", 1))
	gone := &Termination{Deadline: now.Add(30 * time.Second)}
	for _, tc := range []struct {
		name    string
		in      Input
		want    string
		stopped bool
	}{
		{"the pod goes on", Input{Readiness: Readiness{NetworkReady: true}}, "stop sandbox s0", false},
		{"it was stopped", Input{
			Readiness: Readiness{NetworkReady: true},
			History:   History{SandboxStopped: map[string]bool{"s0": true}},
		},
			"run sandbox", false},
		{
			"it is being stopped",
			Input{Busy: map[Key]Task{{Target: Sandbox("s0")}: {Verb: StopSandbox}}, Readiness: Readiness{NetworkReady: true}},
			"",
			false,
		},
		{"it could not be stopped",
			Input{
				RetryAt:   map[Key]time.Time{{Target: Sandbox("s0")}: now.Add(time.Second)},
				Readiness: Readiness{NetworkReady: true},
			}, "", false},
		{"there is no network yet", Input{}, "", false},
		{
			"device plugins have yet to come",
			Input{Readiness: Readiness{NetworkReady: true, DevicesPending: true}},
			"stop sandbox s0",
			false,
		},
		{"the pod ends", Input{Termination: gone}, "stop sandbox s0", false},
		{"the pod ends, and it is being stopped",
			Input{Termination: gone, Busy: map[Key]Task{{Target: Sandbox("s0")}: {Verb: StopSandbox}}}, "", false},
		{
			"the pod ends, and it was stopped",
			Input{Termination: gone, History: History{SandboxStopped: map[string]bool{"s0": true}}},
			"",
			true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := tc.in
			in.Now, in.Pod, in.Have = now, spec("a", v1.RestartPolicyAlways), dead
			plan := decide(in)
			if got := say(plan); got != tc.want || plan.State >= Terminated != tc.stopped {
				t.Errorf("%q, stopped: %v; want %q, %v", got, plan.State >= Terminated, tc.want, tc.stopped)
			}
		})
	}
	// Everything of an orphaned pod is removed, and RemovePodSandbox stops the sandbox first.
	if got := say(decide(Input{Now: now, Have: dead, Source: Source{Missing: true}})); got != "remove a-id" {
		t.Errorf("of an orphaned pod: %q, want its container removed", got)
	}
}

// Ephemeral containers start before init containers, and these before regular ones. A resize that the pod's cgroup does
// not have yet delays regular containers only.
func TestOrderOfStarts(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-36")
	p := spec("i : a b", v1.RestartPolicyAlways)
	p.Spec.EphemeralContainers = []v1.EphemeralContainer{{
		EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e", Image: "i"},
	}}
	have := have(true)
	for _, want := range []string{"e", "i", "a", "b"} {
		for _, resizing := range []bool{true, false} {
			plan := decide(Input{
				Now:       now,
				Pod:       p,
				Have:      have,
				Images:    images(p, 0),
				Probes:    started("a", "b", "e"),
				Resize:    ResizeNeed{Open: resizing},
				Readiness: Readiness{NetworkReady: true, VolumesReady: true},
			})
			started := ""
			for _, s := range plan.Steps {
				if s.Verb == Start {
					started += s.Target.Name
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

// Containers that cannot be stopped are stopped with their sandbox, but not before the grace period is over.
func TestUnstoppableContainers(t *testing.T) {
	later, over := now.Add(time.Second), &Termination{Deadline: now}
	a, b := Key{Target: Instance("a-id")}, Key{Target: Instance("b-id")}
	for _, tc := range []struct {
		name        string
		terminating *Termination
		retry       map[Key]time.Time
		busy        map[Key]Task
		want        string
	}{
		{"they have time", &Termination{Deadline: later}, map[Key]time.Time{a: later, b: later}, nil, ""},
		{"one has yet to be asked", over, map[Key]time.Time{a: later}, nil, "stop b-id"},
		{"none of them can be stopped", over, map[Key]time.Time{a: later, b: later}, nil, "stop sandbox s0"},
		{"one is being stopped", over, map[Key]time.Time{a: later},
			map[Key]Task{b: {Verb: Stop, Deadline: now}}, ""},
		{"they are tried again first", over, map[Key]time.Time{a: now, b: now}, nil, "stop a-id, stop b-id"},
		{"the sandbox cannot be stopped either", over,
			map[Key]time.Time{a: later, b: later, {Target: Sandbox("s0")}: later}, nil, ""},
		{"no source has the pod, nor its grace period", nil, map[Key]time.Time{a: later, b: later}, nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := Input{
				Now:         now,
				Pod:         spec("a b", v1.RestartPolicyAlways),
				Have:        have(true, running("a"), running("b")),
				Termination: tc.terminating,
				RetryAt:     tc.retry,
				Busy:        tc.busy,
			}
			if tc.terminating == nil {
				in.Pod = nil
			}
			if got := say(decide(in)); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
