package app

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/status"
	"keelson/internal/runtime/container"
	"keelson/internal/runtime/cri"
)

// starts has containers and sandboxes wait that depend on what the runtime can do,
// until it has said so: otherwise they would be made as if it could not.
type starts struct {
	*container.Runner
	answered <-chan struct{} // closed when the runtime has told of its abilities
}

func (s starts) RunSandbox(ctx context.Context, p *v1.Pod, attempt uint32) (id string, err error) {
	if hasOwnUsers(p) {
		s.wait(ctx)
	}
	return s.Runner.RunSandbox(ctx, p, attempt)
}

func (s starts) StartContainer(ctx context.Context, start container.Start) (id string, failure *container.StartError) {
	if hasOwnUsers(start.Pod) || mountsRecursively(start.Container) {
		s.wait(ctx)
	}
	return s.Runner.StartContainer(ctx, start)
}

// wait returns when the runtime has answered, or the start is called off.
func (s starts) wait(ctx context.Context) {
	select {
	case <-s.answered:
	case <-ctx.Done():
	}
}

func hasOwnUsers(p *v1.Pod) bool { return p.Spec.HostUsers != nil && !*p.Spec.HostUsers }

// mountsRecursively reports whether the container has mounts that are to be read-only
// with all below them, if only where that is possible.
func mountsRecursively(c *v1.Container) bool {
	for _, m := range c.VolumeMounts {
		if m.RecursiveReadOnly != nil && *m.RecursiveReadOnly != v1.RecursiveReadOnlyDisabled {
			return true
		}
	}
	return false
}

// recursiveReadOnly reports whether the pod's runtime handler can mount so.
func (a *agent) recursiveReadOnly(p *v1.Pod) bool {
	name, err := a.classes.Handler(p)
	return err == nil && a.handlerHas(name, func(h cri.Handler) bool { return h.RecursiveReadOnlyMounts })
}

// shownNode is what statuses show of the node and its runtime.
func (a *agent) shownNode() status.Node {
	return status.Node{
		RuntimeName: a.identity.Name, RecursiveReadOnly: a.shownRecursive,
		StopSignals:   a.cfg.Gates.Enabled("ContainerStopSignals"),
		HideResources: !a.cfg.Gates.Enabled("InPlacePodLevelResourcesVerticalScaling"),
	}
}

// shownRecursive is recursiveReadOnly for statuses. Before the runtime has answered it
// is what an agent before this one has shown.
func (a *agent) shownRecursive(p *v1.Pod) bool {
	select {
	case <-a.node.RuntimeAnswered():
		return a.recursiveReadOnly(p)
	default:
	}
	for _, c := range pod.Containers(p) {
		for _, m := range c.VolumeMounts {
			if m.RecursiveReadOnly != nil && *m.RecursiveReadOnly != v1.RecursiveReadOnlyDisabled && wasRecursive(p, c.Name, m.MountPath) {
				return true
			}
		}
	}
	return false
}

// wasRecursive reports whether the pod's last status shows the mount so.
func wasRecursive(p *v1.Pod, container, path string) bool {
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses) {
		for _, m := range c.VolumeMounts {
			if c.Name == container && m.MountPath == path {
				return m.RecursiveReadOnly != nil && *m.RecursiveReadOnly == v1.RecursiveReadOnlyEnabled
			}
		}
	}
	return false
}

// handlerHas reports whether a handler of the runtime has a feature.
func (a *agent) handlerHas(name string, has func(cri.Handler) bool) bool {
	for _, h := range a.node.Runtime().Handlers {
		if h.Name == name {
			return has(h)
		}
	}
	return false
}
