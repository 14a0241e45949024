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
	"keelson/internal/pods/podplan"
)

// Node is what every status on this node has in common.
type Node struct {
	RuntimeName string // prefix of container IDs, such as containerd
	// RecursiveReadOnly tells whether the runtime mounts recursively read-only for
	// this pod where it is asked to if it can; nil for never.
	RecursiveReadOnly func(p *v1.Pod) bool
	StopSignals       bool // the signals that stop containers are shown
	HideResources     bool // pod-level resources are not shown
}

// Project makes the status of a pod. prev is the status it had before: the one
// published last, or the one its API object came with.
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
		st.Reason, st.Message = f.stored().Reason, f.stored().Message // set by the part that ended the pod
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
		resources(&st, p, f.inForce())
	}
	conditions(&st, f, prev, now)
	if neverRan(f, prev) {
		st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses = nil, nil, nil
		st.Conditions = slices.Clone(f.stored().Conditions) // nothing came about that they could tell
		st.HostIP, st.HostIPs, st.PodIP, st.PodIPs = "", nil, "", nil
		st.AllocatedResources, st.Resources = nil, nil
	}
	return st
}

// neverRan reports whether the pod was rejected, now or before this agent came.
func neverRan(f Facts, prev v1.PodStatus) bool {
	if f.Override != nil {
		return f.Override.Rejected
	}
	return prev.Phase == v1.PodFailed && len(prev.ContainerStatuses) == 0 && len(f.Have.Containers) == 0
}

// phase keeps an end once it was published, and holds one back while anything
// of the pod lives.
func phase(f Facts, prev v1.PodStatus) v1.PodPhase {
	next := podplan.Phase(f.Pod, f.Have, f.Going && f.Down && !pod.IsStatic(f.Pod))
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
	case next == v1.PodPending && prev.Phase == v1.PodRunning && f.Going:
		return v1.PodRunning // a pod on its way out does not go back to the start
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
		if f.Going { // its sandbox stopped before this agent came; there will be no other
			st.PodIP, st.PodIPs = prev.PodIP, prev.PodIPs
		}
		return
	}
	st.PodIP = f.PodIPs[0]
	for _, ip := range f.PodIPs {
		st.PodIPs = append(st.PodIPs, v1.PodIP{IP: ip})
	}
}

// resources shows the pod-level allocated and actuated resources; of limits only those that hold for the pod as a
// whole.
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
