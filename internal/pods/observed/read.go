package observed

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/runtime/cri"
)

// read reads one pod. What cannot have changed is taken from have: a container
// that has ended, a sandbox in the state it was in, and, unless all is set, a
// container in the state it was in. l is a list to start from, or nil.
func (c *Cache) read(ctx context.Context, uid types.UID, have pod.Runtime, l *listing, all bool) (pod.Runtime, error) {
	if l == nil {
		at := c.cfg.Now()
		byUID, err := c.list(ctx, uid)
		if err != nil {
			return have, err
		}
		if l = byUID[uid]; l == nil {
			l = &listing{ref: have.Ref, at: at}
		}
	}
	next := pod.Runtime{Ref: l.ref, SeenAt: l.at}
	next.UID = uid
	for _, s := range l.sandboxes {
		i := slices.IndexFunc(have.Sandboxes, func(h pod.Sandbox) bool { return h.ID == s.Id })
		if i >= 0 && have.Sandboxes[i].Ready == ready(s) && (!ready(s) || have.Sandboxes[i].HostNetwork || len(have.Sandboxes[i].IPs) > 0) {
			next.Sandboxes = append(next.Sandboxes, have.Sandboxes[i])
			continue
		}
		resp, err := c.cfg.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.Id})
		switch {
		case cri.IsNotFound(err):
			continue // removed since it was listed
		case err != nil:
			return have, err
		}
		next.Sandboxes = append(next.Sandboxes, cri.ToSandbox(resp.Status))
	}
	for _, ctr := range l.containers {
		h, ok := have.ByID(ctr.Id)
		if ok && h.State == cri.ToState(ctr.State) && (h.State == pod.StateExited || !all) {
			next.Containers = append(next.Containers, h)
			continue
		}
		resp, err := c.cfg.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: ctr.Id})
		switch {
		case cri.IsNotFound(err):
			continue
		case err != nil:
			return have, err
		}
		next.Containers = append(next.Containers, cri.ToContainer(ctr.PodSandboxId, resp.Status))
	}
	sortSandboxes(next.Sandboxes)
	sortContainers(next.Containers)
	return next, nil
}

// addMessages reads the termination messages of containers that ended since
// have was read.
func addMessages(ctx context.Context, have pod.Runtime, next *pod.Runtime) {
	for i := range next.Containers {
		ctr := &next.Containers[i]
		if ctr.State != pod.StateExited {
			continue
		}
		if h, ok := have.ByID(ctr.ID); ok && h.State == pod.StateExited {
			continue
		}
		if m := terminationMessage(ctx, *ctr); m != "" {
			if ctr.Message != "" {
				m = ctr.Message + ": " + m
			}
			ctr.Message = m
		}
	}
}
