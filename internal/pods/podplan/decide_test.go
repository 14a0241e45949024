package podplan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// spec builds a pod: names of init containers come before a colon, a + marks a sidecar, and a ! a container whose exit
// with 1 restarts all containers.
func spec(containers string, policy v1.RestartPolicy) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"},
		Spec: v1.PodSpec{RestartPolicy: policy, TerminationGracePeriodSeconds: ptr.To[int64](30)}}
	inits, regular, ok := strings.Cut(containers, ":")
	if !ok {
		inits, regular = "", inits
	}
	for _, n := range strings.Fields(inits) {
		c := named(strings.TrimPrefix(n, "+"))
		if strings.HasPrefix(n, "+") {
			c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	for _, n := range strings.Fields(regular) {
		p.Spec.Containers = append(p.Spec.Containers, named(n))
	}
	return p
}

func named(n string) v1.Container {
	c := v1.Container{Name: strings.TrimPrefix(n, "!"), Image: "i"}
	if c.Name != n {
		c.RestartPolicyRules = []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
				Operator: v1.ContainerRestartRuleOnExitCodesOpIn,
				Values:   []int32{1},
			}}}
	}
	return c
}

func sandbox(ready bool) pod.Sandbox {
	return pod.Sandbox{ID: "s0", Ready: ready, IPs: []string{"10.0.0.1"}}
}

func have(ready bool, cs ...pod.Container) pod.Runtime {
	return pod.Runtime{Sandboxes: []pod.Sandbox{sandbox(ready)}, Containers: cs}
}

func instance(name string, state pod.State) pod.Container {
	return pod.Container{
		ID:        name + "-id",
		Name:      name,
		SandboxID: "s0",
		State:     state,
		Hash:      pod.Hash(&v1.Container{Name: name, Image: "i"}),
		StartedAt: now.Add(-time.Minute),
	}
}

func running(name string) pod.Container { return instance(name, pod.StateRunning) }

func exited(name string, code int32) pod.Container {
	c := instance(name, pod.StateExited)
	c.ExitCode, c.FinishedAt = code, now.Add(-time.Second)
	return c
}

// before is an earlier instance.
func before(c pod.Container, attempt int) pod.Container {
	c.ID, c.Attempt = fmt.Sprintf("%s-%d", c.ID, attempt), attempt
	return c
}

// again is a container that was created for the second time and not started yet.
func again(name string) pod.Container {
	c := instance(name, pod.StateCreated)
	c.ID, c.Attempt, c.StartedAt = name+"-id-1", 1, time.Time{}
	return c
}

// images returns ready images of all containers for an attempt.
func images(p *v1.Pod, attempt int) map[string]Image {
	m := map[string]Image{}
	for _, c := range pod.Containers(p) {
		m[c.Name] = Image{Attempt: attempt, Ready: true}
	}
	return m
}

func started(names ...string) map[string]Probe {
	m := map[string]Probe{}
	for _, n := range names {
		m[n+"-id"] = Probe{Started: true}
	}
	return m
}

// recreated is a pod whose containers have ended in an earlier sandbox, a minute ago.
func recreated(names ...string) pod.Runtime {
	rt := pod.Runtime{
		Sandboxes: []pod.Sandbox{{ID: "s1", Attempt: 1, Ready: true, IPs: []string{"10.0.0.2"}}, {ID: "s0"}},
	}
	for _, n := range names {
		rt.Containers = append(rt.Containers, exited(n, 1))
	}
	return rt
}

// decide returns the plan for a pod that was admitted.
func decide(in Input) Plan {
	in.Recovered = true
	in.Admission.State = Admitted
	return Decide(in)
}

// view is the view of a pod without restarts that only the agent knows of.
func view(p *v1.Pod, have pod.Runtime) View { return View{Pod: p, Have: have} }

func say(p Plan) string {
	var out []string
	for _, s := range p.Steps {
		out = append(out, strings.TrimSpace(string(s.Verb)+" "+s.Target.Name))
	}
	return strings.Join(out, ", ")
}

