package status

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/test/kit/parity"
)

var at = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// recorded reads a pod as it was once stored at an API server, with placeholders for what varies.
func recorded(t *testing.T, name string) *v1.Pod {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(
		`"<time>"`, `"`+at.Format(time.RFC3339)+`"`,
		"<id>", "0123",
		"<node ip>", "192.0.2.1",
		"<pod ip>", "10.0.0.9",
	).Replace(string(b))
	p := &v1.Pod{}
	if err := json.Unmarshal([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	return p
}

// runtimeOf is what the runtime must have held when the pod was recorded.
func runtimeOf(p *v1.Pod) pod.Runtime {
	have := pod.Runtime{
		Ref:       pod.RefOf(p),
		Sandboxes: []pod.Sandbox{{ID: "s", HostNetwork: p.Spec.HostNetwork, Ready: p.Status.Phase == v1.PodRunning}},
	}
	if !p.Spec.HostNetwork {
		have.Sandboxes[0].IPs = []string{p.Status.PodIP}
	}
	for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, s := range list {
			c := pod.Container{
				ID:         "0123",
				Name:       s.Name,
				SandboxID:  "s",
				Attempt:    int(s.RestartCount),
				Image:      s.Image,
				ImageRef:   s.ImageID,
				User:       s.User,
				StopSignal: s.StopSignal,
			}
			if r := s.State.Running; r != nil {
				c.State, c.StartedAt = pod.StateRunning, r.StartedAt.Time
			}
			if e := s.State.Terminated; e != nil {
				c.State, c.StartedAt, c.FinishedAt = pod.StateExited, e.StartedAt.Time, e.FinishedAt.Time
				c.ExitCode, c.Reason, c.Message = e.ExitCode, e.Reason, e.Message
			}
			have.Containers = append(have.Containers, c)
		}
	}
	return have
}

func TestStatusesMatchUpstream(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-13")
	parity.ProvesPart(t, 6, "LIFE-22")
	for _, name := range []string{"pod-guaranteed.json", "pod-burstable.json", "pod-besteffort.json"} {
		t.Run(name, func(t *testing.T) {
			p := recorded(t, name)
			want := p.Status
			p.Status = v1.PodStatus{QOSClass: want.QOSClass}
			have := runtimeOf(&v1.Pod{ObjectMeta: p.ObjectMeta, Spec: p.Spec, Status: want})
			probes := map[string]Probe{"0123": {Started: true, Ready: true}}
			done := want.Phase == v1.PodFailed
			got := Project(Node{RuntimeName: "containerd"},
				Facts{Pod: p, Have: have, Started: at, Terminating: done, Down: done,
					Probes: probes, PodIPs: ips(want.PodIPs), HostIPs: []string{want.HostIP}}, v1.PodStatus{}, at)
			// The sum of the limits is read from the cgroup upstream, where "none" is a
			// number; a pod without limits has none here.
			want.Resources, got.Resources = nil, nil
			g, w := text(t, got), text(t, want)
			if g != w {
				t.Errorf("status differs\n%s", difference(g, w))
			}
		})
	}
}

func ips(list []v1.PodIP) []string {
	var out []string
	for _, ip := range list {
		out = append(out, ip.IP)
	}
	return out
}

func text(t *testing.T, st v1.PodStatus) string {
	t.Helper()
	return indented(t, st)
}

func indented(t *testing.T, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// difference returns the first lines in which two texts differ, each with its context.
func difference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range g {
		if i >= len(w) || g[i] != w[i] {
			cut := func(s []string) string { return strings.Join(s[max(0, i-3):min(len(s), i+5)], "\n") }
			return "got\n" + cut(g) + "\nwant\n" + cut(w)
		}
	}
	return "got ends before\n" + strings.Join(w[len(g):], "\n")
}

// simple returns the facts of a pod with one container.
func simple(policy v1.RestartPolicy, cs ...pod.Container) Facts {
	p := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: policy, Containers: []v1.Container{{Name: "c", Image: "i"}}}}
	p.UID, p.Generation = "u", 3
	for i := range cs {
		cs[i].Name, cs[i].SandboxID = "c", "s"
	}
	return Facts{
		Pod: p,
		Have: pod.Runtime{
			Sandboxes:  []pod.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.9"}}},
			Containers: cs,
		},
		PodIPs:  []string{"10.0.0.9"},
		Probes:  map[string]Probe{"1": {Started: true, Ready: true}},
		Started: at,
	}
}

