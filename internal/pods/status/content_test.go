package status

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

const contentOfAContainer = `{
 "name": "c",
 "state": {
  "running": {
   "startedAt": "2026-01-01T12:00:00Z"
  }
 },
 "lastState": {
  "terminated": {
   "exitCode": 7,
   "reason": "Error",
   "startedAt": "2026-01-01T11:00:00Z",
   "finishedAt": "2026-01-01T11:30:00Z",
   "containerID": "containerd://0"
  }
 },
 "ready": true,
 "restartCount": 4,
 "image": "registry.example/app:1",
 "imageID": "registry.example/app@sha256:abc",
 "containerID": "containerd://1",
 "started": true,
 "allocatedResources": {
  "cpu": "100m"
 },
 "resources": {
  "limits": {
   "memory": "64Mi"
  },
  "requests": {
   "cpu": "100m"
  }
 },
 "volumeMounts": [
  {
   "name": "v",
   "mountPath": "/v",
   "readOnly": true,
   "recursiveReadOnly": "Enabled"
  }
 ],
 "user": {
  "linux": {
   "uid": 1000,
   "gid": 2000,
   "supplementalGroups": [
    2000,
    3000
   ]
  }
 },
 "allocatedResourcesStatus": [
  {
   "name": "example.com/gpu",
   "resources": [
    {
     "resourceID": "gpu-0",
     "health": "Healthy"
    }
   ]
  }
 ],
 "stopSignal": "SIGUSR1"
}`

func TestContainerStatusContent(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-29")
	f := simple(v1.RestartPolicyAlways,
		pod.Container{
			ID:         "1",
			Attempt:    4,
			State:      pod.StateRunning,
			StartedAt:  at,
			Image:      "registry.example/app:1",
			ImageRef:   "registry.example/app@sha256:abc",
			StopSignal: ptr.To(v1.SIGUSR1),
			User: &v1.ContainerUser{
				Linux: &v1.LinuxContainerUser{UID: 1000, GID: 2000, SupplementalGroups: []int64{2000, 3000}},
			},
		},
		pod.Container{ID: "0", Attempt: 3, State: pod.StateExited, ExitCode: 7, Reason: "Error",
			StartedAt: at.Add(-time.Hour), FinishedAt: at.Add(-30 * time.Minute)})
	spec := &f.Pod.Spec.Containers[0]
	spec.Resources = v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceCPU: apiresource.MustParse("100m")},
		Limits:   v1.ResourceList{v1.ResourceMemory: apiresource.MustParse("64Mi")},
	}
	spec.VolumeMounts = []v1.VolumeMount{{
		Name:              "v",
		MountPath:         "/v",
		ReadOnly:          true,
		RecursiveReadOnly: ptr.To(v1.RecursiveReadOnlyIfPossible),
	}}
	f.Health = map[string][]v1.ResourceStatus{"c": {{Name: "example.com/gpu",
		Resources: []v1.ResourceHealth{{ResourceID: "gpu-0", Health: v1.ResourceHealthStatusHealthy}}}}}
	n := Node{RuntimeName: "containerd", StopSignals: true, RecursiveReadOnly: func(*v1.Pod) bool { return true }}
	st := Project(n, f, v1.PodStatus{}, at)
	if got := indented(t, st.ContainerStatuses[0]); got != contentOfAContainer {
		t.Errorf("status differs\n%s", difference(got, contentOfAContainer))
	}
}

// A status, and each condition that the agent sets, has the observedGeneration of the pod.
func TestGenerationsInAStatus(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-13")
	for _, generation := range []int64{1, 2, 17} {
		f := simple(v1.RestartPolicyAlways, pod.Container{ID: "1", State: pod.StateRunning})
		f.Pod.Generation = generation
		gate := v1.PodCondition{Type: "example.com/gate", Status: v1.ConditionTrue, ObservedGeneration: 5}
		f.Pod.Status.Conditions = []v1.PodCondition{gate}
		st := Project(Node{}, f, v1.PodStatus{}, at)
		if st.ObservedGeneration != generation || len(st.Conditions) != 6 {
			t.Errorf("generation %d: the status is of %d, with %d conditions",
				generation, st.ObservedGeneration, len(st.Conditions))
		}
		for _, c := range st.Conditions {
			want := generation
			if c.Type == gate.Type {
				want = gate.ObservedGeneration // another client has written it
			}
			if c.ObservedGeneration != want {
				t.Errorf("generation %d: %s is of %d", generation, c.Type, c.ObservedGeneration)
			}
		}
	}
}

// The condition AllContainersRestarting has no observedGeneration, as upstream.
func TestRestartOfAllHasNoGeneration(t *testing.T) {
	f := simple(v1.RestartPolicyAlways, pod.Container{ID: "1", State: pod.StateRunning})
	f.Pod.Generation = 3
	f.Pod.Spec.Containers[0].RestartPolicy = new(v1.ContainerRestartPolicyNever)
	f.Pod.Spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{
		Action: v1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
			Operator: v1.ContainerRestartRuleOnExitCodesOpIn,
			Values:   []int32{3},
		},
	}}
	st := Project(Node{}, f, v1.PodStatus{}, at)
	c := find(st.Conditions, v1.AllContainersRestarting)
	if c == nil || c.Status != v1.ConditionFalse || c.ObservedGeneration != 0 {
		t.Errorf("the condition is %+v, want False, of no generation", c)
	}
}

