package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	now     = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	sidecar = v1.ContainerRestartPolicyAlways
)

// web returns a Ready pod with a sidecar and an init container that has completed.
func web() *v1.Pod {
	started := metav1.NewTime(now.Add(-90 * time.Second))
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1"},
		Spec: v1.PodSpec{
			InitContainers: []v1.Container{{Name: "init"}, {Name: "clock", RestartPolicy: &sidecar}},
			Containers:     []v1.Container{{Name: "web"}},
		},
		Status: v1.PodStatus{
			Phase: v1.PodRunning, PodIP: "10.231.4.2", StartTime: &started,
			Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}},
			InitContainerStatuses: []v1.ContainerStatus{
				{Name: "init", RestartCount: 7},
				{Name: "clock", Ready: true, RestartCount: 1},
			},
			ContainerStatuses: []v1.ContainerStatus{{Name: "web", Ready: true, RestartCount: 2}},
		},
	}
}

func TestTable(t *testing.T) {
	job := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "job", Namespace: "batch"},
		Status:     v1.PodStatus{Phase: v1.PodSucceeded},
	}
	young := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "young", Namespace: "default"},
		Spec:       v1.PodSpec{Containers: make([]v1.Container, 2)},
	}
	got := table(podStates([]v1.Pod{*young, *web(), *job}), now)
	want := strings.TrimLeft(`
NAME        IP           CONTAINERS   RESTARTS   AGE
batch/job   -            completed    0          -
web         10.231.4.2   2/2 ready    3          90s
young       -            0/2 ready    0          -
`, "\n")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestFindTroubles(t *testing.T) {
	waiting := func(reason, message string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Status.ContainerStatuses[0].State.Waiting = &v1.ContainerStateWaiting{Reason: reason, Message: message}
			p.Status.ContainerStatuses[0].Image = "x:1"
		}
	}
	for _, c := range []struct {
		name   string
		change func(*v1.Pod)
		want   []trouble
	}{
		{"a starting pod has none", waiting("ContainerCreating", ""), nil},
		{"a missing image", waiting("ImagePullBackOff", "Back-off pulling"),
			[]trouble{{"cannot get image x:1 of container web", "ImagePullBackOff: Back-off pulling", doImage}}},
		{"a start that fails", waiting("RunContainerError", "exec: no such file"),
			[]trouble{{"cannot start container web", "RunContainerError: exec: no such file", doManifest}}},
		{"a container that crashes repeatedly", func(p *v1.Pod) {
			waiting("CrashLoopBackOff", "back-off 10s")(p)
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &v1.ContainerStateTerminated{
				ExitCode: 3,
				Reason:   "Error",
			}
		}, []trouble{{"container web keeps ending", "it ended with code 3", doLog}}},
		{"a sidecar of it", func(p *v1.Pod) {
			p.Status.InitContainerStatuses[1].State.Waiting = &v1.ContainerStateWaiting{
				Reason:  "CreateContainerConfigError",
				Message: "no key",
			}
		}, []trouble{{"cannot start container clock", "CreateContainerConfigError: no key", doManifest}}},
		{"two containers, each with its own", func(p *v1.Pod) {
			p.Status.InitContainerStatuses[1].State.Waiting = &v1.ContainerStateWaiting{
				Reason:  "CreateContainerError",
				Message: "no",
			}
			waiting("InvalidImageName", "X")(p)
		}, []trouble{{"cannot start container clock", "CreateContainerError: no", doManifest},
			{"cannot get image x:1 of container web", "InvalidImageName: X", doImage}}},
		{"a job that failed", func(p *v1.Pod) {
			p.Status.Phase = v1.PodFailed
			p.Status.ContainerStatuses[0].State.Terminated = &v1.ContainerStateTerminated{
				ExitCode: 137,
				Reason:   "OOMKilled",
			}
		}, []trouble{{"container web failed", "it ended with code 137, OOMKilled", doLog}}},
		{"a rejected pod", func(p *v1.Pod) {
			p.Status.Phase, p.Status.Reason, p.Status.Message = v1.PodFailed, "OutOfcpu",
				"Node didn't have enough resource: cpu"
		}, []trouble{{"the pod failed", "OutOfcpu: Node didn't have enough resource: cpu", doManifest}}},
	} {
		p := web()
		p.Status.Conditions = nil
		c.change(p)
		if got := podStateOf(p).Troubles; !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, got, c.want)
		}
	}
}