func TestStates(t *testing.T) {
	crashed := pod.Container{ID: "1", State: pod.StateExited, ExitCode: 1, Reason: "Error"}
	for _, tc := range []struct {
		name  string
		facts Facts
		check func(v1.PodStatus) bool
	}{
		{"nothing yet is ContainerCreating", simple(v1.RestartPolicyAlways), func(s v1.PodStatus) bool {
			return s.ContainerStatuses[0].State.Waiting.Reason == "ContainerCreating" && s.Phase == v1.PodPending
		}},
		{"an image that cannot be had is shown", func() Facts {
			f := simple(v1.RestartPolicyAlways)
			f.Waiting = map[string]pod.Waiting{"c": {Reason: "ErrImagePull", Message: "no such host"}}
			return f
		}(), func(s v1.PodStatus) bool {
			w := s.ContainerStatuses[0].State.Waiting
			return w.Reason == "ErrImagePull" && w.Message == "no such host"
		}},
		{"a crash loop waits, with the crash behind it", func() Facts {
			f := simple(v1.RestartPolicyAlways, crashed)
			f.Waiting = map[string]pod.Waiting{"c": {Reason: "CrashLoopBackOff", Message: "back-off"}}
			return f
		}(), func(s v1.PodStatus) bool {
			c := s.ContainerStatuses[0]
			return c.State.Waiting.Reason == "CrashLoopBackOff" && c.LastTerminationState.Terminated.ExitCode == 1 &&
				s.Phase == v1.PodRunning
		}},
		{"what ended for good is terminated, whatever went wrong before", func() Facts {
			f := simple(v1.RestartPolicyNever, crashed)
			f.Waiting = map[string]pod.Waiting{"c": {Reason: "RunContainerError", Message: "old"}}
			return f
		}(), func(s v1.PodStatus) bool { return s.ContainerStatuses[0].State.Terminated != nil }},
		{"a restarted container shows its last end", simple(v1.RestartPolicyAlways, pod.Container{
			ID:      "1",
			State:   pod.StateRunning,
			Attempt: 1,
		}, pod.Container{ID: "0", State: pod.StateExited, ExitCode: 7}), func(s v1.PodStatus) bool {
			c := s.ContainerStatuses[0]
			return c.State.Running != nil && c.Ready && c.RestartCount == 1 &&
				c.LastTerminationState.Terminated.ExitCode == 7
		}},
		{"a pod whose containers still run does not have a terminal phase", func() Facts {
			f := simple(v1.RestartPolicyAlways, pod.Container{ID: "1", State: pod.StateRunning})
			f.Override = &podplan.Override{
				Phase:      v1.PodFailed,
				Reason:     "Evicted",
				Disruption: v1.PodReasonTerminationByKubelet,
			}
			f.Terminating = true
			return f
		}(), func(s v1.PodStatus) bool {
			return s.Phase == v1.PodRunning && s.Reason == "" && find(s.Conditions, v1.DisruptionTarget) == nil &&
				isTrue(s.Conditions, v1.PodReady)
		}},
		{"one over its deadline is not ready any more", func() Facts {
			f := simple(v1.RestartPolicyAlways, pod.Container{ID: "1", State: pod.StateRunning})
			f.Override = &podplan.Override{Phase: v1.PodFailed, Reason: "DeadlineExceeded", Unready: true}
			f.Terminating = true
			return f
		}(), func(s v1.PodStatus) bool {
			return s.Phase == v1.PodRunning && s.Reason == "" &&
				find(s.Conditions, v1.PodReady).Reason == "PodFailed" &&
				find(s.Conditions, v1.ContainersReady).Reason == "PodFailed"
		}},
		{"a pod is over its deadline before a container of it was made", func() Facts {
			f := simple(v1.RestartPolicyAlways)
			f.Have, f.Terminating, f.Down = pod.Runtime{}, true, true
			f.Override = &podplan.Override{
				Phase:   v1.PodFailed,
				Reason:  "DeadlineExceeded",
				Message: "Pod was active on the node longer than the specified deadline",
			}
			return f
		}(), func(s v1.PodStatus) bool {
			ended := s.ContainerStatuses[0].State.Terminated
			return s.Phase == v1.PodFailed && s.Reason == "DeadlineExceeded" && ended != nil && ended.ExitCode == 137 &&
				ended.Reason == "ContainerStatusUnknown" &&
				ended.Message == "The container could not be located when the pod was terminated"
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if st := Project(Node{RuntimeName: "containerd"}, tc.facts, v1.PodStatus{}, at); !tc.check(st) {
				t.Errorf("status = %s", text(t, st))
			}
		})
	}
}