func TestDecide(t *testing.T) {
	parity.Proves(t, "RT-29")
	parity.ProvesPart(t, 2, "RT-31")
	always := v1.RestartPolicyAlways
	for _, tc := range []struct {
		name string
		pod  *v1.Pod
		in   Input
		want string
		wake time.Time
		stop bool
	}{
		{name: "a new pod gets a sandbox, and its images are fetched meanwhile", pod: spec("a b", always),
			in: Input{
				Have:      pod.Runtime{},
				Readiness: Readiness{NetworkReady: true},
			}, want: "run sandbox, fetch image a, fetch image b"},
		{name: "without a network there is no sandbox", pod: spec("a", always), in: Input{}, want: "fetch image a"},
		{name: "there is no sandbox before the pod's device plugins have registered", pod: spec("a", always), in: Input{Readiness: Readiness{NetworkReady: true, DevicesPending: true}}, want: "fetch image a"},
		{name: "there is no sandbox before what the pod claims is prepared", pod: spec("a", always), in: Input{Readiness: Readiness{NetworkReady: true, ClaimsPending: true}}, want: "fetch image a"},
		{name: "no container starts before that either", pod: spec("a", always),
			in: Input{
				Have:      have(true),
				Images:    images(spec("a", always), 0),
				Readiness: Readiness{VolumesReady: true, ClaimsPending: true},
			}, want: ""},
		{
			name: "nothing starts before the volumes are ready",
			pod:  spec("a", always),
			in:   Input{Have: have(true)},
			want: "fetch image a",
		},
		{name: "containers start in order, the second after the first", pod: spec("a b", always),
			in: Input{
				Have:      have(true),
				Images:    images(spec("a b", always), 0),
				Readiness: Readiness{VolumesReady: true},
			}, want: "start a"},
		{name: "the second starts when the first runs", pod: spec("a b", always),
			in: Input{
				Have:      have(true, running("a")),
				Images:    images(spec("a b", always), 0),
				Probes:    started("a"),
				Readiness: Readiness{VolumesReady: true},
			}, want: "start b"},
		{
			name: "in a new sandbox the order holds again: the second waits for the first one's image",
			pod:  spec("a b", always),
			in: Input{
				Have:      recreated("a", "b"),
				Images:    map[string]Image{"b": {Attempt: 1, Ready: true}},
				Readiness: Readiness{VolumesReady: true},
			},
			want: "fetch image a",
		},
		{
			name: "in the same sandbox a restart waits for no other's image",
			pod:  spec("a b", always),
			in: Input{
				Have:      have(true, exited("a", 1), exited("b", 1)),
				Images:    map[string]Image{"b": {Attempt: 1, Ready: true}},
				Readiness: Readiness{VolumesReady: true},
			},
			want: "fetch image a, start b",
		},
		{name: "a start under way keeps the next one back", pod: spec("a b", always),
			in: Input{
				Have:      have(true),
				Images:    images(spec("a b", always), 0),
				Busy:      map[Key]Task{{Target: Container("a")}: {Verb: Start}},
				Readiness: Readiness{VolumesReady: true},
			}, want: ""},
		{name: "init containers come first", pod: spec("i j : a", always),
			in: Input{
				Have:      have(true),
				Images:    images(spec("i j : a", always), 0),
				Readiness: Readiness{VolumesReady: true},
			}, want: "start i"},
		{name: "the next init container waits for the first to succeed", pod: spec("i j : a", always),
			in: Input{
				Have:      have(true, running("i")),
				Images:    images(spec("i j : a", always), 0),
				Readiness: Readiness{VolumesReady: true},
			}, want: ""},
		{name: "the next init container starts after one has succeeded", pod: spec("i j : a", always),
			in: Input{
				Have:      have(true, exited("i", 0)),
				Images:    images(spec("i j : a", always), 0),
				Readiness: Readiness{VolumesReady: true},
			}, want: "start j"},
		{name: "a failed init container is tried again", pod: spec("i : a", always),
			in: Input{
				Have:      have(true, exited("i", 1)),
				Images:    map[string]Image{"i": {Attempt: 1, Ready: true}, "a": {Ready: true}},
				Readiness: Readiness{VolumesReady: true},
			}, want: "start i"},
		{name: "a sidecar lets the pod on when it has started", pod: spec("+s : a", always),
			in: Input{
				Have:      have(true, running("s")),
				Images:    images(spec("+s : a", always), 0),
				Probes:    started("s"),
				Readiness: Readiness{VolumesReady: true},
			}, want: "start a"},
		{name: "a sidecar that has not started holds the pod back", pod: spec("+s : a", always),
			in: Input{
				Have:      have(true, running("s")),
				Images:    images(spec("+s : a", always), 0),
				Probes:    map[string]Probe{},
				Readiness: Readiness{VolumesReady: true},
			}, want: ""},
		{name: "a sidecar that died again and again does not hold back what comes after one that has begun", pod: spec("+s i j : a", always),
			in: Input{
				Have:      have(true, exited("s", 1), exited("i", 0)),
				Images:    images(spec("j", always), 0),
				Readiness: Readiness{VolumesReady: true},
				History:   History{Backoff: map[string]Backoff{"s": {Delay: 10 * time.Second, Since: now}}},
			},
			want: "fetch image a, start j", wake: now.Add(9 * time.Second)},
		{name: "it holds back what comes right after it", pod: spec("+s i : a", always),
			in: Input{
				Have:      have(true, exited("s", 1)),
				Images:    images(spec("i a", always), 0),
				Readiness: Readiness{VolumesReady: true},
				History:   History{Backoff: map[string]Backoff{"s": {Delay: 10 * time.Second, Since: now}}},
			},
			want: "", wake: now.Add(9 * time.Second)},
		{name: "a sidecar that died is restarted while the pod runs", pod: spec("+s : a", v1.RestartPolicyNever),
			in: Input{
				Have:      have(true, running("a"), exited("s", 0)),
				Images:    images(spec("+s : a", always), 1),
				Probes:    started("a"),
				Readiness: Readiness{VolumesReady: true},
			}, want: "start s"},
		{name: "what is settled is left alone", pod: spec("a", always),
			in: Input{
				Have:      have(true, running("a")),
				Probes:    started("a"),
				Readiness: Readiness{VolumesReady: true},
			}, want: ""},
		{name: "another image replaces the container", pod: spec("a", always),
			in: Input{
				Have: have(true, pod.Container{
					ID:        "a-id",
					Name:      "a",
					SandboxID: "s0",
					State:     pod.StateRunning,
					Hash:      "old",
				}),
				Readiness: Readiness{VolumesReady: true},
			}, want: "stop a-id"},
		{name: "a crashed container waits out its back-off", pod: spec("a", always),
			in: Input{
				Have:      have(true, exited("a", 1)),
				Images:    images(spec("a", always), 1),
				Readiness: Readiness{VolumesReady: true},
				History:   History{Backoff: map[string]Backoff{"a": {Delay: 10 * time.Second, Since: now.Add(-2 * time.Second)}}},
			},
			want: "", wake: now.Add(9 * time.Second)},
		{name: "with policy Never what ended is not started again", pod: spec("a b", v1.RestartPolicyNever),
			in: Input{
				Have:      have(true, exited("a", 1), running("b")),
				Probes:    started("b"),
				Readiness: Readiness{VolumesReady: true},
			}, want: ""},
		{name: "with policy OnFailure success is the end", pod: spec("a b", v1.RestartPolicyOnFailure),
			in: Input{
				Have:      have(true, exited("a", 0), exited("b", 1)),
				Images:    images(spec("a b", always), 1),
				Readiness: Readiness{VolumesReady: true},
			},
			want: "start b"},
		{name: "a container that was made and never started makes room for its attempt", pod: spec("a", always),
			in: Input{
				Have:      have(true, instance("a", pod.StateCreated)),
				Images:    images(spec("a", always), 0),
				Readiness: Readiness{VolumesReady: true},
			}, want: "remove a-id"},
		{name: "a container that is being started is left alone", pod: spec("a", always),
			in: Input{
				Have:      have(true, instance("a", pod.StateCreated)),
				Images:    images(spec("a", always), 0),
				Busy:      map[Key]Task{{Target: Container("a")}: {Verb: Start}},
				Readiness: Readiness{VolumesReady: true},
			}, want: ""},
		{name: "the containers of a dead sandbox are stopped", pod: spec("a", always),
			in: Input{
				Have:      have(false, running("a")),
				Readiness: Readiness{VolumesReady: true, NetworkReady: true},
			}, want: "stop a-id"},
		{
			name: "a dead sandbox is replaced when its containers are down",
			pod:  spec("a", always),
			in: Input{
				Have:      have(false, exited("a", 137)),
				Readiness: Readiness{VolumesReady: true, NetworkReady: true},
				History:   History{SandboxStopped: map[string]bool{"s0": true}},
			},
			want: "run sandbox",
		},
		{name: "an older sandbox without containers is removed", pod: spec("a", always),
			in: Input{
				Probes: started("a"),
				Have: pod.Runtime{
					Sandboxes:  []pod.Sandbox{sandbox(true), {ID: "old"}},
					Containers: []pod.Container{running("a")},
				},
				Readiness: Readiness{VolumesReady: true},
			}, want: "remove sandbox old"},
		{
			name: "an older sandbox that is ready is not removed before it was stopped",
			pod:  spec("a", always),
			in: Input{Probes: started("a"), Have: pod.Runtime{
				Sandboxes:  []pod.Sandbox{sandbox(true), {ID: "old", Ready: true}},
				Containers: []pod.Container{running("a")},
			}, Readiness: Readiness{VolumesReady: true}},
			want: "stop a-id",
		},
		{name: "an older sandbox with a container stays as long as that", pod: spec("a", always),
			in: Input{Probes: started("a"), Have: pod.Runtime{Sandboxes: []pod.Sandbox{sandbox(true), {ID: "old"}},
				Containers: []pod.Container{
					running("a"),
					{ID: "x", Name: "a", SandboxID: "old", State: pod.StateExited},
				}}, Readiness: Readiness{VolumesReady: true}}, want: ""},
		{name: "several older sandboxes without containers all go, the newest stays though it is dead", pod: spec("a", v1.RestartPolicyNever),
			in: Input{Have: pod.Runtime{
				Sandboxes:  []pod.Sandbox{sandbox(false), {ID: "older"}, {ID: "oldest"}},
				Containers: []pod.Container{exited("a", 1)},
			}},
			want: "remove sandbox older, remove sandbox oldest, stop sandbox s0"},
		{name: "of the ended instances the newest stays", pod: spec("i : a", v1.RestartPolicyNever),
			in: Input{
				Probes: started("a"),
				Have: have(true, running("a"), before(exited("a", 1), 2), before(exited("a", 1), 1),
					before(exited("a", 1), 0), exited("i", 0), before(exited("i", 1), 0)),
				Readiness: Readiness{VolumesReady: true},
			},
			want: "remove a-id-1, remove a-id-0, remove i-id-0"},
		{name: "an older instance that runs is not removed", pod: spec("a", always),
			in: Input{
				Probes:    started("a"),
				Have:      have(true, running("a"), exited("a", 1), before(running("a"), 1)),
				Readiness: Readiness{VolumesReady: true},
			}, want: ""},
		{name: "one more whose state is unknown is stopped, not removed", pod: spec("a", always),
			in: Input{
				Probes:    started("a"),
				Have:      have(true, running("a"), exited("a", 1), before(instance("a", pod.StateUnknown), 0)),
				Readiness: Readiness{VolumesReady: true},
			}, want: "stop a-id-0"},
		{name: "as the only one beside the one that runs it stays", pod: spec("a", always),
			in: Input{
				Probes:    started("a"),
				Have:      have(true, running("a"), before(instance("a", pod.StateUnknown), 0)),
				Readiness: Readiness{VolumesReady: true},
			}, want: ""},
		{name: "an instance whose state is unknown is stopped, not removed", pod: spec("a", always),
			in: Input{
				Have:      have(true, instance("a", pod.StateUnknown)),
				Readiness: Readiness{VolumesReady: true},
			}, want: "stop a-id"},
		{name: "also where no source has the pod any more", pod: spec("a b", always),
			in: Input{
				Termination: &Termination{Deadline: now.Add(time.Minute)},
				Source:      Source{Missing: true},
				Have:        have(true, instance("a", pod.StateUnknown), running("b"), before(exited("b", 1), 0)),
			}, want: "stop a-id, stop b-id"},
		{name: "a pod that terminates keeps one ended instance of each container", pod: spec("a b", always),
			in: Input{
				Termination: &Termination{Deadline: now.Add(time.Minute)},
				Have:        have(true, running("b"), exited("a", 1), before(exited("a", 1), 0)),
			}, want: "remove a-id-0, stop b-id"},
		{name: "of a pod that is gone all sandboxes go", pod: spec("a", always),
			in: Input{
				Termination: &Termination{Deadline: now},
				Source:      Source{Missing: true},
				Have:        pod.Runtime{Sandboxes: []pod.Sandbox{sandbox(false), {ID: "older"}}},
			}, want: "remove sandbox s0, remove sandbox older", stop: true},
		{name: "a finished pod gets no new sandbox, and the old one gives its network back", pod: spec("a", v1.RestartPolicyNever),
			in: Input{
				Have:      have(false, exited("a", 1)),
				Readiness: Readiness{VolumesReady: true, NetworkReady: true},
			}, want: "stop sandbox s0"},
		{name: "a terminating pod stops its containers together", pod: spec("a b", always),
			in: Input{
				Termination: &Termination{Deadline: now.Add(time.Minute)},
				Have:        have(true, running("a"), running("b")),
			}, want: "stop a-id, stop b-id"},
		{name: "sidecars stop after the others, the last first", pod: spec("+s +t : a", always),
			in: Input{
				Termination: &Termination{Deadline: now.Add(time.Minute)},
				Have:        have(true, exited("a", 0), running("t"), running("s")),
			}, want: "stop t-id, announce stop s-id", wake: now.Add(time.Minute)},
		{name: "sidecars get their preStop hooks at once", pod: spec("+s +t : a", always),
			in: Input{
				Termination: &Termination{Deadline: now.Add(time.Minute)},
				Have:        have(true, running("a"), running("t"), running("s")),
				History:     History{Announced: map[string]bool{"s-id": true}},
			},
			want: "stop a-id, announce stop t-id", wake: now.Add(time.Minute)},
		{name: "a sidecar whose turn comes waits for its preStop hook", pod: spec("+s : a", always),
			in: Input{
				Termination: &Termination{Deadline: now.Add(time.Minute)},
				Have:        have(true, exited("a", 0), running("s")),
				Busy:        map[Key]Task{{Target: Instance("s-id")}: {Verb: AnnounceStop, Deadline: now.Add(time.Minute)}},
			}, want: "", wake: now.Add(time.Minute)},
		{name: "a shorter grace period reaches a preStop hook under way", pod: spec("+s : a", always),
			in: Input{
				Termination: &Termination{Deadline: now.Add(time.Second)},
				Have:        have(true, exited("a", 0), running("s")),
				Busy:        map[Key]Task{{Target: Instance("s-id")}: {Verb: AnnounceStop, Deadline: now.Add(time.Minute)}},
			}, want: "stop s-id", wake: now.Add(time.Second)},
		{name: "when the grace period is over all are stopped", pod: spec("+s +t : a", always),
			in: Input{
				Termination: &Termination{Deadline: now},
				Have:        have(true, running("a"), running("t"), running("s")),
			}, want: "stop a-id, stop s-id, stop t-id"},
		{name: "nothing starts for a pod that terminates", pod: spec("a", always),
			in: Input{
				Termination: &Termination{Deadline: now},
				Images:      images(spec("a", always), 0),
				Readiness:   Readiness{VolumesReady: true, NetworkReady: true},
			}, want: "", stop: true},
		{name: "a shorter grace period reaches a stop under way", pod: spec("a", always),
			in: Input{
				Termination: &Termination{Deadline: now.Add(time.Second)},
				Have:        have(true, running("a")),
				Busy:        map[Key]Task{{Target: Instance("a-id")}: {Verb: Stop, Deadline: now.Add(time.Minute)}},
			},
			want: "stop a-id"},
		{name: "the sandbox stops after the containers", pod: spec("a", always),
			in: Input{
				Termination: &Termination{Deadline: now},
				Have:        have(true, exited("a", 0)),
			}, want: "stop sandbox s0"},
		{
			name: "what ended stays until no source knows the pod",
			pod:  spec("a", always),
			in: Input{
				Termination: &Termination{Deadline: now},
				Have:        have(false, exited("a", 0)),
				History:     History{SandboxStopped: map[string]bool{"s0": true}},
			},
			want: "",
			stop: true,
		},
		{name: "containers are removed before their sandbox", pod: spec("a", always),
			in: Input{
				Termination: &Termination{Deadline: now},
				Source:      Source{Missing: true},
				Have:        have(false, exited("a", 0)),
			}, want: "remove a-id", stop: true},
		{name: "the sandbox goes last", pod: spec("a", always),
			in: Input{
				Termination: &Termination{Deadline: now},
				Source:      Source{Missing: true},
				Have:        have(false),
			}, want: "remove sandbox s0", stop: true},
		{name: "a failed step is not repeated before its time", pod: spec("a", always),
			in: Input{
				Images:    images(spec("a", always), 0),
				RetryAt:   map[Key]time.Time{{Target: NewSandbox}: now.Add(time.Second)},
				Readiness: Readiness{NetworkReady: true},
			},
			want: "", wake: now.Add(time.Second)},
		{name: "a failed liveness probe stops the container", pod: spec("a", always),
			in: Input{
				Have:      have(true, running("a")),
				Probes:    map[string]Probe{"a-id": {Started: true, LivenessFailed: true}},
				Readiness: Readiness{VolumesReady: true},
			}, want: "stop a-id"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.in.Now, tc.in.Pod = now, tc.pod
			got := decide(tc.in)
			if say(got) != tc.want {
				t.Errorf("steps: %s\nwant:  %s", say(got), tc.want)
			}
			if !got.Wake.Equal(tc.wake) {
				t.Errorf("wake = %v, want %v", got.Wake, tc.wake)
			}
			if (got.State >= Terminated) != tc.stop {
				t.Errorf("stopped = %v, want %v", (got.State >= Terminated), tc.stop)
			}
		})
	}
}

