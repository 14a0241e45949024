package container

import (
	"context"

	v1 "k8s.io/api/core/v1"
)

// Gated is a Runner that delays sandboxes and containers whose configuration depends on features of the runtime until
// the runtime has reported its features. Without the delay they would be created as if it had none.
type Gated struct {
	*Runner
	Reported <-chan struct{} // closed when the runtime has reported its features
}

// RunSandbox creates and starts a sandbox.
func (g Gated) RunSandbox(ctx context.Context, p *v1.Pod, attempt uint32) (id string, err error) {
	if hasUserNamespace(p) {
		g.wait(ctx)
	}
	return g.Runner.RunSandbox(ctx, p, attempt)
}

// StartContainer creates and starts a container.
func (g Gated) StartContainer(ctx context.Context, start Start) (id string, failure *StartError) {
	if hasUserNamespace(start.Pod) || mountsRecursively(start.Container) {
		g.wait(ctx)
	}
	return g.Runner.StartContainer(ctx, start)
}

// wait returns when the runtime has reported its features, or the start is cancelled.
func (g Gated) wait(ctx context.Context) {
	select {
	case <-g.Reported:
	case <-ctx.Done():
	}
}

func hasUserNamespace(p *v1.Pod) bool { return p.Spec.HostUsers != nil && !*p.Spec.HostUsers }

// mountsRecursively reports whether the container has mounts that are recursively read-only, required or if
// possible.
func mountsRecursively(c *v1.Container) bool {
	for _, m := range c.VolumeMounts {
		if m.RecursiveReadOnly != nil && *m.RecursiveReadOnly != v1.RecursiveReadOnlyDisabled {
			return true
		}
	}
	return false
}