// The status of a pod that ended before its sidecar was created does not change when it is computed again.
func TestTerminatedBeforeItsSidecar(t *testing.T) {
	f := simple(v1.RestartPolicyNever)
	f.Pod.Spec.InitContainers = []v1.Container{{
		Name: "sidecar", Image: "none", RestartPolicy: ptr.To(v1.ContainerRestartPolicyAlways),
	}}
	f.Have, f.Terminating, f.Down = pod.Runtime{}, true, true
	f.Override = &podplan.Override{Phase: v1.PodFailed, Reason: "DeadlineExceeded"}
	node := Node{RuntimeName: "containerd"}
	first := Project(node, f, v1.PodStatus{}, at)
	if w := first.ContainerStatuses[0].State.Waiting; w == nil || w.Reason != "PodInitializing" {
		t.Fatalf("a container after a sidecar that was not created: %+v", first.ContainerStatuses[0].State)
	}
	f.Pod.Status = first
	if second := Project(node, f, first, at); !equality.Semantic.DeepEqual(first, second) {
		t.Errorf("first %s\nthen %s", text(t, first), text(t, second))
	}
}

// The status keeps containers that the runtime has removed.
func TestTerminatedStatesAreKept(t *testing.T) {
	ended := func(id string, attempt int, code int32) pod.Container {
		return pod.Container{ID: id, State: pod.StateExited, Attempt: attempt, ExitCode: code, Image: "i"}
	}
	node := Node{RuntimeName: "containerd"}
	both := Project(node, simple(v1.RestartPolicyNever, ended("1", 1, 2), ended("0", 0, 7)), v1.PodStatus{}, at)
	one := Project(node, simple(v1.RestartPolicyNever, ended("1", 1, 2)), both, at)
	if last := one.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 7 {
		t.Errorf("the instance before ended with %+v, want 7", last)
	}
	f := simple(v1.RestartPolicyNever)
	f.Pod.Status = one
	none := Project(node, f, one, at)
	if got := none.ContainerStatuses[0]; got.ContainerID != "containerd://1" || got.State.Terminated.ExitCode != 2 ||
		got.LastTerminationState.Terminated == nil {
		t.Errorf("a removed container: %+v, want its previous status", got)
	}
	other := Project(node, simple(v1.RestartPolicyNever, ended("2", 2, 0)), both, at)
	if last := other.ContainerStatuses[0].LastTerminationState.Terminated; last != nil {
		t.Errorf("another instance has the past of the one before: %+v", last)
	}
	f = simple(v1.RestartPolicyAlways, ended("1", 1, 2))
	f.Waiting = map[string]pod.Waiting{"c": {Reason: "CrashLoopBackOff", Message: "back-off"}}
	waits := Project(node, f, v1.PodStatus{}, at)
	if last := waits.ContainerStatuses[0].LastTerminationState.Terminated; last == nil {
		t.Fatal("a container that waits to be started again shows no end")
	}
	f.Terminating = true
	given := Project(node, f, waits, at).ContainerStatuses[0]
	if last := given.LastTerminationState.Terminated; given.State.Terminated == nil || last != nil {
		t.Errorf("given up: %+v, and %+v before: one termination is shown twice", given.State, last)
	}
}