func TestRuntimeOnlyPodUsesAnnotatedGracePeriod(t *testing.T) {
	c := running("a")
	c.Annotations = map[string]string{pod.AnnotationTerminationGracePeriod: "7"}
	plan := decide(Input{Now: now, Source: Source{Missing: true}, Have: have(true, c)})
	if len(plan.Steps) != 1 || plan.Steps[0].Verb != Stop || !plan.Steps[0].Deadline.Equal(now.Add(7*time.Second)) {
		t.Errorf("steps = %+v, want a stop within 7 s", plan.Steps)
	}
}

func TestBackoffDoublesAndStartsOver(t *testing.T) {
	parity.ProvesPart(t, 8, "LIFE-47")
	var b Backoff
	at := now
	if !b.Until(at).IsZero() {
		t.Error("the first restart waits")
	}
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		b = b.Next(at, DefaultBackoff)
		if b.Delay != want*time.Second {
			t.Fatalf("delay = %v, want %v", b.Delay, want*time.Second)
		}
		at = at.Add(b.Delay)
	}
	if got := b.Until(at); !got.Equal(at.Add(300 * time.Second)) {
		t.Errorf("until = %v, want 300 s after the exit", got)
	}
	if late := b.Since.Add(601 * time.Second); !b.Until(late).IsZero() ||
		b.Next(late, DefaultBackoff).Delay != 10*time.Second {
		t.Error("a container that behaved for 600 s does not start over")
	}
	// Also if the maximum delay is short.
	short := BackoffLimits{First: 3 * time.Second, Max: 3 * time.Second}
	b = Backoff{}.Next(now, short)
	for _, c := range []struct {
		after time.Duration
		waits bool
	}{{7 * time.Second, true}, {600 * time.Second, true}, {601 * time.Second, false}} {
		if waits := !b.Until(now.Add(c.after)).IsZero(); waits != c.waits {
			t.Errorf("with delays of 3 s at most, a container that ended %v after its restart waits: %v, want %v",
				c.after, waits, c.waits)
		}
	}
}

