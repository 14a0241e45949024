package observed

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/runtime/cri"
)

// Responses of the runtime are checked against the request and against what cannot change.
// After an inconsistent response the pod stays as it was last observed, and is read again.
// Acting on it could stop running containers or start them twice.

// errInconsistent is the error of an inconsistent response.
var errInconsistent = errors.New("inconsistent response of the container runtime")

func inconsistent(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errInconsistent, fmt.Sprintf(format, args...))
}

// sandboxOf checks and converts the status of a sandbox that was requested for a pod.
func sandboxOf(uid types.UID, id string, s *runtimeapi.PodSandboxStatus) (pod.Sandbox, error) {
	if err := answers("sandbox", uid, id, s.GetId(), s.GetLabels()); err != nil {
		return pod.Sandbox{}, err
	}
	if conflicting(s.GetMetadata().GetUid(), string(uid)) {
		return pod.Sandbox{}, inconsistent("sandbox %s of pod %s has the UID label %s", id, s.GetMetadata().GetUid(),
			uid)
	}
	if _, known := runtimeapi.PodSandboxState_name[int32(s.GetState())]; !known {
		return pod.Sandbox{}, inconsistent("sandbox %s is in state %d", id, s.GetState())
	}
	return cri.ToSandbox(s), nil
}

// containerOf does the same for a container; have is the pod as it was. Labels and
// annotations are parsed once: they do not change.
func containerOf(
	have pod.Runtime, uid types.UID, sandbox, id string, s *runtimeapi.ContainerStatus,
) (pod.Container, error) {
	if err := answers("container", uid, id, s.GetId(), s.GetLabels()); err != nil {
		return pod.Container{}, err
	}
	if _, known := runtimeapi.ContainerState_name[int32(s.GetState())]; !known {
		return pod.Container{}, inconsistent("container %s is in state %d", id, s.GetState())
	}
	if s.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED && s.GetStartedAt() > 0 {
		return pod.Container{}, inconsistent("container %s is in state created and has a start time, %d", id,
			s.GetStartedAt())
	}
	if name := s.GetMetadata().GetName(); conflicting(s.GetLabels()[pod.LabelContainerName], name) {
		return pod.Container{}, inconsistent("container %s with name %s has the name label %q", id, name,
			s.GetLabels()[pod.LabelContainerName])
	}
	c := cri.ToContainer(sandbox, s)
	old, ok := have.ByID(id)
	switch {
	case !ok:
		return c, nil
	case c.State != pod.StateUnknown && c.State < old.State:
		return pod.Container{}, inconsistent("container %s went back from state %s to %s", id, old.State, c.State)
	}
	c.Name, c.Attempt, c.Hash, c.Annotations = old.Name, old.Attempt, old.Hash, old.Annotations
	return c, nil
}

// conflicting reports whether two values of one field differ. Runtimes may omit either.
func conflicting(a, b string) bool { return a != "" && b != "" && a != b }

// answers checks that a status is that of the requested sandbox or container.
func answers(kind string, uid types.UID, asked, got string, labels map[string]string) error {
	ref, ours := cri.PodRef(labels)
	switch {
	case got != asked || got == "":
		return inconsistent("requested the status of %s %s, received that of %q", kind, asked, got)
	case !ours || ref.UID != uid:
		return inconsistent("%s %s of pod %s is reported as one of pod %q", kind, asked, uid, ref.UID)
	}
	return nil
}

