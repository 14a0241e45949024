package cri

import (
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
)

// PodRef identifies the pod of a sandbox or container by its labels. It returns false for one that
// no kubelet created.
func PodRef(labels map[string]string) (pod.Ref, bool) {
	r := pod.Ref{
		UID:       types.UID(labels[pod.LabelPodUID]),
		Namespace: labels[pod.LabelPodNamespace],
		Name:      labels[pod.LabelPodName],
	}
	return r, r.UID != ""
}

// ToSandbox converts the status of a sandbox. The CRI does not report the cgroup parent.
func ToSandbox(s *runtimeapi.PodSandboxStatus) pod.Sandbox {
	out := pod.Sandbox{
		Source:         pod.Source(s.GetAnnotations()[pod.AnnotationConfigSource]),
		ID:             s.GetId(),
		Attempt:        s.GetMetadata().GetAttempt(),
		Ready:          s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt:      toTime(s.GetCreatedAt()),
		HostNetwork:    s.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE,
		RuntimeHandler: s.GetRuntimeHandler(),
	}
	if out.HostNetwork {
		return out // containerd reports a host address for some pods and none for others
	}
	if ip := s.GetNetwork().GetIp(); ip != "" {
		out.IPs = append(out.IPs, ip)
	}
	for _, a := range s.GetNetwork().GetAdditionalIps() {
		if a.GetIp() != "" {
			out.IPs = append(out.IPs, a.Ip)
		}
	}
	return out
}

// ToContainer converts the status of a container. The status does not contain the sandbox ID; lists
// do.
func ToContainer(sandboxID string, s *runtimeapi.ContainerStatus) pod.Container {
	c := pod.Container{
		ID:          s.GetId(),
		Name:        s.GetLabels()[pod.LabelContainerName],
		SandboxID:   sandboxID,
		Attempt:     attempt(s),
		State:       ToState(s.GetState()),
		Hash:        s.GetAnnotations()[pod.AnnotationHash],
		CreatedAt:   toTime(s.GetCreatedAt()),
		Reason:      s.GetReason(),
		Message:     s.GetMessage(),
		Image:       s.GetImage().GetImage(),
		ImageID:     s.GetImageId(),
		ImageRef:    s.GetImageRef(),
		LogPath:     s.GetLogPath(),
		Annotations: s.GetAnnotations(),
		Mounts:      toMounts(s.GetMounts()),
		Resources:   toResources(s.GetResources().GetLinux()),
		User:        toUser(s.GetUser()),
		StopSignal:  toSignal(s.GetStopSignal()),
	}
	if c.Name == "" {
		c.Name = s.GetMetadata().GetName()
	}
	if c.Image == "" {
		c.Image = s.GetImage().GetUserSpecifiedImage()
	}
	if c.ImageID == "" {
		c.ImageID = c.ImageRef // runtimes from before the field image_id
	}
	if c.State == pod.StateRunning || c.State == pod.StateExited {
		c.StartedAt = toTime(s.GetStartedAt())
	}
	if c.State == pod.StateExited {
		c.FinishedAt = toTime(s.GetFinishedAt())
		c.ExitCode = s.GetExitCode()
	}
	return c
}

// ToState converts the state of a container.
func ToState(s runtimeapi.ContainerState) pod.State {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return pod.StateCreated
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return pod.StateRunning
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return pod.StateExited
	default:
		return pod.StateUnknown
	}
}

// maxAttempt bounds the restart count below the maximum of the status field, so that it can still
// be incremented.
const maxAttempt = 1 << 30

// attempt returns the restart count: the annotation, or else the attempt with which the container
// was created.
func attempt(s *runtimeapi.ContainerStatus) int {
	if n, err := strconv.ParseUint(s.GetAnnotations()[pod.AnnotationRestartCount], 10, 30); err == nil {
		return int(n)
	}
	return int(min(s.GetMetadata().GetAttempt(), maxAttempt))
}

// toTime converts nanoseconds since the epoch. Zero or less means never.
func toTime(ns int64) time.Time {
	if ns <= 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

func toMounts(ms []*runtimeapi.Mount) []pod.Mount {
	if len(ms) == 0 {
		return nil
	}
	out := make([]pod.Mount, 0, len(ms))
	for _, m := range ms {
		out = append(out, pod.Mount{
			HostPath:          m.GetHostPath(),
			ContainerPath:     m.GetContainerPath(),
			ReadOnly:          m.GetReadonly(),
			Propagation:       toPropagation(m.GetPropagation()),
			RecursiveReadOnly: m.GetRecursiveReadOnly(),
			SELinuxRelabel:    m.GetSelinuxRelabel(),
			Image:             m.GetImage().GetImage(),
			ImageSubPath:      m.GetImageSubPath(),
		})
	}
	return out
}

func toPropagation(p runtimeapi.MountPropagation) v1.MountPropagationMode {
	switch p {
	case runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER:
		return v1.MountPropagationHostToContainer
	case runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL:
		return v1.MountPropagationBidirectional
	default:
		return ""
	}
}

const (
	sharesPerCPU = 1024
	minShares    = 2 // minimum of the kernel, which also represents a request of zero
)

// toResources converts CRI resources to the API's: CPU shares to a CPU request, rounded up because
// the conversion to shares rounds down; CFS quota to a CPU limit; the memory limit. The CRI has no
// memory request.
func toResources(r *runtimeapi.LinuxContainerResources) *v1.ResourceRequirements {
	if r == nil {
		return nil
	}
	out := &v1.ResourceRequirements{}
	if r.CpuQuota > 0 && r.CpuPeriod > 0 {
		set(&out.Limits, v1.ResourceCPU, resource.NewMilliQuantity(r.CpuQuota*1000/r.CpuPeriod, resource.DecimalSI))
	}
	if r.MemoryLimitInBytes > 0 {
		set(&out.Limits, v1.ResourceMemory, resource.NewQuantity(r.MemoryLimitInBytes, resource.BinarySI))
	}
	if r.CpuShares >= minShares {
		milli := (r.CpuShares*1000 + sharesPerCPU - 1) / sharesPerCPU
		set(&out.Requests, v1.ResourceCPU, resource.NewMilliQuantity(milli, resource.DecimalSI))
	}
	if out.Limits == nil && out.Requests == nil {
		return nil
	}
	return out
}

func set(l *v1.ResourceList, name v1.ResourceName, q *resource.Quantity) {
	if *l == nil {
		*l = v1.ResourceList{}
	}
	(*l)[name] = *q
}

// toUser returns nil if the runtime does not report the user. containerd sends an empty one then.
func toUser(u *runtimeapi.ContainerUser) *v1.ContainerUser {
	l := u.GetLinux()
	if l == nil {
		return nil
	}
	return &v1.ContainerUser{
		Linux: &v1.LinuxContainerUser{UID: l.Uid, GID: l.Gid, SupplementalGroups: l.SupplementalGroups},
	}
}

// toSignal converts the CRI's name of a signal to the API's: SIGRTMINPLUS1 is SIGRTMIN+1.
func toSignal(s runtimeapi.Signal) *v1.Signal {
	if s == runtimeapi.Signal_RUNTIME_DEFAULT {
		return nil
	}
	name, ok := runtimeapi.Signal_name[int32(s)]
	if !ok {
		return nil // from a later version of the CRI
	}
	name = strings.NewReplacer("PLUS", "+", "MINUS", "-").Replace(name)
	sig := v1.Signal(name)
	return &sig
}
