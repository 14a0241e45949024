package status

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
)

// containers computes the three lists of container statuses: init containers in the order
// of the specification, the others by name. prev is the previous status.
func containers(n Node, st *v1.PodStatus, f Facts, prev v1.PodStatus) {
	for kind, spec := range pod.Containers(f.Pod) {
		before := shownBefore(prev, spec.Name)
		if kind == pod.Ephemeral && before.Name == "" && f.Terminating && !seen(f, spec.Name) {
			continue // it was added after the pod had terminated, and will never be started
		}
		cs := remembering(containerStatus(n, f, kind, spec), before)
		if ended(prev.Phase) && before.State.Waiting != nil && neverLocated(cs) {
			cs.State = before.State
		}
		if cs.State.Terminated != nil && cs.AllocatedResourcesStatus == nil {
			cs.AllocatedResourcesStatus = before.AllocatedResourcesStatus // they were released
		}
		switch kind {
		case pod.Init, pod.Sidecar:
			st.InitContainerStatuses = append(st.InitContainerStatuses, cs)
		case pod.Ephemeral:
			st.EphemeralContainerStatuses = append(st.EphemeralContainerStatuses, cs)
		default:
			st.ContainerStatuses = append(st.ContainerStatuses, cs)
		}
	}
	byName := func(a, b v1.ContainerStatus) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(st.ContainerStatuses, byName)
	slices.SortFunc(st.EphemeralContainerStatuses, byName)
	shareMessages(st)
}

// remembering keeps what the previous status has and the runtime no longer does: the end
// of a container that was removed since, the end of the instance before this one, and the
// attempt of a later one, which never ran.
func remembering(cs, before v1.ContainerStatus) v1.ContainerStatus {
	cs.RestartCount = max(cs.RestartCount, before.RestartCount)
	switch {
	case cs.ContainerID == "" && cs.State.Terminated != nil && before.ContainerID != "" &&
		before.State.Terminated != nil:
		return before
	case cs.ContainerID == "" && cs.State.Terminated != nil && cs.State.Terminated.ExitCode == 0:
		cs.LastTerminationState = before.LastTerminationState // it was retried and succeeded
	case cs.ContainerID != "" && cs.ContainerID == before.ContainerID && cs.LastTerminationState.Terminated == nil:
		// While it was to be restarted, its own termination was shown as lastState.
		if last := before.LastTerminationState.Terminated; last != nil && last.ContainerID != cs.ContainerID {
			cs.LastTerminationState.Terminated = last
		}
	}
	return cs
}

// neverLocated reports whether the container is shown as terminated although it was never observed. One that was shown
// as waiting when its pod ended stays waiting: a later sidecar that could not be located either is no evidence that
// this container was created.
func neverLocated(cs v1.ContainerStatus) bool {
	ended := cs.State.Terminated
	return cs.ContainerID == "" && ended != nil && ended.Reason == podplan.ReasonLost
}

func shownBefore(prev v1.PodStatus, name string) v1.ContainerStatus {
	for _, list := range [][]v1.ContainerStatus{
		prev.InitContainerStatuses,
		prev.ContainerStatuses,
		prev.EphemeralContainerStatuses,
	} {
		if i := slices.IndexFunc(list, func(cs v1.ContainerStatus) bool { return cs.Name == name }); i >= 0 {
			return list[i]
		}
	}
	return v1.ContainerStatus{}
}

func containerStatus(n Node, f Facts, kind pod.Kind, spec *v1.Container) v1.ContainerStatus {
	cs := v1.ContainerStatus{Name: spec.Name, Image: spec.Image, VolumeMounts: volumeMounts(n, f.Pod, spec)}
	if kind != pod.Ephemeral {
		cs.Started = ptr.To(false) // ephemeral containers have no probes and no started state
	}
	cs.AllocatedResourcesStatus = f.Health[spec.Name]
	c, seen := f.view().Instance(spec.Name)
	if !seen {
		cs.State.Waiting = waiting(f, spec.Name)
		if attempt, ok := f.view().RecreatedAs(spec.Name); ok {
			anew := podplan.Anew(spec.Name, attempt)
			cs.RestartCount, cs.LastTerminationState = anew.RestartCount, anew.LastTerminationState
			if _, failed := f.Waiting[spec.Name]; !failed {
				cs.State = anew.State
			}
		}
		if f.Terminating && f.Down && ended(st(f)) && kind != pod.Ephemeral {
			cs.State = v1.ContainerState{Waiting: waiting(f, spec.Name)}
			if hadItsTurn(f, kind, spec.Name) { // its state cannot be known any more
				cs.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 137,
					Reason:  podplan.ReasonLost,
					Message: "The container could not be located when the pod was terminated"}}
			}
		}
		return cs
	}
	cs.RestartCount = int32(c.Attempt)
	if c.ID != "" {
		cs.Resources = spec.Resources.DeepCopy()
		if c.State == pod.StateRunning {
			cs.Resources = actuated(f, spec, c)
		}
		if len(spec.Resources.Requests) > 0 {
			cs.AllocatedResources = spec.Resources.Requests.DeepCopy()
		}
		cs.ContainerID = n.RuntimeName + "://" + c.ID
		cs.Image, cs.ImageID, cs.User = c.Image, c.ImageRef, c.User
		if n.StopSignals {
			cs.StopSignal = c.StopSignal
		}
	}
	switch c.State {
	case pod.StateRunning:
		cs.State.Running = &v1.ContainerStateRunning{StartedAt: seconds(c.StartedAt)}
		if kind != pod.Ephemeral {
			probe := f.Probes[c.ID]
			cs.Started, cs.Ready = ptr.To(probe.Started), probe.Ready && kind != pod.Init
		}
	case pod.StateExited:
		ended := terminated(n, c)
		_, failed := f.Waiting[spec.Name]
		lost := c.ID == "" && c.Reason == podplan.ReasonLost
		if f.view().WasStoppedForRestart(c) && !failed && !f.Terminating {
			// It did not terminate by itself. Where the policy is not Always, the API server treats a
			// termination without failure as final and refuses later statuses.
			cs.State.Waiting = waiting(f, spec.Name)
			cs.LastTerminationState.Terminated = ended
		} else if (failed || lost) && !f.Terminating && f.view().ShouldRestart(kind, spec, c) {
			cs.State.Waiting = waiting(f, spec.Name)
			cs.LastTerminationState.Terminated = ended
			if lost {
				ended.Message = "The container could not be located when the pod was deleted.  The container used to be Running"
			}
		} else {
			cs.State.Terminated = ended
		}
		cs.Ready = kind == pod.Init && f.view().Succeeded(kind, c)
	default:
		cs.State.Waiting = waiting(f, spec.Name)
		cs.ContainerID = ""
	}
	if cs.LastTerminationState.Terminated == nil {
		if older := previous(f.Have, c); older != nil {
			cs.LastTerminationState.Terminated = terminated(n, *older)
		} else if attempt, ok := f.view().RecreatedAs(spec.Name); ok && attempt == c.Attempt {
			cs.LastTerminationState = podplan.Anew(spec.Name, attempt).LastTerminationState
		}
	}
	return cs
}

