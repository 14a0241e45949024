package status

import (
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/resource"

	"keelson/internal/pods/pod"
)

// Node is what all statuses on this node have in common.
type Node struct {
	RuntimeName string // prefix of container IDs, such as containerd
	// RecursiveReadOnly reports whether the runtime handler of the pod supports recursive
	// read-only mounts, for mounts with IfPossible; nil: never.
	RecursiveReadOnly func(p *v1.Pod) bool
	StopSignals       bool // stop signals are shown
	HideResources     bool // pod-level resources are not shown
}

// Project computes the status of a pod. prev is the previous one: the last that was
// published, or that of the API object.
func Project(n Node, f Facts, prev v1.PodStatus, now time.Time) v1.PodStatus {
	p := f.Pod
	st := v1.PodStatus{
		ObservedGeneration:          p.Generation,
		QOSClass:                    pod.QOS(p),
		Phase:                       phase(f, prev),
		NominatedNodeName:           prev.NominatedNodeName,
		ResourceClaimStatuses:       prev.ResourceClaimStatuses,
		ExtendedResourceClaimStatus: prev.ExtendedResourceClaimStatus,

		NodeAllocatableResourceClaimStatuses: prev.NodeAllocatableResourceClaimStatuses,
	}
	switch {
	case ended(f.stored().Phase) && !ended(prev.Phase) && !pod.IsStatic(p):
		st.Reason, st.Message = f.stored().Reason, f.stored().Message // set by the client that ended the pod
	case f.Override == nil:
		st.Reason, st.Message = prev.Reason, prev.Message
	case f.Down && !f.forgiven():
		st.Reason, st.Message = f.Override.Reason, f.Override.Message
	}
	if !f.Started.IsZero() {
		st.StartTime = &metav1.Time{Time: f.Started.Truncate(time.Second)}
	}
	if prev.StartTime != nil {
		st.StartTime = prev.StartTime
	}
	addresses(&st, f, prev)
	containers(n, &st, f, prev)
	if !n.HideResources {
		resources(&st, p, f.actuated())
	}
	conditions(&st, f, prev, now)
	if neverRan(f, prev) {
		st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses = nil, nil, nil
		st.Conditions = slices.Clone(f.stored().Conditions) // no change to report
		st.HostIP, st.HostIPs, st.PodIP, st.PodIPs = "", nil, "", nil
		st.AllocatedResources, st.Resources = nil, nil
	}
	return st
}

// neverRan reports whether the pod was rejected, now or before the agent restarted.
func neverRan(f Facts, prev v1.PodStatus) bool {
	if f.Override != nil {
		return f.Override.Rejected
	}
	return prev.Phase == v1.PodFailed && len(prev.ContainerStatuses) == 0 && len(f.Have.Containers) == 0
}

// phase keeps a terminal phase once it was published, and delays one while a container or
// the sandbox runs.
func phase(f Facts, prev v1.PodStatus) v1.PodPhase {
	next := f.view().Phase(f.Terminating && f.Down && !pod.IsStatic(f.Pod))
	if f.Override != nil && f.Override.Phase != "" && !f.forgiven() {
		next = f.Override.Phase
	}
	switch {
	case ended(prev.Phase):
		return prev.Phase
	case ended(f.stored().Phase) && !pod.IsStatic(f.Pod):
		return f.stored().Phase // set by another client; the phase is final
	case ended(next) && !f.Down:
		if prev.Phase != "" {
			return prev.Phase
		}
		return v1.PodRunning
	case next == v1.PodPending && prev.Phase == v1.PodRunning && f.Terminating:
		return v1.PodRunning // a terminating pod does not go back to Pending
	}
	return next
}

func ended(p v1.PodPhase) bool { return p == v1.PodSucceeded || p == v1.PodFailed }

func addresses(st *v1.PodStatus, f Facts, prev v1.PodStatus) {
	if len(f.HostIPs) > 0 {
		st.HostIP = f.HostIPs[0]
		for _, ip := range f.HostIPs {
			st.HostIPs = append(st.HostIPs, v1.HostIP{IP: ip})
		}
	}
	if len(f.PodIPs) == 0 {
		if f.Terminating { // its sandbox stopped before the agent restarted; no other is created
			st.PodIP, st.PodIPs = prev.PodIP, prev.PodIPs
		}
		return
	}
	st.PodIP = f.PodIPs[0]
	for _, ip := range f.PodIPs {
		st.PodIPs = append(st.PodIPs, v1.PodIP{IP: ip})
	}
}

// resources sets the pod-level allocated and actuated resources; limits only where one
// holds for the pod as a whole.
func resources(st *v1.PodStatus, granted, force *v1.Pod) {
	options := resource.PodResourcesOptions{} // the overhead is the pod's
	if requests := resource.PodRequests(granted, options); len(requests) > 0 {
		st.AllocatedResources = requests
	}
	st.Resources = &v1.ResourceRequirements{}
	if force.Spec.Resources != nil {
		st.Resources = force.Spec.Resources.DeepCopy()
	}
	if requests := resource.PodRequests(force, options); len(requests) > 0 {
		st.Resources.Requests = requests
	}
	limits := resource.PodLimits(force, options)
	maps.DeleteFunc(limits, func(name v1.ResourceName, _ apiresource.Quantity) bool { return !pod.Limits(force, name) })
	if len(limits) > 0 {
		st.Resources.Limits = limits
	}
}

func names(list []string) string { return "[" + strings.Join(list, " ") + "]" }
