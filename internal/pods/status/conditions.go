package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
)

// owned are the conditions that the agent writes; all others belong to other clients and
// are never changed.
var owned = []v1.PodConditionType{
	v1.PodReadyToStartContainers, v1.PodInitialized, v1.PodReady, v1.ContainersReady, v1.PodScheduled,
	v1.DisruptionTarget,
	v1.PodResizePending, v1.PodResizeInProgress,
	v1.AllContainersRestarting,
}

// isOwn reports whether the agent has written the condition. The scheduler and the
// eviction API write DisruptionTarget, too, with other reasons.
func isOwn(c v1.PodCondition) bool {
	return slices.Contains(owned, c.Type) &&
		(c.Type != v1.DisruptionTarget || c.Reason == v1.PodReasonTerminationByKubelet)
}

type verdict struct {
	status          v1.ConditionStatus
	reason, message string
}

var yes = verdict{status: v1.ConditionTrue}

// conditions computes the owned conditions and copies the others.
func conditions(st *v1.PodStatus, f Facts, prev v1.PodStatus, now time.Time) {
	containersReady := containersReady(st, f)
	set := func(t v1.PodConditionType, v verdict) {
		c := v1.PodCondition{Type: t, Status: v.status, Reason: v.reason, Message: v.message,
			ObservedGeneration: f.Pod.Generation, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second))}
		if old := find(prev.Conditions, t); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		st.Conditions = append(st.Conditions, c)
	}
	set(v1.PodReadyToStartContainers, readyToStart(f))
	set(v1.PodInitialized, initialized(st, f.Pod, prev))
	set(v1.PodReady, ready(containersReady, f.Pod, f.stored().Conditions))
	set(v1.ContainersReady, containersReady)
	set(v1.PodScheduled, yes)
	if podplan.CanRestartAll(f.Pod) {
		set(v1.AllContainersRestarting, restartingAll(st, f))
		st.Conditions[len(st.Conditions)-1].ObservedGeneration = 0 // as upstream
	}
	if o := f.Override; o != nil && o.Disruption != "" && f.Down {
		set(v1.DisruptionTarget, verdict{v1.ConditionTrue, o.Disruption, cmp.Or(o.DisruptionMessage, o.Message)})
	}
	for _, c := range f.Resize {
		set(c.Type, verdict{c.Status, c.Reason, c.Message})
		last := &st.Conditions[len(st.Conditions)-1]
		last.ObservedGeneration = c.ObservedGeneration
		last.LastProbeTime = metav1.NewTime(now.Truncate(time.Second))
		old := find(prev.Conditions, c.Type)
		switch {
		case old == nil:
			if !c.LastTransitionTime.IsZero() {
				last.LastTransitionTime = metav1.NewTime(c.LastTransitionTime.Truncate(time.Second))
			}
		case old.Reason != c.Reason: // a transition of this condition, as upstream
			last.LastTransitionTime = last.LastProbeTime
		case old.Message == c.Message && !old.LastProbeTime.IsZero():
			// Upstream sets it whenever it retries the resize. That alone is no reason for a PATCH.
			last.LastProbeTime = old.LastProbeTime
		}
	}
	for _, c := range f.stored().Conditions {
		if find(st.Conditions, c.Type) == nil && c.Type != v1.PodResizePending && c.Type != v1.PodResizeInProgress {
			st.Conditions = append(st.Conditions, c)
		}
	}
}

func find(list []v1.PodCondition, t v1.PodConditionType) *v1.PodCondition {
	for i := range list {
		if list[i].Type == t {
			return &list[i]
		}
	}
	return nil
}

func readyToStart(f Facts) verdict {
	if s, ok := f.Have.ReadySandbox(); ok && (s.HostNetwork || len(s.IPs) > 0) {
		return yes
	}
	return verdict{status: v1.ConditionFalse}
}