// check finds inconsistencies in the lists of one pod. Duplicates are dropped.
func (l *listing) check(have pod.Runtime) error {
	if l.odd != nil {
		return l.odd
	}
	for _, s := range l.sandboxes {
		if _, known := runtimeapi.PodSandboxState_name[int32(s.State)]; s.Id == "" || !known {
			return inconsistent("sandbox %q is listed in state %d", s.Id, s.State)
		}
	}
	for _, c := range l.containers {
		if _, known := runtimeapi.ContainerState_name[int32(c.State)]; c.Id == "" || !known {
			return inconsistent("container %q is listed in state %d", c.Id, c.State)
		}
		if old, ok := have.ByID(c.Id); ok && c.PodSandboxId != old.SandboxID && !l.lists(c.PodSandboxId) &&
			l.lists(old.SandboxID) {
			return inconsistent("container %s of sandbox %s is listed in sandbox %q, which is not listed",
				c.Id, old.SandboxID, c.PodSandboxId)
		}
	}
	l.sandboxes = once(l.sandboxes, (*runtimeapi.PodSandbox).GetId)
	l.containers = once(l.containers, (*runtimeapi.Container).GetId)
	return nil
}

func (l *listing) lists(sandbox string) bool {
	return slices.ContainsFunc(l.sandboxes, func(s *runtimeapi.PodSandbox) bool { return s.Id == sandbox })
}

// stray checks a new container whose sandbox is not listed: the sandbox has to be removed.
// If it exists, the lists are inconsistent.
func (c *Cache) stray(ctx context.Context, ctr *runtimeapi.Container) error {
	_, err := c.cfg.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: ctr.PodSandboxId})
	switch {
	case cri.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	return inconsistent("container %s is listed, its sandbox %s exists and is not", ctr.Id, ctr.PodSandboxId)
}

// unlisted checks that a container which was listed, and whose status does not exist, is
// no longer listed.
func (c *Cache) unlisted(ctx context.Context, uid types.UID, id string) error {
	again, err := c.list(ctx, uid)
	if l := again[uid]; err == nil && l != nil &&
		slices.ContainsFunc(l.containers, func(o *runtimeapi.Container) bool { return o.Id == id }) {
		return inconsistent("container %s is listed and has no status", id)
	}
	return err
}

// crossed finds containers that are listed as one pod's in the sandbox of another pod. The
// lists of both pods are inconsistent then.
func crossed(all map[types.UID]*listing) {
	owner := map[string]types.UID{}
	for uid, l := range all {
		for _, s := range l.sandboxes {
			owner[s.Id] = uid
		}
	}
	for uid, l := range all {
		for _, c := range l.containers {
			if other, ok := owner[c.PodSandboxId]; ok && other != uid {
				l.odd = inconsistent("container %s of pod %s is listed in a sandbox of pod %s", c.Id, uid, other)
				all[other].odd = l.odd
			}
		}
	}
}

// claimed returns an error if a pod is listed with a sandbox or container of another pod.
func (c *Cache) claimed(uid types.UID, l *listing) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range l.sandboxes {
		if owner, ok := c.owners[s.Id]; ok && owner != uid {
			return inconsistent("sandbox %s of pod %s is listed as one of pod %s", s.Id, owner, uid)
		}
	}
	for _, ctr := range l.containers {
		if owner, ok := c.owners[ctr.Id]; ok && owner != uid {
			return inconsistent("container %s of pod %s is listed as one of pod %s", ctr.Id, owner, uid)
		}
	}
	return nil
}

// once drops duplicates.
func once[T any](list []T, id func(T) string) []T {
	out := list[:0:0]
	for _, item := range list {
		if !slices.ContainsFunc(out, func(o T) bool { return id(o) == id(item) }) {
			out = append(out, item)
		}
	}
	return out
}

// vanished returns ready sandboxes and running containers that are no longer listed. A list may be incomplete, so their
// status is requested.
func (l *listing) vanished(have pod.Runtime) (sandboxes []pod.Sandbox, containers []pod.Container) {
	for _, s := range have.Sandboxes {
		if s.Ready && !slices.ContainsFunc(l.sandboxes, func(o *runtimeapi.PodSandbox) bool { return o.Id == s.ID }) {
			sandboxes = append(sandboxes, s)
		}
	}
	for _, c := range have.Containers {
		if c.State == pod.StateRunning &&
			!slices.ContainsFunc(l.containers, func(o *runtimeapi.Container) bool { return o.Id == c.ID }) {
			containers = append(containers, c)
		}
	}
	return sandboxes, containers
}
