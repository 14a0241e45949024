package observed

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/runtime/cri"
)

// Confirm returns once the cache shows the effect of an action. Usually an event has shown it already; otherwise only
// the sandbox or container is read. After a removal the whole pod is read.
func (c *Cache) Confirm(ctx context.Context, uid types.UID, effect pod.Effect) error {
	c.mu.Lock()
	e := c.entryLocked(uid)
	if e.waiting == nil {
		e.waiting = &request{done: make(chan struct{})}
	}
	e.waiting.effects = append(e.waiting.effects, effect)
	r := e.waiting
	ok := c.workLocked(e)
	c.mu.Unlock()
	if !ok {
		return fmt.Errorf("read pod %s: %w", uid, errStopped)
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("read pod %s: %w", uid, ctx.Err())
	}
}

// anyRemoved reports whether one of the effects is a removal.
func anyRemoved(effects []pod.Effect) bool {
	return slices.ContainsFunc(effects, func(e pod.Effect) bool { return e.Gone })
}

// unshown returns the effects that r does not show.
func unshown(r pod.Runtime, effects []pod.Effect) []pod.Effect {
	return slices.DeleteFunc(slices.Clone(effects), func(e pod.Effect) bool { return e.ShownBy(r) })
}

// readEffects reads the sandboxes and containers that were acted on. The rest of the pod
// and the time of its last full read stay as they are. If one does not exist, the whole
// pod is read: a late event must not bring it back, and the time of a full read is what
// shows that an event is late.
func (c *Cache) readEffects(
	ctx context.Context, uid types.UID, have pod.Runtime, effects []pod.Effect,
) (pod.Runtime, error) {
	next := have
	for _, e := range effects {
		var err error
		if e.Container != "" {
			next, err = c.readContainer(ctx, uid, next, e.Sandbox, e.Container)
		} else {
			next, err = c.readSandbox(ctx, uid, next, e.Sandbox)
		}
		switch {
		case cri.IsNotFound(err):
			return c.read(ctx, uid, have, nil, true)
		case err != nil:
			return have, err
		}
	}
	return next, nil
}

// seeMade reads sandboxes and containers that were just created or stopped and that a list
// does not show: lists may be incomplete.
func (c *Cache) seeMade(
	ctx context.Context, uid types.UID, have pod.Runtime, effects []pod.Effect,
) (pod.Runtime, error) {
	left := slices.DeleteFunc(unshown(have, effects), func(e pod.Effect) bool { return e.Gone })
	if len(left) == 0 {
		return have, nil
	}
	return c.readEffects(ctx, uid, have, left)
}

func (c *Cache) readContainer(
	ctx context.Context, uid types.UID, have pod.Runtime, sandbox, id string,
) (pod.Runtime, error) {
	resp, err := c.cfg.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return have, err
	}
	ctr, err := containerOf(have, uid, sandbox, id, resp.GetStatus())
	if err != nil {
		return have, err
	}
	return withContainer(have, ctr), nil
}

func (c *Cache) readSandbox(ctx context.Context, uid types.UID, have pod.Runtime, id string) (pod.Runtime, error) {
	resp, err := c.cfg.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		return have, err
	}
	s, err := sandboxOf(uid, id, resp.GetStatus())
	if err != nil {
		return have, err
	}
	have.Ref, _ = cri.PodRef(resp.Status.Labels)
	have.Sandboxes = slices.DeleteFunc(slices.Clone(have.Sandboxes), func(h pod.Sandbox) bool { return h.ID == id })
	have.Sandboxes = append(have.Sandboxes, s)
	sortSandboxes(have.Sandboxes)
	return have, nil
}