// restartingAll is the condition of pods whose containers can all be restarted in place.
func restartingAll(st *v1.PodStatus, f Facts) verdict {
	switch st.Phase {
	case v1.PodSucceeded:
		return verdict{v1.ConditionFalse, "PodCompleted", ""}
	case v1.PodFailed:
		return verdict{v1.ConditionFalse, "PodFailed", ""}
	}
	if _, ok := f.view().Trigger(); ok && !f.Terminating {
		return verdict{v1.ConditionTrue, "RestartAllContainersStarted", "container exited with restart policy rule"}
	}
	return verdict{status: v1.ConditionFalse}
}

// initialized stays true: init containers run again in a new sandbox, and when all containers are restarted.
func initialized(st *v1.PodStatus, p *v1.Pod, prev v1.PodStatus) verdict {
	var unknown, incomplete []string
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		cs := statusOf(st.InitContainerStatuses, c.Name)
		switch {
		case cs == nil:
			unknown = append(unknown, c.Name)
		case pod.IsSidecar(c):
			if cs.Started == nil || !*cs.Started {
				incomplete = append(incomplete, c.Name)
			}
		case !cs.Ready:
			incomplete = append(incomplete, c.Name)
		}
	}
	if st.Phase == v1.PodSucceeded && len(unknown) == 0 {
		return verdict{v1.ConditionTrue, "PodCompleted", ""}
	}
	if old := find(prev.Conditions, v1.PodInitialized); old != nil && old.Status == v1.ConditionTrue {
		return yes
	}
	// A pod with a started regular container has been initialized.
	for _, cs := range st.ContainerStatuses {
		if cs.State.Running != nil || cs.State.Terminated != nil && cs.ContainerID != "" {
			incomplete = nil
		}
	}
	return blame("ContainersNotInitialized", unknown, "incomplete", incomplete)
}

func containersReady(st *v1.PodStatus, f Facts) verdict {
	var unknown, unready []string
	for kind, c := range pod.Containers(f.Pod) {
		list := st.ContainerStatuses
		switch kind {
		case pod.Sidecar:
			list = st.InitContainerStatuses
		case pod.Regular:
		default:
			continue
		}
		switch cs := statusOf(list, c.Name); {
		case cs == nil:
			unknown = append(unknown, c.Name)
		case !cs.Ready:
			unready = append(unready, c.Name)
		}
	}
	switch {
	case st.Phase == v1.PodSucceeded && len(unknown) == 0:
		return verdict{v1.ConditionFalse, "PodCompleted", ""}
	case (st.Phase == v1.PodFailed || f.Override != nil && f.Override.Unready) && len(unknown) == 0:
		return verdict{v1.ConditionFalse, "PodFailed", ""}
	}
	return blame("ContainersNotReady", unknown, "unready", unready)
}

func ready(containers verdict, p *v1.Pod, stored []v1.PodCondition) verdict {
	if containers.status != v1.ConditionTrue {
		return containers
	}
	var missing []string
	for _, g := range p.Spec.ReadinessGates {
		c := find(stored, g.ConditionType)
		switch {
		case c == nil:
			missing = append(missing,
				fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", g.ConditionType))
		case c.Status != v1.ConditionTrue:
			missing = append(missing,
				fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", g.ConditionType, c.Status))
		}
	}
	if len(missing) > 0 {
		return verdict{v1.ConditionFalse, "ReadinessGatesNotReady", strings.Join(missing, ", ")}
	}
	return yes
}

// blame returns a True condition if both lists are empty, else a False one that names the containers.
func blame(reason string, unknown []string, what string, list []string) verdict {
	var messages []string
	if len(unknown) > 0 {
		reason = "UnknownContainerStatuses"
		messages = append(messages, "containers with unknown status: "+names(unknown))
	}
	if len(list) > 0 {
		messages = append(messages, "containers with "+what+" status: "+names(list))
	}
	if len(messages) == 0 {
		return yes
	}
	return verdict{v1.ConditionFalse, reason, strings.Join(messages, ", ")}
}

func statusOf(list []v1.ContainerStatus, name string) *v1.ContainerStatus {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}
