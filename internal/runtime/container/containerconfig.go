package container

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/runtime/logs"
)

// containerInput is the input of containerConfig.
type containerInput struct {
	pod       *v1.Pod
	container *v1.Container
	attempt   int
	imageRef  string
	env       []pod.EnvVar
	mounts    []pod.Mount
	extra     pod.Contribution // only its devices, CDI devices and annotations are used
	resources *runtimeapi.LinuxContainerResources
	security  *runtimeapi.LinuxContainerSecurityContext
	selinux   bool // the node has SELinux enabled
	signals   bool // lifecycle.stopSignal is honoured
}

// containerConfig builds the CRI configuration of a container.
func containerConfig(in containerInput) (*runtimeapi.ContainerConfig, error) {
	p, c := in.pod, in.container
	annotations, err := containerAnnotations(p, c, in.attempt, in.extra.Annotations)
	if err != nil {
		return nil, err
	}
	command, args := commandLine(c, in.env)
	userns := in.security.GetNamespaceOptions().GetUsernsOptions()
	out := &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(in.attempt)},
		Image:       &runtimeapi.ImageSpec{Image: in.imageRef, UserSpecifiedImage: c.Image},
		Command:     command,
		Args:        args,
		WorkingDir:  c.WorkingDir,
		Labels:      containerLabels(p, c),
		Annotations: annotations,
		LogPath:     logs.File(c.Name, in.attempt),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		Linux:       &runtimeapi.LinuxContainerConfig{Resources: in.resources, SecurityContext: in.security},
	}
	for _, e := range in.env {
		out.Envs = append(out.Envs, &runtimeapi.KeyValue{Key: e.Name, Value: []byte(e.Value)})
	}
	for _, m := range in.mounts {
		cm := mount(m, in.selinux)
		cm.UidMappings, cm.GidMappings = userns.GetUids(), userns.GetGids()
		out.Mounts = append(out.Mounts, cm)
	}
	for _, d := range in.extra.Devices {
		out.Devices = append(out.Devices, &runtimeapi.Device{
			HostPath:      d.HostPath,
			ContainerPath: d.ContainerPath,
			Permissions:   d.Permissions,
		})
	}
	for _, d := range in.extra.CDIDevices {
		out.CDIDevices = append(out.CDIDevices, &runtimeapi.CDIDevice{Name: d})
	}
	if in.signals && c.Lifecycle != nil && c.Lifecycle.StopSignal != nil {
		n, ok := stopSignal(*c.Lifecycle.StopSignal)
		if !ok {
			return nil, fmt.Errorf("unknown stop signal %q", *c.Lifecycle.StopSignal)
		}
		out.StopSignal = n
	}
	return out, nil
}

// stopSignal converts the API's name of a signal to the CRI's: SIGRTMIN+1 is SIGRTMINPLUS1 there.
func stopSignal(s v1.Signal) (runtimeapi.Signal, bool) {
	n, ok := runtimeapi.Signal_value[strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(string(s))]
	return runtimeapi.Signal(n), ok
}

// containerLabels returns the labels by which the agent recognises its containers after a restart.
func containerLabels(p *v1.Pod, c *v1.Container) map[string]string {
	return map[string]string{
		pod.LabelPodName:       p.Name,
		pod.LabelPodNamespace:  p.Namespace,
		pod.LabelPodUID:        string(p.UID),
		pod.LabelContainerName: c.Name,
	}
}

// containerAnnotations records what the agent needs to stop the container when the pod's
// specification is no longer available; restore reads it back. These annotations take precedence
// over those that device plugins and others add.
func containerAnnotations(p *v1.Pod, c *v1.Container, attempt int, extra map[string]string) (map[string]string, error) {
	a := make(map[string]string, len(extra)+8)
	maps.Copy(a, extra)
	a[pod.AnnotationHash] = pod.Hash(c)
	a[pod.AnnotationRestartCount] = strconv.Itoa(attempt)
	a[pod.AnnotationTerminationMessagePath] = c.TerminationMessagePath
	a[pod.AnnotationTerminationMessagePolicy] = string(c.TerminationMessagePolicy)
	if p.DeletionGracePeriodSeconds != nil {
		a[pod.AnnotationDeletionGracePeriod] = strconv.FormatInt(*p.DeletionGracePeriodSeconds, 10)
	}
	if p.Spec.TerminationGracePeriodSeconds != nil {
		a[pod.AnnotationTerminationGracePeriod] = strconv.FormatInt(*p.Spec.TerminationGracePeriodSeconds, 10)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		b, err := json.Marshal(c.Lifecycle.PreStop)
		if err != nil {
			return nil, fmt.Errorf("record the preStop hook: %w", err)
		}
		a[pod.AnnotationPreStopHandler] = string(b)
	}
	if len(c.Ports) > 0 {
		b, err := json.Marshal(c.Ports)
		if err != nil {
			return nil, fmt.Errorf("record the ports: %w", err)
		}
		a[pod.AnnotationPorts] = string(b)
	}
	return a, nil
}

func mount(m pod.Mount, selinux bool) *runtimeapi.Mount {
	out := &runtimeapi.Mount{
		ContainerPath:     m.ContainerPath,
		HostPath:          m.HostPath,
		Readonly:          m.ReadOnly,
		SelinuxRelabel:    m.SELinuxRelabel && selinux,
		Propagation:       propagation(m.Propagation),
		RecursiveReadOnly: m.RecursiveReadOnly,
		ImageSubPath:      m.ImageSubPath,
	}
	if m.Image != "" {
		out.Image = &runtimeapi.ImageSpec{Image: m.Image}
	}
	return out
}

func propagation(m v1.MountPropagationMode) runtimeapi.MountPropagation {
	switch m {
	case v1.MountPropagationHostToContainer:
		return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	case v1.MountPropagationBidirectional:
		return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
	default:
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE
	}
}