func TestBackoffLimits(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-48")
	for _, tc := range []struct {
		name    string
		longest time.Duration
		short   bool
		want    BackoffLimits
	}{
		{"as it is by default", 300 * time.Second, false, BackoffLimits{10 * time.Second, 300 * time.Second}},
		{"a node that waits less long", 40 * time.Second, false, BackoffLimits{10 * time.Second, 40 * time.Second}},
		{
			"a node that waits less than the first delay",
			2 * time.Second,
			false,
			BackoffLimits{2 * time.Second, 2 * time.Second},
		},
		{"short delays", 300 * time.Second, true, BackoffLimits{time.Second, 60 * time.Second}},
		{"short delays up to a limit that was set", 100 * time.Second, true, BackoffLimits{time.Second, 100 * time.Second}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Limits(tc.longest, tc.short); got != tc.want {
				t.Errorf("Limits = %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestPhase(t *testing.T) {
	parity.Proves(t, "LIFE-16", "LIFE-17")
	parity.ProvesPart(t, 4, "LIFE-18")
	parity.ProvesPart(t, 2, "LIFE-19")
	always, onFailure, never := v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever
	anew, first := recreated("a"), running("i")
	first.SandboxID = anew.Sandboxes[0].ID
	anew.Containers = append(anew.Containers, first)
	failing, failed := recreated("a"), exited("i", 1)
	failed.SandboxID = failing.Sandboxes[0].ID
	failing.Containers = append(failing.Containers, failed)
	for _, tc := range []struct {
		name        string
		pod         *v1.Pod
		have        pod.Runtime
		terminating bool
		want        v1.PodPhase
	}{
		{"nothing yet", spec("a", always), pod.Runtime{}, false, v1.PodPending},
		{"an init container runs", spec("i : a", always), have(true, running("i")), false, v1.PodPending},
		{"an init container runs again in a new sandbox", spec("i : a", always), anew, false, v1.PodPending},
		{"one that fails there is tried again, as are those after it", spec("i : a", always), failing, false, v1.PodRunning},
		{"one of two runs", spec("a b", always), have(true, running("a")), false, v1.PodPending},
		{"one runs, the state of the other is unknown", spec("a b", always),
			have(true, running("a"), instance("b", pod.StateUnknown)), false, v1.PodPending},
		{"all run", spec("a b", always), have(true, running("a"), running("b")), false, v1.PodRunning},
		{"one crashed and comes back", spec("a b", always), have(true, running("a"), exited("b", 1)), false, v1.PodRunning},
		{"all ended with success and come back", spec("a b", always),
			have(true, exited("a", 0), exited("b", 0)), false, v1.PodRunning},
		{"some come back, and one does not", spec("a b", onFailure),
			have(true, exited("a", 0), exited("b", 1)), false, v1.PodRunning},
		{"all crashed and come back", spec("a", always), have(true, exited("a", 1)), false, v1.PodRunning},
		{"one that crashed is made again", spec("a", always), have(true, again("a"), exited("a", 1)), false, v1.PodRunning},
		{"all have completed", spec("a b", onFailure), have(true, exited("a", 0), exited("b", 0)), false, v1.PodSucceeded},
		{"one failed for good", spec("a b", never), have(true, exited("a", 0), exited("b", 2)), false, v1.PodFailed},
		{"an init container failed for good", spec("i : a", never), have(true, exited("i", 1)), false, v1.PodFailed},
		{"an init container will be tried again", spec("i : a", onFailure), have(true, exited("i", 1)), false, v1.PodPending},
		{"a sidecar does not count", spec("+s : a", never), have(true, running("s"), exited("a", 0)), false, v1.PodSucceeded},
		{"nor does a sidecar that failed", spec("+s : a", never),
			have(true, exited("s", 1), exited("a", 0)), false, v1.PodSucceeded},
		{"stopped on request with success", spec("a", always), have(false, exited("a", 0)), true, v1.PodSucceeded},
		{"stopped on request with failure", spec("a", always), have(false, exited("a", 143)), true, v1.PodFailed},
		{"stopped on request, one of two with failure", spec("a b", always),
			have(false, exited("a", 0), exited("b", 1)), true, v1.PodFailed},
		{"stopped before it ever ran", spec("a", always), pod.Runtime{}, true, v1.PodFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := view(tc.pod, tc.have).Phase(tc.terminating); got != tc.want {
				t.Errorf("Phase = %s, want %s", got, tc.want)
			}
		})
	}
}

func TestLostContainerCountsAsKilled(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-20")
	p := spec("a", v1.RestartPolicyNever)
	p.Status.ContainerStatuses = []v1.ContainerStatus{
		{
			Name:         "a",
			ContainerID:  "containerd://gone",
			RestartCount: 2,
			State:        v1.ContainerState{Running: &v1.ContainerStateRunning{}},
		},
	}
	c, ok := view(p, pod.Runtime{}).Instance("a")
	const message = "The container could not be located when the pod was terminated"
	if !ok || c.ExitCode != 137 || c.Reason != "ContainerStatusUnknown" || c.Message != message || c.Attempt != 2 {
		t.Errorf("instance = %+v, %v", c, ok)
	}
	if got := view(p, pod.Runtime{}).Phase(false); got != v1.PodFailed {
		t.Errorf("Phase = %s, want Failed", got)
	}
}

// A container that ended before the clock was set back does not wait until the clock shows that time again. One that
// ends while the decision is made does wait.
func TestClockSetBackDelaysNoStart(t *testing.T) {
	for ahead, want := range map[time.Duration]string{5 * time.Minute: "start a", time.Second: "", -time.Second: ""} {
		p, c := spec("a", v1.RestartPolicyAlways), exited("a", 1)
		c.FinishedAt = now.Add(ahead)
		plan := decide(Input{
			Now:       now,
			Pod:       p,
			Have:      have(true, c),
			Images:    images(p, 1),
			Readiness: Readiness{NetworkReady: true, VolumesReady: true},
			History: History{
				Backoff: map[string]Backoff{"a": {Delay: 10 * time.Second, Since: now.Add(-time.Minute)}},
			},
		})
		if got := say(plan); got != want || (want == "") != plan.Wake.After(now) {
			t.Errorf("ended %v from now: %q, wake %v; want %q", ahead, got, plan.Wake, want)
		}
	}
}

// A container that the agent stopped to start it again waits only if the instance before it ended less than the
// back-off ago; then it waits from its own end.
func TestBackoffAfterAStop(t *testing.T) {
	ended := now.Add(-time.Second) // see exited
	const never = -1
	for _, tc := range []struct {
		name    string
		stopped string        // by the agent
		before  time.Duration // since the instance before it ended, in seconds
		delay   time.Duration // of the back-off, in seconds
		want    string
	}{
		{"it ended by itself", "", never, 10, ""},
		{"another one was stopped", "b-id", 60, 10, ""},
		{"nothing ended before it", "a-id", never, 10, "start a"},
		{"the one before ended long ago", "a-id", 10, 10, "start a"},
		{"the one before ended a moment ago", "a-id", 9, 10, ""},
		{"there is no back-off yet", "a-id", 9, 0, "start a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, replaced, wake := spec("a", v1.RestartPolicyAlways), map[string]time.Time{tc.stopped: {}}, time.Time{}
			if tc.before != never {
				replaced[tc.stopped] = ended.Add(-tc.before * time.Second)
			}
			if tc.want == "" {
				wake = ended.Add(tc.delay * time.Second)
			}
			plan := decide(Input{
				Now:       now,
				Pod:       p,
				Images:    images(p, 1),
				Have:      have(true, exited("a", 143)),
				Readiness: Readiness{NetworkReady: true, VolumesReady: true},
				History: History{
					Replaced: replaced,
					Backoff:  map[string]Backoff{"a": {Delay: tc.delay * time.Second, Since: now.Add(-time.Minute)}},
				},
			})
			if got := say(plan); got != tc.want || !plan.Wake.Equal(wake) {
				t.Errorf("%q, wake %v; want %q, %v", got, plan.Wake, tc.want, wake)
			}
		})
	}
}

// A container that was killed waits a second, because its sandbox may be dying, unless the agent has killed it.
func TestKilledContainerWaitsBeforeRestart(t *testing.T) {
	p, killed := spec("a", v1.RestartPolicyAlways), exited("a", 137)
	for want, replaced := range map[string]map[string]time.Time{"": nil, "start a": {"a-id": {}}} {
		plan := decide(Input{
			Now:       killed.FinishedAt,
			Pod:       p,
			Images:    images(p, 1),
			Have:      have(true, killed),
			Readiness: Readiness{NetworkReady: true, VolumesReady: true},
			History:   History{Replaced: replaced},
		})
		if got := say(plan); got != want {
			t.Errorf("with %v replaced: %q, want %q", replaced, got, want)
		}
	}
}

// One that was killed with an earlier sandbox does not wait: that its sandbox has died is known.
func TestKilledWithAnEarlierSandbox(t *testing.T) {
	p, killed := spec("a", v1.RestartPolicyAlways), exited("a", 137)
	for sandbox, want := range map[string]string{"s0": "", "old": "start a"} {
		killed.SandboxID = sandbox
		plan := decide(Input{
			Now:       killed.FinishedAt,
			Pod:       p,
			Images:    images(p, 1),
			Have:      have(true, killed),
			Readiness: Readiness{NetworkReady: true, VolumesReady: true},
		})
		if got := say(plan); got != want {
			t.Errorf("killed in sandbox %s: %q, want %q", sandbox, got, want)
		}
	}
}
