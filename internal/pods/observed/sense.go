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

// What a runtime answers is checked against what it was asked and against what
// cannot change. An answer that makes no sense is no news: the pod stays as it
// was last seen, and is read again. To act on it would be to stop, or to start
// twice, what runs.

// errNonsense is why such an answer is not taken up.
var errNonsense = errors.New("the runtime's answer makes no sense")

func nonsense(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errNonsense, fmt.Sprintf(format, args...))
}

// sandboxOf checks the status of a sandbox that was asked for on behalf of a pod.
func sandboxOf(uid types.UID, id string, s *runtimeapi.PodSandboxStatus) (pod.Sandbox, error) {
	if err := answers("sandbox", uid, id, s.GetId(), s.GetLabels()); err != nil {
		return pod.Sandbox{}, err
	}
	if otherwise(s.GetMetadata().GetUid(), string(uid)) {
		return pod.Sandbox{}, nonsense("sandbox %s is of pod %s, and is labelled %s", id, s.GetMetadata().GetUid(), uid)
	}
	if _, known := runtimeapi.PodSandboxState_name[int32(s.GetState())]; !known {
		return pod.Sandbox{}, nonsense("sandbox %s is in state %d", id, s.GetState())
	}
	return cri.ToSandbox(s), nil
}

// containerOf does the same for a container; have is the pod as it was. What was
// written on the container when it was made is not read twice.
func containerOf(have pod.Runtime, uid types.UID, sandbox, id string, s *runtimeapi.ContainerStatus) (pod.Container, error) {
	if err := answers("container", uid, id, s.GetId(), s.GetLabels()); err != nil {
		return pod.Container{}, err
	}
	if _, known := runtimeapi.ContainerState_name[int32(s.GetState())]; !known {
		return pod.Container{}, nonsense("container %s is in state %d", id, s.GetState())
	}
	if s.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED && s.GetStartedAt() > 0 {
		return pod.Container{}, nonsense("container %s was never started, and was so at %d", id, s.GetStartedAt())
	}
	if name := s.GetMetadata().GetName(); otherwise(s.GetLabels()[pod.LabelContainerName], name) {
		return pod.Container{}, nonsense("container %s of the name %s is labelled %q", id, name, s.GetLabels()[pod.LabelContainerName])
	}
	c := cri.ToContainer(sandbox, s)
	old, ok := have.ByID(id)
	switch {
	case !ok:
		return c, nil
	case c.State != pod.StateUnknown && c.State < old.State:
		return pod.Container{}, nonsense("container %s was %s, and is said to be %s", id, old.State, c.State)
	}
	c.Name, c.Attempt, c.Hash, c.Annotations = old.Name, old.Attempt, old.Hash, old.Annotations
	return c, nil
}

// otherwise reports whether two accounts of one thing differ. Runtimes may leave
// either out.
func otherwise(a, b string) bool { return a != "" && b != "" && a != b }

// answers checks that a status is that of what was asked for.
func answers(kind string, uid types.UID, asked, got string, labels map[string]string) error {
	ref, ours := cri.PodRef(labels)
	switch {
	case got != asked || got == "":
		return nonsense("asked for %s %s, it told of %q", kind, asked, got)
	case !ours || ref.UID != uid:
		return nonsense("%s %s is of pod %s, and is said to be of %q", kind, asked, uid, ref.UID)
	}
	return nil
}

// check finds what makes no sense in the lists of one pod. What is listed twice
// counts once.
func (l *listing) check(have pod.Runtime) error {
	if l.odd != nil {
		return l.odd
	}
	for _, s := range l.sandboxes {
		if _, known := runtimeapi.PodSandboxState_name[int32(s.State)]; s.Id == "" || !known {
			return nonsense("sandbox %q is listed in state %d", s.Id, s.State)
		}
	}
	for _, c := range l.containers {
		if _, known := runtimeapi.ContainerState_name[int32(c.State)]; c.Id == "" || !known {
			return nonsense("container %q is listed in state %d", c.Id, c.State)
		}
		if old, ok := have.ByID(c.Id); ok && c.PodSandboxId != old.SandboxID && !l.lists(c.PodSandboxId) && l.lists(old.SandboxID) {
			return nonsense("container %s was in sandbox %s, and is listed in %q, which is not", c.Id, old.SandboxID, c.PodSandboxId)
		}
	}
	l.sandboxes = once(l.sandboxes, (*runtimeapi.PodSandbox).GetId)
	l.containers = once(l.containers, (*runtimeapi.Container).GetId)
	return nil
}

func (l *listing) lists(sandbox string) bool {
	return slices.ContainsFunc(l.sandboxes, func(s *runtimeapi.PodSandbox) bool { return s.Id == sandbox })
}

// stray checks a container that nothing is known of yet and whose sandbox is not
// listed: that has to be gone. Where it is there, the lists contradict themselves.
func (c *Cache) stray(ctx context.Context, ctr *runtimeapi.Container) error {
	_, err := c.cfg.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: ctr.PodSandboxId})
	switch {
	case cri.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	return nonsense("container %s is listed, and its sandbox %s is not and is there", ctr.Id, ctr.PodSandboxId)
}

// unlisted checks that a container which was listed, and which the runtime does
// not know, is not listed any more.
func (c *Cache) unlisted(ctx context.Context, uid types.UID, id string) error {
	again, err := c.list(ctx, uid)
	if l := again[uid]; err == nil && l != nil && slices.ContainsFunc(l.containers, func(o *runtimeapi.Container) bool { return o.Id == id }) {
		return nonsense("container %s is listed, and the runtime does not know it", id)
	}
	return err
}

// crossed finds containers that are listed as one pod's, in the sandbox of another
// one. Nothing is known then of either.
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
				l.odd = nonsense("container %s of pod %s is listed in a sandbox of pod %s", c.Id, uid, other)
				all[other].odd = l.odd
			}
		}
	}
}

// claimed is an error if a pod is listed with what is known to be another one's.
func (c *Cache) claimed(uid types.UID, l *listing) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range l.sandboxes {
		if owner, ok := c.owners[s.Id]; ok && owner != uid {
			return nonsense("sandbox %s of pod %s is listed as one of pod %s", s.Id, owner, uid)
		}
	}
	for _, ctr := range l.containers {
		if owner, ok := c.owners[ctr.Id]; ok && owner != uid {
			return nonsense("container %s of pod %s is listed as one of pod %s", ctr.Id, owner, uid)
		}
	}
	return nil
}

// once leaves out what is listed again.
func once[T any](list []T, id func(T) string) []T {
	out := list[:0:0]
	for _, item := range list {
		if !slices.ContainsFunc(out, func(o T) bool { return id(o) == id(item) }) {
			out = append(out, item)
		}
	}
	return out
}

// vanished are what was alive when the pod was last seen and is not listed any
// more. A list may lack what is there; whether it is gone is asked.
func (l *listing) vanished(have pod.Runtime) (sandboxes []pod.Sandbox, containers []pod.Container) {
	for _, s := range have.Sandboxes {
		if s.Ready && !slices.ContainsFunc(l.sandboxes, func(o *runtimeapi.PodSandbox) bool { return o.Id == s.ID }) {
			sandboxes = append(sandboxes, s)
		}
	}
	for _, c := range have.Containers {
		if c.State == pod.StateRunning && !slices.ContainsFunc(l.containers, func(o *runtimeapi.Container) bool { return o.Id == c.ID }) {
			containers = append(containers, c)
		}
	}
	return sandboxes, containers
}