// seen reports whether a container of that name exists or existed.
func seen(f Facts, name string) bool {
	_, ok := f.view().Instance(name)
	return ok
}

// hadItsTurn reports whether a container that the runtime does not have may have been created and
// removed: the first init container, those before an init container that was created, and regular
// ones once the pod was initialized.
func hadItsTurn(f Facts, kind pod.Kind, name string) bool {
	if kind == pod.Regular {
		return f.view().Initialized() || lastInitSucceeded(f)
	}
	for i, later := range f.Pod.Spec.InitContainers {
		if later.Name == name {
			return i == 0 || slices.ContainsFunc(f.Pod.Spec.InitContainers[i+1:], func(c v1.Container) bool {
				_, made := f.view().Instance(c.Name)
				return made
			})
		}
	}
	return false
}

// lastInitSucceeded reports whether the last init container succeeded, without looking at those before it.
func lastInitSucceeded(f Facts) bool {
	inits := f.Pod.Spec.InitContainers
	if len(inits) == 0 {
		return true
	}
	c, made := f.view().Instance(inits[len(inits)-1].Name)
	return made && c.State == pod.StateExited && f.view().Succeeded(pod.Init, c)
}

func st(f Facts) v1.PodPhase {
	if f.Override != nil {
		return f.Override.Phase
	}
	return f.view().Phase(true)
}

// previous returns the instance before c, if the runtime still has it.
func previous(have pod.Runtime, c pod.Container) *pod.Container {
	for _, o := range have.Instances(c.Name) {
		if o.ID != c.ID && o.State == pod.StateExited {
			return &o
		}
	}
	return nil
}

func waiting(f Facts, name string) *v1.ContainerStateWaiting {
	if w, ok := f.Waiting[name]; ok {
		return &v1.ContainerStateWaiting{Reason: w.Reason, Message: w.Message}
	}
	if len(f.Pod.Spec.InitContainers) > 0 {
		return &v1.ContainerStateWaiting{Reason: pod.ReasonPodInitializing}
	}
	return &v1.ContainerStateWaiting{Reason: pod.ReasonContainerCreating}
}

func terminated(n Node, c pod.Container) *v1.ContainerStateTerminated {
	t := &v1.ContainerStateTerminated{ExitCode: c.ExitCode, Reason: c.Reason, Message: c.Message,
		StartedAt: seconds(c.StartedAt), FinishedAt: seconds(c.FinishedAt)}
	if c.ID != "" {
		t.ContainerID = n.RuntimeName + "://" + c.ID
	}
	return t
}

// seconds truncates a time to seconds, as the API server stores it. Otherwise a status
// that is read back would differ from the one that was written.
func seconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

func volumeMounts(n Node, p *v1.Pod, spec *v1.Container) []v1.VolumeMountStatus {
	var list []v1.VolumeMountStatus
	for _, m := range spec.VolumeMounts {
		s := v1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := v1.RecursiveReadOnlyDisabled
			asked := m.RecursiveReadOnly != nil &&
				(*m.RecursiveReadOnly == v1.RecursiveReadOnlyIfPossible ||
					*m.RecursiveReadOnly == v1.RecursiveReadOnlyEnabled)
			private := m.MountPropagation == nil || *m.MountPropagation == v1.MountPropagationNone
			if asked && private && n.RecursiveReadOnly != nil && n.RecursiveReadOnly(p) {
				mode = v1.RecursiveReadOnlyEnabled
			}
			s.RecursiveReadOnly = &mode
		}
		list = append(list, s)
	}
	return list
}