// An agent that is killed between the creation and the start of an instance leaves one that is removed: the next
// instance has the same attempt.
func TestRestartCountDoesNotDecrease(t *testing.T) {
	failed := pod.Container{ID: "1", State: pod.StateExited, Attempt: 1, ExitCode: 2}
	made := Project(Node{}, simple(v1.RestartPolicyAlways,
		pod.Container{ID: "2", State: pod.StateCreated, Attempt: 2}, failed), v1.PodStatus{}, at)
	if n := made.ContainerStatuses[0].RestartCount; n != 2 {
		t.Fatalf("%d restarts with an instance 2", n)
	}
	removed := Project(Node{}, simple(v1.RestartPolicyAlways, failed), made, at)
	if n := removed.ContainerStatuses[0].RestartCount; n != 2 {
		t.Errorf("%d restarts after there were 2", n)
	}
}

func TestTerminalPhaseIsFinal(t *testing.T) {
	parity.Differs(t, "LIFE-12", "0120")
	f := simple(v1.RestartPolicyAlways, pod.Container{ID: "1", State: pod.StateRunning})
	if st := Project(Node{}, f, v1.PodStatus{Phase: v1.PodFailed}, at); st.Phase != v1.PodFailed {
		t.Errorf("phase = %s after Failed", st.Phase)
	}
}

func TestReadinessGates(t *testing.T) {
	parity.Proves(t, "LIFE-26")
	f := simple(v1.RestartPolicyAlways, pod.Container{ID: "1", State: pod.StateRunning})
	f.Pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "a"}, {ConditionType: "b"}}
	f.Pod.Status.Conditions = []v1.PodCondition{{Type: "b", Status: v1.ConditionFalse}}
	ready := find(Project(Node{}, f, v1.PodStatus{}, at).Conditions, v1.PodReady)
	const want = `corresponding condition of pod readiness gate "a" does not exist., the status of pod readiness gate "b" is not "True", but False`
	if ready.Status != v1.ConditionFalse || ready.Reason != "ReadinessGatesNotReady" || ready.Message != want {
		t.Errorf("Ready = %+v", ready)
	}
	f.Pod.Status.Conditions = []v1.PodCondition{
		{Type: "a", Status: v1.ConditionTrue},
		{Type: "b", Status: v1.ConditionUnknown},
	}
	ready = find(Project(Node{}, f, v1.PodStatus{}, at).Conditions, v1.PodReady)
	const unknown = `the status of pod readiness gate "b" is not "True", but Unknown`
	if ready.Status != v1.ConditionFalse || ready.Reason != "ReadinessGatesNotReady" || ready.Message != unknown {
		t.Errorf("Ready = %+v with one gate of two open", ready)
	}
	f.Pod.Status.Conditions = []v1.PodCondition{
		{Type: "a", Status: v1.ConditionTrue},
		{Type: "b", Status: v1.ConditionTrue},
	}
	if ready := find(Project(Node{}, f, v1.PodStatus{}, at).Conditions, v1.PodReady); ready.Status != v1.ConditionTrue {
		t.Errorf("Ready = %+v with all gates open", ready)
	}
}

func TestTransitionTimes(t *testing.T) {
	f := simple(v1.RestartPolicyAlways, pod.Container{ID: "1", State: pod.StateRunning})
	first := Project(Node{}, f, v1.PodStatus{}, at)
	later := Project(Node{}, f, first, at.Add(time.Hour))
	if c := find(later.Conditions, v1.PodReady); !c.LastTransitionTime.Time.Equal(at) {
		t.Errorf("Ready moved to %v without a change", c.LastTransitionTime)
	}
	f.Probes = map[string]Probe{"1": {Started: true}}
	if c := find(Project(Node{}, f, later, at.Add(2*time.Hour)).Conditions,
		v1.PodReady); !c.LastTransitionTime.Time.Equal(at.Add(2 * time.Hour)) {
		t.Errorf("Ready = %+v, want a transition now", c)
	}
}

