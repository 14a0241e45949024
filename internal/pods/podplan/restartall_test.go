package podplan

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

func TestRestartOfAll(t *testing.T) {
	reported := func(p *v1.Pod) *v1.Pod {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.AllContainersRestarting, Status: v1.ConditionTrue}}
		return p
	}
	never := v1.RestartPolicyNever
	for _, c := range []struct {
		name string
		pod  *v1.Pod
		in   Input
		want string
		wake time.Time
	}{
		{name: "everything that runs is stopped, with no time left", pod: spec("i +s : !a b", never),
			in:   Input{Have: have(true, exited("a", 1), running("b"), running("s"), exited("i", 0))},
			want: "stop b-id, stop s-id"},
		{name: "then all but the trigger are removed", pod: spec("i +s : !a b", never),
			in:   Input{Have: have(true, exited("a", 1), exited("b", 137), exited("s", 137), exited("i", 0))},
			want: "remove b-id, remove s-id, remove i-id"},
		{name: "the trigger stays until the status has arrived", pod: spec("!a b", never),
			in: Input{Have: have(true, exited("a", 1))}, want: "", wake: now.Add(4 * time.Second)},
		{name: "the trigger is removed last", pod: reported(spec("!a b", never)),
			in: Input{Have: have(true, exited("a", 1))}, want: "remove a-id"},
		{name: "a trigger in back-off leaves the others alone", pod: spec("!a b", never),
			in: Input{
				Have:    have(true, exited("a", 1), running("b")),
				History: History{Backoff: map[string]Backoff{"a": {Delay: 10 * time.Second, Since: now}}},
			},
			want: "", wake: now.Add(9 * time.Second)},
		{name: "those that come after the trigger begin first, to be restarted with it", pod: spec("i : !a b c", never),
			in: Input{
				Have:   have(true, exited("a", 1), exited("i", 0)),
				Images: images(spec("a b c", never), 0),
			}, want: "start b"},
		{name: "one that is being started is waited for", pod: spec("!a b", never),
			in: Input{
				Have:   have(true, exited("a", 1)),
				Images: images(spec("a b", never), 0),
				Busy:   map[Key]Task{{Target: Container("b")}: {Verb: Start}},
			}, want: ""},
		{name: "a trigger whose start has yet to end is not held back by what came before", pod: spec("!a b", never),
			in: Input{
				Have:    have(true, exited("a", 1), running("b")),
				Busy:    map[Key]Task{{Target: Container("a")}: {Verb: Start}},
				History: History{Backoff: map[string]Backoff{"a": {Delay: 10 * time.Second, Since: now}}},
			}, want: ""},
		{name: "one whose image is not there is not", pod: spec("!a b c", never),
			in: Input{
				Have:   have(true, exited("a", 1), running("c")),
				Images: images(spec("a c", never), 0),
			}, want: "stop c-id"},
		{name: "nor one that could not be started", pod: spec("!a b c", never),
			in: Input{
				Have:    have(true, exited("a", 1), running("c")),
				Images:  images(spec("a b c", never), 0),
				RetryAt: map[Key]time.Time{{Target: Container("b")}: now.Add(time.Second)},
			}, want: "stop c-id"},
		{name: "an init container has those restarted that came before it alone", pod: spec("+s !i : a", never),
			in: Input{
				Have:   have(true, exited("i", 1), running("s")),
				Images: images(spec("s i a", never), 0),
			}, want: "stop s-id"},
		{name: "another exit code restarts no other container", pod: spec("!a b", v1.RestartPolicyAlways),
			in: Input{
				Have:   have(true, exited("a", 2), running("b")),
				Images: images(spec("a b", never), 1),
			}, want: "start a"},
		{name: "a pod that terminates does not begin anew", pod: spec("!a b", never),
			in: Input{
				Termination: &Termination{Deadline: now.Add(time.Minute)},
				Have:        have(true, exited("a", 1), running("b")),
			}, want: "stop b-id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := c.in
			in.Now, in.Pod, in.NetworkReady, in.VolumesReady = now, c.pod, true, true
			plan := decide(in)
			var got []string
			for _, s := range plan.Steps {
				if s.Verb == Stop && c.in.Termination == nil && !s.Deadline.Equal(now) {
					t.Errorf("%s has until %v to stop", s.Target.Name, s.Deadline)
				}
				got = append(got, strings.TrimSpace(string(s.Verb)+" "+s.Target.Name))
			}
			if steps := strings.Join(got, ", "); steps != c.want || !plan.Wake.Equal(c.wake) {
				t.Errorf("steps: %s, wake %v\n want:  %s, wake %v", steps, plan.Wake, c.want, c.wake)
			}
		})
	}
}

func TestWithoutRestartAll(t *testing.T) {
	p := spec("!a b", v1.RestartPolicyNever)
	older := WithoutRestartAll(p)
	if CanRestartAll(older) || !CanRestartAll(p) {
		t.Error("the rule is still there, or was taken from the pod itself")
	}
	if seen := exited("a", 1); view(older, pod.Runtime{}).ShouldRestart(pod.Regular, &older.Spec.Containers[0], seen) {
		t.Error("the pod's policy is Never, and the container is restarted")
	}
}

// A container that the agent stopped in order to restart it did not exit by itself: its exit status triggers no restart
// of all containers.
func TestStoppedContainerRestartsNoOthers(t *testing.T) {
	p := spec("!a b", v1.RestartPolicyNever)
	c := exited("a", 1)
	v := view(p, have(true, c, running("b")))
	if _, ok := v.Trigger(); !ok {
		t.Error("the container's own exit restarts none")
	}
	v.StoppedForRestart = map[string]bool{c.ID: true}
	if _, ok := v.Trigger(); ok {
		t.Error("the exit status of a container that was stopped restarts all")
	}
}
