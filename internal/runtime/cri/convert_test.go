package cri

import (
	"reflect"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
)

func TestToContainer(t *testing.T) {
	created, started, finished := time.Unix(100, 1), time.Unix(101, 2), time.Unix(102, 3)
	annotations := map[string]string{pod.AnnotationHash: "a785d335", pod.AnnotationRestartCount: "4"}
	status := func(state runtimeapi.ContainerState) *runtimeapi.ContainerStatus {
		return &runtimeapi.ContainerStatus{
			Id:          "c1",
			Metadata:    &runtimeapi.ContainerMetadata{Name: "main", Attempt: 2},
			State:       state,
			CreatedAt:   created.UnixNano(),
			StartedAt:   started.UnixNano(),
			FinishedAt:  finished.UnixNano(),
			ExitCode:    7,
			Image:       &runtimeapi.ImageSpec{Image: "docker.io/library/busybox:1.37"},
			ImageRef:    "docker.io/library/busybox@sha256:aa",
			ImageId:     "sha256:bb",
			Reason:      "Error",
			Labels:      map[string]string{pod.LabelContainerName: "main", pod.LabelPodUID: "u1"},
			Annotations: annotations,
			Mounts: []*runtimeapi.Mount{
				{
					ContainerPath:     "/c",
					HostPath:          "/h",
					Readonly:          true,
					RecursiveReadOnly: true,
					Propagation:       runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER,
				},
				{ContainerPath: "/i", Image: &runtimeapi.ImageSpec{Image: "sha256:cc"}, ImageSubPath: "sub"},
			},
			LogPath: "/var/log/pods/x/main/4.log",
			Resources: &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{
				CpuPeriod:          100000,
				CpuQuota:           50000,
				CpuShares:          102,
				MemoryLimitInBytes: 64 << 20,
			}},
			User: &runtimeapi.ContainerUser{
				Linux: &runtimeapi.LinuxContainerUser{Uid: 1000, Gid: 2000, SupplementalGroups: []int64{2000, 3000}},
			},
			StopSignal: runtimeapi.Signal_SIGRTMINPLUS3,
		}
	}
	running := pod.Container{
		ID:          "c1",
		Name:        "main",
		SandboxID:   "s1",
		Attempt:     4,
		State:       pod.StateRunning,
		Hash:        "a785d335",
		CreatedAt:   created,
		StartedAt:   started,
		Reason:      "Error",
		Image:       "docker.io/library/busybox:1.37",
		ImageID:     "sha256:bb",
		ImageRef:    "docker.io/library/busybox@sha256:aa",
		LogPath:     "/var/log/pods/x/main/4.log",
		Annotations: annotations,
		Mounts: []pod.Mount{
			{
				ContainerPath:     "/c",
				HostPath:          "/h",
				ReadOnly:          true,
				RecursiveReadOnly: true,
				Propagation:       v1.MountPropagationHostToContainer,
			},
			{ContainerPath: "/i", Image: "sha256:cc", ImageSubPath: "sub"},
		},
		Resources: &v1.ResourceRequirements{
			Limits: v1.ResourceList{
				v1.ResourceCPU:    resource.MustParse("500m"),
				v1.ResourceMemory: resource.MustParse("64Mi"),
			},
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")},
		},
		User: &v1.ContainerUser{
			Linux: &v1.LinuxContainerUser{UID: 1000, GID: 2000, SupplementalGroups: []int64{2000, 3000}},
		},
		StopSignal: ptr.To(v1.SIGRTMINPLUS3),
	}
	exited := running
	exited.State, exited.FinishedAt, exited.ExitCode = pod.StateExited, finished, 7
	waiting := running
	waiting.State, waiting.StartedAt = pod.StateCreated, time.Time{}
	for _, tc := range []struct {
		state runtimeapi.ContainerState
		want  pod.Container
	}{
		{runtimeapi.ContainerState_CONTAINER_CREATED, waiting},
		{runtimeapi.ContainerState_CONTAINER_RUNNING, running},
		{runtimeapi.ContainerState_CONTAINER_EXITED, exited},
	} {
		t.Run(tc.state.String(), func(t *testing.T) {
			got := ToContainer("s1", status(tc.state))
			for _, r := range []*v1.ResourceRequirements{got.Resources, tc.want.Resources} {
				for _, l := range []v1.ResourceList{r.Limits, r.Requests} {
					for k, q := range l { // quantities compare equal once they have their text
						_ = q.String()
						l[k] = q
					}
				}
			}
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("ToContainer = %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

func TestToContainerWithoutImageID(t *testing.T) {
	got := ToContainer("s1", &runtimeapi.ContainerStatus{
		Id:       "c1",
		Metadata: &runtimeapi.ContainerMetadata{Name: "main", Attempt: 2},
		State:    runtimeapi.ContainerState_CONTAINER_UNKNOWN,
		ImageRef: "sha256:bb",
		User:     &runtimeapi.ContainerUser{},
	})
	want := pod.Container{
		ID:        "c1",
		Name:      "main",
		SandboxID: "s1",
		Attempt:   2,
		ImageID:   "sha256:bb",
		ImageRef:  "sha256:bb",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("ToContainer = %+v\nwant %+v", got, want)
	}
}

func TestToSandbox(t *testing.T) {
	in := &runtimeapi.PodSandboxStatus{
		Id:        "s1",
		Metadata:  &runtimeapi.PodSandboxMetadata{Attempt: 3},
		State:     runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt: 5,
		Network: &runtimeapi.PodSandboxNetworkStatus{
			Ip:            "10.0.0.2",
			AdditionalIps: []*runtimeapi.PodIP{{Ip: "fd00::2"}},
		},
		RuntimeHandler: "runsc",
	}
	want := pod.Sandbox{
		ID:             "s1",
		Attempt:        3,
		Ready:          true,
		CreatedAt:      time.Unix(0, 5),
		IPs:            []string{"10.0.0.2", "fd00::2"},
		RuntimeHandler: "runsc",
	}
	if got := ToSandbox(in); !reflect.DeepEqual(got, want) {
		t.Errorf("ToSandbox = %+v, want %+v", got, want)
	}
	in.Linux = &runtimeapi.LinuxPodSandboxStatus{
		Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}},
	}
	if got := ToSandbox(in); !got.HostNetwork || got.IPs != nil {
		t.Errorf("ToSandbox on the host network = %+v, want no addresses", got)
	}
}

func TestToSignal(t *testing.T) {
	for in, want := range map[runtimeapi.Signal]v1.Signal{
		runtimeapi.Signal_SIGTERM:         v1.SIGTERM,
		runtimeapi.Signal_SIGRTMIN:        v1.SIGRTMIN,
		runtimeapi.Signal_SIGRTMINPLUS15:  v1.SIGRTMINPLUS15,
		runtimeapi.Signal_SIGRTMAXMINUS14: v1.SIGRTMAXMINUS14,
		runtimeapi.Signal_SIGRTMAX:        v1.SIGRTMAX,
	} {
		if got := toSignal(in); got == nil || *got != want {
			t.Errorf("toSignal(%v) = %v, want %s", in, got, want)
		}
	}
	for _, in := range []runtimeapi.Signal{runtimeapi.Signal_RUNTIME_DEFAULT, 4000} {
		if got := toSignal(in); got != nil {
			t.Errorf("toSignal(%v) = %s, want none", in, *got)
		}
	}
}

func TestToStatus(t *testing.T) {
	got := toStatus(&runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: "RuntimeReady", Status: true},
			{Type: "NetworkReady", Reason: "NetworkPluginNotReady", Message: "cni plugin not initialized"},
		}},
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{
			{Name: "runc", Features: &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true}},
		},
		Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
	})
	want := Status{
		Runtime:                  Condition{OK: true},
		Network:                  Condition{Reason: "NetworkPluginNotReady", Message: "cni plugin not initialized"},
		Handlers:                 []Handler{{Name: "runc", UserNamespaces: true}},
		SupplementalGroupsPolicy: true,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("toStatus = %+v, want %+v", got, want)
	}
	if got := toStatus(&runtimeapi.StatusResponse{}); got.Runtime.OK || got.Network.OK {
		t.Errorf("toStatus of nothing = %+v, want not ready", got)
	}
}