// Conditions of resizes have the time of their verdict, and a new reason is a transition.
func TestTimesOfResizeConditions(t *testing.T) {
	f := simple(v1.RestartPolicyAlways, pod.Container{ID: "1", State: pod.StateRunning})
	prev := v1.PodStatus{}
	for _, step := range []struct {
		after             time.Duration
		reason, message   string
		transition, probe time.Duration
	}{
		{0, "Deferred", "no room", -time.Minute, 0}, // since then, according to the ledger
		{time.Hour, "Deferred", "no room", -time.Minute, 0},
		{2 * time.Hour, "Deferred", "less room", -time.Minute, 2 * time.Hour},
		{3 * time.Hour, "Infeasible", "never", 3 * time.Hour, 3 * time.Hour},
	} {
		f.Resize = []v1.PodCondition{{
			Type:               v1.PodResizePending,
			Status:             v1.ConditionTrue,
			Reason:             step.reason,
			Message:            step.message,
			LastTransitionTime: metav1.NewTime(at.Add(-time.Minute)),
		}}
		prev = Project(Node{}, f, prev, at.Add(step.after))
		c := find(prev.Conditions, v1.PodResizePending)
		if !c.LastTransitionTime.Time.Equal(at.Add(step.transition)) ||
			!c.LastProbeTime.Time.Equal(at.Add(step.probe)) {
			t.Errorf("after %v: %+v, want a transition after %v and a probe after %v",
				step.after, c, step.transition, step.probe)
		}
	}
}

func TestSidecarInitialized(t *testing.T) {
	parity.ProvesPart(t, 5, "LIFE-24")
	f := simple(v1.RestartPolicyAlways)
	f.Pod.Spec.InitContainers = []v1.Container{{Name: "s", RestartPolicy: ptr.To(v1.ContainerRestartPolicyAlways)}}
	f.Have.Containers = []pod.Container{{ID: "9", Name: "s", SandboxID: "s", State: pod.StateRunning}}
	initialized := func() v1.PodCondition {
		return *find(Project(Node{}, f, v1.PodStatus{}, at).Conditions, v1.PodInitialized)
	}
	if c := initialized(); c.Status != v1.ConditionFalse || c.Message != "containers with incomplete status: [s]" {
		t.Errorf("Initialized = %+v", c)
	}
	f.Probes["9"] = Probe{Started: true}
	if c := initialized(); c.Status != v1.ConditionTrue {
		t.Errorf("Initialized = %+v", c)
	}
}

// The status of a pod that was rejected by its volumes after its sandbox was created shows no containers: neither at
// once nor after a restart of the agent, which then has only the stored status.
func TestRejectedPodHasNoContainerStatuses(t *testing.T) {
	f := simple(v1.RestartPolicyAlways)
	f.Have.Sandboxes = []pod.Sandbox{{ID: "s"}}
	f.Terminating, f.Down = true, true
	f.Override = &podplan.Override{Phase: v1.PodFailed, Reason: "NoRoom", Message: "no", Rejected: true}
	f.HostIPs = []string{"192.0.2.1"}
	f.Pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: apiresource.MustParse("1m")}
	st := Project(Node{}, f, v1.PodStatus{Phase: v1.PodPending}, time.Now())
	for _, when := range []string{"when it is rejected", "after a restart", "when its sandbox is removed"} {
		if st.HostIP != "" || len(st.HostIPs) > 0 || st.AllocatedResources != nil {
			t.Errorf("%s: on %s %v, with %v", when, st.HostIP, st.HostIPs, st.AllocatedResources)
		}
		if st.Phase != v1.PodFailed || st.Reason != "NoRoom" || st.Message != "no" ||
			len(st.InitContainerStatuses)+len(st.ContainerStatuses) > 0 {
			t.Errorf("%s: %s %s %q with %d containers", when, st.Phase, st.Reason, st.Message,
				len(st.ContainerStatuses))
		}
		f.Override = nil
		if when == "after a restart" {
			f.Have.Sandboxes = nil
		}
		st = Project(Node{}, f, st, time.Now())
	}
}
