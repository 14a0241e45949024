package podplan

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// release releases what a stopped pod still holds on the node, in an order, and reports whether it holds nothing:
//
//	claims      are unprepared; until then the pod is not shown as ended
//	resources   and its allocation are released: other pods may get them once the pod is shown as ended
//	volumes     are unmounted; if that fails, the cgroup is reduced to the least CPU meanwhile
//	objects     that volumes were made of are not watched any more
//	cgroup      is removed when no task writes it
func (d *decision) release() bool {
	held := &d.in.Held
	if _, admitting := d.in.Busy[KeyOf(Admit, ThePod)]; admitting {
		d.plan.waitFor(Wait{Kind: WaitAdmission}) // resources may still be allocated to it
		return false
	}
	switch {
	case held.Claims:
		d.act(Step{Verb: UnprepareClaims, Target: ThePod, Reason: "pod has terminated"})
		d.plan.waitFor(Wait{Kind: WaitUnprepared})
	case held.Resources:
		d.act(Step{Verb: ReleaseResources, Target: ThePod, Reason: "pod has terminated"})
		d.plan.waitFor(Wait{Kind: WaitResourcesReleased})
	case held.Volumes:
		d.act(Step{Verb: UnmountVolumes, Target: ThePod, Reason: "pod has terminated"})
		d.plan.waitFor(Wait{Kind: WaitUnmounted})
		if held.CgroupFull && (held.VolumesFail || d.in.Adopted) {
			d.act(Step{Verb: ReduceCgroup, Target: ThePod, Reason: "its volumes stay"})
		}
	case held.Objects:
		d.act(Step{Verb: UnregisterObjects, Target: ThePod, Reason: "its volumes are unmounted"})
	case held.Cgroup && (d.anyBusy(ReduceCgroup) || d.anyBusy(Resize)):
		d.plan.waitFor(Wait{Kind: WaitCgroupWritten}) // the task would create the cgroup again
	case held.Cgroup:
		d.act(Step{Verb: RemoveCgroup, Target: ThePod, Reason: "pod has terminated"})
	default:
		return true
	}
	return false
}

// down reports whether the pod has no running containers and no sandboxes with addresses, and holds neither claims nor
// resources: the scheduler places another pod as soon as it sees that this one has ended.
func (d *decision) down() bool {
	in := &d.in
	if in.Held.Claims || in.Held.Resources || in.Have.Live() || d.anyBusy(Start) || d.anyBusy(RunSandbox) {
		return false
	}
	return !slices.ContainsFunc(in.Have.Sandboxes,
		func(s pod.Sandbox) bool { return s.Ready || !in.SandboxStopped[s.ID] })
}

// orphaned reports whether what is left of the pod in the runtime can be removed: no source has it, its containers were
// discarded to free disk space, or it was evicted and the API server has its terminal status.
func (in *Input) orphaned() bool {
	return in.Source.Missing || in.Source.Discard || in.evictionStored()
}

// evictionStored reports whether the API server has the terminal status of an evicted pod, so
// that its containers and sandboxes can be removed. An evicted pod whose containers all
// exited with 0 is shown as Succeeded, not as evicted.
func (in *Input) evictionStored() bool {
	p := in.Pod
	if p == nil || !pod.IsTerminal(p) {
		return false
	}
	if t := in.Termination; t != nil && t.Override != nil && t.Override.Reason == pod.ReasonEvicted {
		return true
	}
	return p.Status.Reason == pod.ReasonEvicted ||
		slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue &&
				c.Reason == v1.PodReasonTerminationByKubelet
		})
}

// remove removes everything from the runtime: containers first, their sandboxes when they are empty.
func (d *decision) remove() {
	for _, c := range d.in.Have.Containers {
		d.act(Step{Verb: Remove, Target: Instance(c.ID), Reason: "pod is gone"})
	}
	if len(d.in.Have.Containers) > 0 {
		d.plan.waitFor(Wait{Kind: WaitRemoved})
		return
	}
	for _, s := range d.in.Have.Sandboxes {
		d.act(Step{Verb: RemoveSandbox, Target: Sandbox(s.ID), Reason: "pod is gone"})
	}
	if len(d.in.Have.Sandboxes) > 0 {
		d.plan.waitFor(Wait{Kind: WaitSandboxRemoved})
	}
}

// removeDirectories removes the directories of a released pod that no source has and of which the runtime holds
// nothing. It reports whether nothing is left of it.
func (d *decision) removeDirectories() bool {
	in := &d.in
	// Records are in the directory, and that of an eviction creates it.
	recording := d.anyBusy(RecordEviction) || d.anyBusy(WriteRestarts)
	if !in.Source.Missing || !in.Have.Empty() || recording {
		return false
	}
	if in.Held.Directories {
		d.act(Step{Verb: RemoveDirectories, Target: ThePod, Reason: "pod is gone"})
	}
	return !in.Held.Directories
}
