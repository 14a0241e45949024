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

// Start is what the start of one container goes by.
type Start struct {
	Pod       *v1.Pod
	Container *v1.Container
	Kind      pod.Kind
	Sandbox   pod.Sandbox
	PodIPs    []string // may be empty on the host's network
	Attempt   int
	ImageRef  string // the runtime's reference of the image that was made ready
	TargetID  string // ephemeral containers: the container they look into

	// Mounts returns what volumes add; it is called once the environment is
	// known, and given what resolves $(NAME) in subPathExpr. May be nil.
	Mounts func(expand func(string) (string, error)) (pod.Contribution, error)
	// Extra is what device plugins, claims, the managers of CPUs and the like add.
	Extra pod.Contribution
}

// StartContainer creates and starts a container, runs its postStart hook, and
// returns its id. Events tell of each step. After an error the id is empty
// unless the runtime holds a container by then.
//
// When ctx ends early, the container may be running without its hook having
// run; the caller ended the start and knows what is to become of it.
func (r *Runner) StartContainer(ctx context.Context, s Start) (id string, failure *StartError) {
	defer func() { r.metrics.container(s.Kind, failure) }()
	sandbox, config, err := r.configure(ctx, s)
	if err != nil {
		return "", r.startFailed(s, "", pod.ReasonCreateContainerConfig, err)
	}
	created, err := inTurn(ctx, r.turns, createContainer, rankOf(s.Pod, true), func() (*runtimeapi.CreateContainerResponse, error) {
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
	_, err = inTurn(ctx, r.turns, startContainer, rankOf(s.Pod, true), func() (*runtimeapi.StartContainerResponse, error) {
		return r.cfg.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
	})
	if err != nil {
		return id, r.startFailed(s, id, pod.ReasonRunContainer, err)
	}
	r.event(s, v1.EventTypeNormal, pod.EventStarted, "Container started")
	if err := r.linkLegacyLog(pod.RefOf(s.Pod), s.Container.Name, id, filepath.Join(sandbox.LogDirectory, config.LogPath)); err != nil {
		r.log(s.Pod, s.Container.Name).Warn("cannot link the log under its older name", "err", err)
	}
	return id, r.postStart(ctx, s, id)
}

// notCreated removes the file that was made for a container which there is not: it is
// tried again every few seconds, with a file of its own each time. If the runtime may
// have made it after all, its removal takes the file along.
func (r *Runner) notCreated(s Start, config *runtimeapi.ContainerConfig, err error) {
	if cri.IsCanceled(err) || cri.IsUnavailable(err) || cri.IsTimeout(err) {
		return
	}
	var mounted []string
	for _, m := range config.Mounts {
		mounted = append(mounted, m.HostPath)
	}
	if err := r.removeTerminationLogs(s.Pod.UID, s.Container.Name, mounted); err != nil {
		r.log(s.Pod, s.Container.Name).Warn("a file is left of a container that was not created", "err", err)
	}
}

// configure makes the files a container needs and builds what the runtime is
// told.
func (r *Runner) configure(ctx context.Context, s Start) (*runtimeapi.PodSandboxConfig, *runtimeapi.ContainerConfig, error) {
	p, c := s.Pod, s.Container
	sandbox, _, err := r.sandboxConfig(p, s.Sandbox.Attempt) // warned when the sandbox was made
	if err != nil {
		return nil, nil, err
	}
	// What is wrong is looked for in upstream's order, so that of several problems the same one is shown.
	env, err := r.Env(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	env = slices.Concat(s.Extra.Env, env) // those of device plugins come first: the container's own count
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
		pod: p, container: c, identity: id, image: image,
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
		pod: p, container: c,
		attempt:  s.Attempt,
		imageRef: s.ImageRef,
		env:      env,
		mounts:   extra.Mounts,
		extra:    extra,
		resources: containerResources(p, c, s.Kind, r.cpuRules(), r.cfg.Kernel, r.cfg.Node(), r.cfg.SwapBehavior, r.cfg.SingleProcessOOM,
			assignment{cpus: extra.CPUs, mems: extra.Mems, exclusive: r.exclusive(p, c)}),
		security: security,
		selinux:  r.cfg.Kernel.SELinux,
		signals:  r.cfg.ContainerStopSignal,
	})
	return sandbox, config, err
}

// contributions gathers what is added to the container: what the caller brings,
// what volumes add, and the hosts file, in this order.
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

// addTerminationLog adds the file for the container's termination message. A container without one runs
// all the same.
func (r *Runner) addTerminationLog(s Start, extra *pod.Contribution) {
	if s.Container.TerminationMessagePath == "" {
		return
	}
	m, err := r.makeTerminationLog(s.Pod, s.Container)
	if err != nil {
		r.log(s.Pod, s.Container.Name).Error("cannot make the termination log", "err", err)
		return
	}
	extra.Mounts = append(extra.Mounts, m)
}

// podIPs are the pod's addresses, or on the host's network the node's.
func (r *Runner) podIPs(p *v1.Pod, ips []string) []string {
	if p.Spec.HostNetwork && len(ips) == 0 {
		return r.cfg.Node().HostIPs
	}
	return ips
}

// NotStarted counts a container that was to start and could not, for want of its
// image: no call was made for it.
func (r *Runner) NotStarted(kind pod.Kind, reason string) {
	r.metrics.container(kind, &StartError{Reason: reason})
}

// startFailed records why a container could not be started. A start that was
// cancelled did not fail, and one that the runtime is still busy with for an
// agent before this one has not failed yet. The id is empty unless the container was created.
func (r *Runner) startFailed(s Start, id, reason string, err error) *StartError {
	text := cri.Message(err)
	if !cri.IsCanceled(err) && !cri.IsNameTaken(err) {
		shown := text
		if id != "" { // events that differ by an ID alone could not be counted as one
			shown = strings.ReplaceAll(text, id, s.Container.Name)
		}
		r.event(s, v1.EventTypeWarning, pod.EventFailed, "Error: "+shown)
	}
	return &StartError{Reason: reason, Message: text, Err: err}
}

// postStart runs the container's postStart hook. A container whose hook fails
// is stopped; the failure's details go to the container's status only, since
// events may be read by more people than what a server answered is for.
func (r *Runner) postStart(ctx context.Context, s Start, id string) *StartError {
	if s.Container.Lifecycle == nil || s.Container.Lifecycle.PostStart == nil {
		return nil
	}
	err := r.runHook(ctx, hookCall{pod: s.Pod, container: s.Container, id: id, podIPs: s.PodIPs, handler: s.Container.Lifecycle.PostStart})
	if err == nil {
		return nil
	}
	failure := &StartError{Reason: pod.ReasonPostStartHook, Message: cri.Text(err), Err: err}
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
		r.log(s.Pod, s.Container.Name).Warn("cannot stop the container whose postStart hook failed", "err", stopErr)
	}
	return failure
}

func (r *Runner) event(s Start, eventType, reason, message string) {
	r.cfg.Events.Pod(s.Pod, s.Container.Name, eventType, reason, message)
}
