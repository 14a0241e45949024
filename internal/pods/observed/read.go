package observed

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/runtime/cri"
)

// read reads one pod. An inconsistent response is an error. What cannot have changed is
// taken from have: an exited container, a sandbox whose state is the same, and, unless all
// is set, a container whose state is the same. l is a list to start from, or nil.
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
	if err := errors.Join(l.check(have), c.claimed(uid, l)); err != nil {
		return have, err
	}
	next := pod.Runtime{Ref: l.ref, SeenAt: l.at}
	next.UID = uid
	lostSandboxes, lostContainers := l.vanished(have)
	for _, s := range l.sandboxes {
		i := slices.IndexFunc(have.Sandboxes, func(h pod.Sandbox) bool { return h.ID == s.Id })
		if i >= 0 && have.Sandboxes[i].Ready == ready(s) &&
			(!ready(s) || have.Sandboxes[i].HostNetwork || len(have.Sandboxes[i].IPs) > 0) {
			next.Sandboxes = append(next.Sandboxes, have.Sandboxes[i])
			continue
		}
		if err := c.addSandbox(ctx, uid, s.Id, &next); err != nil {
			return have, err
		}
	}
	for _, s := range lostSandboxes {
		if err := c.addSandbox(ctx, uid, s.ID, &next); err != nil {
			return have, err
		}
	}
	for _, ctr := range l.containers {
		h, ok := have.ByID(ctr.Id)
		if ok && h.SandboxID == ctr.PodSandboxId && h.State == cri.ToState(ctr.State) &&
			(h.State == pod.StateExited || !all) {
			next.Containers = append(next.Containers, h)
			continue
		}
		if !ok && !l.lists(ctr.PodSandboxId) {
			if err := c.stray(ctx, ctr); err != nil {
				return have, err
			}
		}
		found, err := c.addContainer(ctx, have, ctr.PodSandboxId, ctr.Id, &next)
		if err == nil && !found {
			err = c.unlisted(ctx, uid, ctr.Id)
		}
		if err != nil {
			return have, err
		}
	}
	for _, ctr := range lostContainers {
		if _, err := c.addContainer(ctx, have, ctr.SandboxID, ctr.ID, &next); err != nil {
			return have, err
		}
	}
	sortSandboxes(next.Sandboxes)
	sortContainers(next.Containers)
	return next, nil
}

// addSandbox reads a sandbox into next, unless it was removed since it was listed.
func (c *Cache) addSandbox(ctx context.Context, uid types.UID, id string, next *pod.Runtime) error {
	resp, err := c.cfg.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if cri.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	s, err := sandboxOf(uid, id, resp.GetStatus())
	if err == nil {
		next.Sandboxes = append(next.Sandboxes, s)
	}
	return err
}

// addContainer reads a container into next and reports whether it exists.
func (c *Cache) addContainer(
	ctx context.Context, have pod.Runtime, sandbox, id string, next *pod.Runtime,
) (found bool, err error) {
	resp, err := c.cfg.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if cri.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	ctr, err := containerOf(have, next.UID, sandbox, id, resp.GetStatus())
	if err == nil {
		next.Containers = append(next.Containers, ctr)
	}
	return true, err
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