func TestStatusAddresses(t *testing.T) {
	parity.ProvesPart(t, 4, "LIFE-27")
	f := simple(v1.RestartPolicyAlways, pod.Container{ID: "1", State: pod.StateRunning})
	f.HostIPs = []string{"192.0.2.1", "fd00::ff"}
	f.PodIPs = []string{"fd00::1", "10.0.0.1"} // in this order whatever the node's addresses are
	st := Project(Node{}, f, v1.PodStatus{}, at)
	if st.HostIP != "192.0.2.1" || len(st.HostIPs) != 2 || st.HostIPs[0].IP != "192.0.2.1" ||
		st.HostIPs[1].IP != "fd00::ff" {
		t.Errorf("addresses of the host: %s %v", st.HostIP, st.HostIPs)
	}
	if st.PodIP != "fd00::1" || len(st.PodIPs) != 2 || st.PodIPs[0].IP != "fd00::1" || st.PodIPs[1].IP != "10.0.0.1" {
		t.Errorf("addresses of the pod: %s %v", st.PodIP, st.PodIPs)
	}
}

func TestStatusKeepsStartTime(t *testing.T) {
	f := simple(v1.RestartPolicyAlways, pod.Container{ID: "1", State: pod.StateRunning})
	f.Pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: apiresource.MustParse("1")}
	first := Project(Node{}, f, v1.PodStatus{}, at)
	t.Run("its start", func(t *testing.T) {
		parity.ProvesPart(t, 2, "LIFE-32")
		if first.StartTime == nil || !first.StartTime.Time.Equal(at) {
			t.Errorf("the first status has %v, want %v", first.StartTime, at)
		}
		f := f
		f.Started = at.Add(time.Hour) // as the next agent sees it
		if st := Project(Node{}, f, first, at.Add(time.Hour)); st.StartTime == nil || !st.StartTime.Time.Equal(at) {
			t.Errorf("a later status has %v, want %v", st.StartTime, at)
		}
	})
	t.Run("its class", func(t *testing.T) {
		parity.Proves(t, "LIFE-31")
		if first.QOSClass != v1.PodQOSBurstable {
			t.Errorf("class %s, want Burstable", first.QOSClass)
		}
		f := f
		f.Pod = f.Pod.DeepCopy()
		f.Pod.Status.QOSClass = v1.PodQOSBurstable
		f.Pod.Spec.Containers[0].Resources = v1.ResourceRequirements{}
		if st := Project(Node{}, f, first, at); st.QOSClass != v1.PodQOSBurstable {
			t.Errorf("class %s after an edit, want Burstable as before", st.QOSClass)
		}
	})
}

// A static pod does not reach a terminal phase because it is stopped: its manifest may be added again.
func TestPhaseOfStoppedPod(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-19")
	for _, tc := range []struct {
		source pod.Source
		code   int32
		want   v1.PodPhase
	}{
		{pod.SourceAPI, 0, v1.PodSucceeded},
		{pod.SourceAPI, 143, v1.PodFailed},
		{pod.SourceFile, 0, v1.PodRunning},
		{pod.SourceFile, 143, v1.PodRunning},
	} {
		f := simple(v1.RestartPolicyAlways, pod.Container{ID: "1", State: pod.StateExited, ExitCode: tc.code})
		f.Pod.Annotations = map[string]string{pod.AnnotationConfigSource: string(tc.source)}
		f.Terminating, f.Down = true, true
		f.Have.Sandboxes[0].Ready = false
		if st := Project(Node{}, f, v1.PodStatus{Phase: v1.PodRunning}, at); st.Phase != tc.want {
			t.Errorf("pod of %s whose container ended with %d is %s, want %s", tc.source, tc.code, st.Phase, tc.want)
		}
	}
}

// Conditions are also defined for a status without container statuses, which the agent itself never writes.
func TestConditionsWithoutContainerStatuses(t *testing.T) {
	f := simple(v1.RestartPolicyAlways)
	f.Pod.Spec.InitContainers = []v1.Container{{Name: "i"}}
	check := func(t *testing.T, v verdict) {
		t.Helper()
		if v.status != v1.ConditionFalse || v.reason != "UnknownContainerStatuses" {
			t.Errorf("%+v", v)
		}
	}
	t.Run("Initialized", func(t *testing.T) {
		parity.ProvesPart(t, 5, "LIFE-24")
		check(t, initialized(&v1.PodStatus{}, f.Pod, v1.PodStatus{}))
	})
	t.Run("ContainersReady and Ready", func(t *testing.T) {
		parity.ProvesPart(t, 4, "LIFE-25")
		check(t, containersReady(&v1.PodStatus{}, f))
		check(t, ready(containersReady(&v1.PodStatus{}, f), f.Pod, nil))
	})
}
