package status

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
)

// Facts are what a pod's status is computed from.
type Facts struct {
	Pod    *v1.Pod
	Mirror *v1.Pod // of a static pod; nil while the API server has none
	Have   pod.Runtime
	// StoppedForRestart and Recreated are what only the agent knows about the containers, see
	// [podplan.View].
	StoppedForRestart map[string]bool
	Recreated         map[string]int

	Started     time.Time // when the pod started on this node
	Terminating bool      // the pod is being terminated
	Down        bool      // no container and no sandbox runs, and its resources are released
	Finished    bool      // everything is released; the API object may be deleted

	// Override is a phase with reason that does not follow from the containers, such as that
	// of an eviction; nil for none.
	Override *podplan.Override
	// Actuated is the pod with its actuated resources, where Pod has the allocated ones; nil:
	// they are the same.
	Actuated *v1.Pod
	// Resize are the conditions about the pod's resizes.
	Resize  []v1.PodCondition
	Waiting map[string]pod.Waiting // failed starts, by container name
	Probes  map[string]Probe       // by container ID
	// Health is the health of the containers' devices, by container name.
	Health  map[string][]v1.ResourceStatus
	PodIPs  []string // primary first
	HostIPs []string // primary first
}

// view is the combined view of the pod's containers.
func (f Facts) view() podplan.View {
	return podplan.View{
		Pod:               f.Pod,
		Have:              f.Have,
		StoppedForRestart: f.StoppedForRestart,
		Recreated:         f.Recreated,
	}
}

// object is the API object of the pod: itself or its mirror pod; nil for a static pod
// without one.
func (f Facts) object() *v1.Pod {
	if pod.IsStatic(f.Pod) {
		return f.Mirror
	}
	return f.Pod
}

// forgiven reports whether the phase follows from the containers in spite of the override.
func (f Facts) forgiven() bool {
	return f.Override != nil && f.Override.Lenient && !pod.IsStatic(f.Pod) && f.view().Phase(f.Down) == v1.PodSucceeded
}

// actuated is the pod with its actuated resources.
func (f Facts) actuated() *v1.Pod {
	if f.Actuated != nil {
		return f.Actuated
	}
	return f.Pod
}

// stored is the status at the API server.
func (f Facts) stored() v1.PodStatus {
	if o := f.object(); o != nil {
		return o.Status
	}
	return v1.PodStatus{}
}

// Probe is the probe result of a running container.
type Probe struct {
	Started        bool // no startup probe, or it has succeeded
	Ready          bool // started, and no readiness probe, or it has succeeded
	StartupFailed  bool
	LivenessFailed bool
}
