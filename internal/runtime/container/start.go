package container

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/runtime/cri"
)

// Start is the input for the start of one container.
type Start struct {
	Pod       *v1.Pod
	Container *v1.Container
	Kind      pod.Kind
	Sandbox   pod.Sandbox
	PodIPs    []string // may be empty on the host network
	Attempt   int
	ImageRef  string // the runtime's reference of the pulled image
	TargetID  string // ephemeral containers: the ID of the target container

	// Mounts returns the contribution of volumes. It is called when the environment is known, with
	// the function that expands subPathExpr. May be nil.
	Mounts func(expand func(string) (string, error)) (pod.Contribution, error)
	// Extra is the contribution of device plugins, claims, the CPU manager and the memory manager.
	Extra pod.Contribution
}

// StartContainer creates and starts a container, runs its postStart hook and returns its ID. It
// records the events of these steps. After an error the ID is empty unless the container was
// created.
//
// If ctx ends early, the container may be running although its hook has not run. The caller that
// cancelled the start stops the container.
func (r *Runner) StartContainer(ctx context.Context, s Start) (id string, failure *StartError) {
	defer func() { r.metrics.container(s.Kind, failure) }()
	sandbox, config, err := r.configure(ctx, s)
	if err != nil {
		return "", r.startFailed(s, "", pod.ReasonCreateContainerConfig, err)
	}
	created, err := inQueue(ctx, r.queue, createContainer, rankOf(s.Pod, true),
		func() (*runtimeapi.CreateContainerResponse, error) {
			return r.cfg.Runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
				PodSandboxId:  s.Sandbox.ID,
				Config:        config,
				SandboxConfig: sandbox,
			})
		})
	r.metrics.imagesMounted(config.Mounts, err)
	if err != nil {
		r.notCreated(s, config, err)
		return "", r.startFailed(s, "", pod.ReasonCreateContainer, err)
	}
	id = created.GetContainerId()
	r.event(s, v1.EventTypeNormal, pod.EventCreated, "Container created")
	_, err = inQueue(ctx, r.queue, startContainer, rankOf(s.Pod, true),
		func() (*runtimeapi.StartContainerResponse, error) {
			return r.cfg.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
		})
	if err != nil {
		return id, r.startFailed(s, id, pod.ReasonRunContainer, err)
	}
	r.event(s, v1.EventTypeNormal, pod.EventStarted, "Container started")
	if err := r.linkLegacyLog(pod.RefOf(s.Pod), s.Container.Name, id,
		filepath.Join(sandbox.LogDirectory, config.LogPath)); err != nil {
		r.log(s.Pod, s.Container.Name).Warn("failed to create legacy symlink to container log", "err", err)
	}
	return id, r.postStart(ctx, s, id)
}

// notCreated removes the termination log of a container that was not created. Each retry creates
// another one. If the runtime may still have created the container, the file stays until the
// container is removed.
func (r *Runner) notCreated(s Start, config *runtimeapi.ContainerConfig, err error) {
	if cri.IsCanceled(err) || cri.IsUnavailable(err) || cri.IsTimeout(err) {
		return
	}
	var mounted []string
	for _, m := range config.Mounts {
		mounted = append(mounted, m.HostPath)
	}
	if err := r.removeTerminationLogs(s.Pod.UID, s.Container.Name, mounted); err != nil {
		r.log(s.Pod, s.Container.Name).Warn("failed to remove termination log of container that was not created",
			"err", err)
	}
}

// configure creates the files that a container needs and builds the CRI configurations.
func (r *Runner) configure(
	ctx context.Context, s Start,
) (*runtimeapi.PodSandboxConfig, *runtimeapi.ContainerConfig, error) {
	p, c := s.Pod, s.Container
	sandbox, _, err := r.sandboxConfig(p, s.Sandbox.Attempt) // its warnings were recorded with the sandbox
	if err != nil {
		return nil, nil, err
	}
	// The order of these checks is upstream's, so that the same one of several errors is shown.
	env, err := r.Env(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	// variables of device plugins come first, so that those of the container override them
	env = slices.Concat(s.Extra.Env, env)
	extra, err := r.contributions(s, env)
	if err != nil {
		return nil, nil, err
	}
	id := effectiveIdentity(p, c)
	var image imageUser
	if id.user == nil {
		if image, err = r.imageUser(ctx, s.ImageRef); err != nil {
			return nil, nil, err
		}
	}
	if err := checkNonRoot(p, c, id, image); err != nil {
		return nil, nil, err
	}
	if err := makeLogDir(filepath.Join(sandbox.LogDirectory, c.Name)); err != nil {
		return nil, nil, fmt.Errorf("create container log directory for container %s failed: %w", c.Name, err)
	}
	security, err := containerSecurity(securityInput{
		pod:            p,
		container:      c,
		identity:       id,
		image:          image,
		groups:         r.volumeGroups(p),
		targetID:       s.TargetID,
		userns:         sandbox.Linux.SecurityContext.NamespaceOptions.UsernsOptions,
		seccompDefault: r.cfg.SeccompDefault,
		seccompRoot:    seccompRoot(r.cfg.RootDir),
		masked:         r.masked,
	})
	if err != nil {
		return nil, nil, err
	}
	r.addTerminationLog(s, &extra)
	config, err := containerConfig(containerInput{
		pod:       p,
		container: c,
		attempt:   s.Attempt,
		imageRef:  s.ImageRef,
		env:       env,
		mounts:    extra.Mounts,
		extra:     extra,
		resources: containerResources(p, c, s.Kind, r.cpuRules(), r.cfg.Kernel, r.cfg.Node(), r.cfg.SwapBehavior,
			r.cfg.SingleProcessOOM,
			assignment{cpus: extra.CPUs, mems: extra.Mems, exclusive: r.exclusive(p, c)}),
		security: security,
		selinux:  r.cfg.Kernel.SELinux,
		signals:  r.cfg.ContainerStopSignal,
	})
	return sandbox, config, err
}

// contributions collects what is added to the container: the caller's part, volumes, and the hosts
// file, in this order.
func (r *Runner) contributions(s Start, env []pod.EnvVar) (pod.Contribution, error) {
	all := s.Extra
	if s.Mounts != nil {
		v, err := s.Mounts(Expander(env))
		if err != nil {
			return pod.Contribution{}, err
		}
		all = all.With(v)
	}
	all.Mounts = slices.Clone(all.Mounts)
	if ips := r.podIPs(s.Pod, s.PodIPs); mountsHosts(s.Pod, s.Container, ips) {
		file, err := r.writeHosts(s.Pod, ips)
		if err != nil {
			return pod.Contribution{}, err
		}
		all.Mounts = append(all.Mounts, pod.Mount{HostPath: file, ContainerPath: etcHosts, SELinuxRelabel: true})
	}
	return all, nil
}

// addTerminationLog adds the mount of the termination log. If it cannot be created, the container
// starts without it.
func (r *Runner) addTerminationLog(s Start, extra *pod.Contribution) {
	if s.Container.TerminationMessagePath == "" {
		return
	}
	m, err := r.makeTerminationLog(s.Pod, s.Container)
	if err != nil {
		r.log(s.Pod, s.Container.Name).Error("failed to create termination log", "err", err)
		return
	}
	extra.Mounts = append(extra.Mounts, m)
}

// podIPs returns the pod's addresses; for a pod on the host network, those of the node.
func (r *Runner) podIPs(p *v1.Pod, ips []string) []string {
	if p.Spec.HostNetwork && len(ips) == 0 {
		return r.cfg.Node().HostIPs
	}
	return ips
}

// NotStarted counts a container that could not be started because its image is not available.
func (r *Runner) NotStarted(kind pod.Kind, reason string) {
	r.metrics.container(kind, &StartError{Waiting: pod.Waiting{Reason: reason}})
}

// startFailed records the failure of a start. A cancelled start is no failure, nor is one whose
// name is still reserved by a call of an earlier agent. id is empty unless the container was
// created.
func (r *Runner) startFailed(s Start, id, reason string, err error) *StartError {
	text := cri.Message(err)
	if !cri.IsCanceled(err) && !cri.IsNameTaken(err) {
		shown := text
		if id != "" { // replaced so that events which differ only by ID are aggregated
			shown = strings.ReplaceAll(text, id, s.Container.Name)
		}
		r.event(s, v1.EventTypeWarning, pod.EventFailed, "Error: "+shown)
	}
	return &StartError{
		Waiting: pod.Waiting{
			Reason:  reason,
			Message: text,
		},
		Err: err,
	}
}

// postStart runs the container's postStart hook. If the hook fails, the container is stopped.
// Details go to the container status only: events may be readable by more users than the hook's
// output is meant for.
func (r *Runner) postStart(ctx context.Context, s Start, id string) *StartError {
	if s.Container.Lifecycle == nil || s.Container.Lifecycle.PostStart == nil {
		return nil
	}
	err := r.runHook(ctx, hookCall{
		pod:       s.Pod,
		container: s.Container,
		id:        id,
		podIPs:    s.PodIPs,
		handler:   s.Container.Lifecycle.PostStart,
	})
	if err == nil {
		return nil
	}
	failure := &StartError{
		Waiting: pod.Waiting{
			Reason:  pod.ReasonPostStartHook,
			Message: cri.Text(err),
		},
		Err: err,
	}
	if ctx.Err() != nil {
		return failure
	}
	r.event(s, v1.EventTypeWarning, pod.EventFailedPostStartHook, "PostStartHook failed")
	stopErr := r.StopContainer(ctx, Stop{
		Pod:       s.Pod,
		Spec:      s.Container,
		Container: pod.Container{ID: id, Name: s.Container.Name},
		PodIPs:    s.PodIPs,
		Grace:     pod.Grace(s.Pod),
		Message:   pod.EventFailedPostStartHook,
	})
	if stopErr != nil {
		failure.Err = errors.Join(err, stopErr)
		r.log(s.Pod, s.Container.Name).Warn("failed to stop container after postStart hook failed", "err", stopErr)
	}
	return failure
}

func (r *Runner) event(s Start, eventType, reason, message string) {
	r.cfg.Events.Pod(s.Pod, s.Container.Name, eventType, reason, message)
}
