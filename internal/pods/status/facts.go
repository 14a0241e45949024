package status

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
)

// Facts are what a pod's status is made from.
type Facts struct {
	Pod    *v1.Pod
	Mirror *v1.Pod // of a static pod; nil while the API server has none
	Have   pod.Runtime

	Started  time.Time // when the pod's life on this node began
	Going    bool      // it is to end
	Down     bool      // nothing of it lives, its sandbox neither, and its place is free
	Finished bool      // all it held is released; the API object may be deleted

	// Override is a verdict that no container's end tells of; nil for none.
	Override *Override
	// InForce is the pod with the resources that its containers have in force, where
	// Pod has those that it was granted; nil: they are the same.
	InForce *v1.Pod
	// Resize are conditions that tell how the pod's resizes stand.
	Resize  []v1.PodCondition
	Waiting map[string]Waiting // failed starts, by container name
	Probes  map[string]Probe   // by container ID
	// Health is how well it is what containers have that is nobody else's, by name.
	Health  map[string][]v1.ResourceStatus
	PodIPs  []string // primary first
	HostIPs []string // primary first
}

// object is the API object that shows the pod; nil for a static pod that the API
// server does not know.
func (f Facts) object() *v1.Pod {
	if pod.IsStatic(f.Pod) {
		return f.Mirror
	}
	return f.Pod
}

// forgiven reports whether the pod's own end counts, and not the verdict on it.
func (f Facts) forgiven() bool {
	return f.Override != nil && f.Override.Lenient && !pod.IsStatic(f.Pod) && podplan.Phase(f.Pod, f.Have, f.Down) == v1.PodSucceeded
}

// inForce is the pod with the resources that its containers have in force.
func (f Facts) inForce() *v1.Pod {
	if f.InForce != nil {
		return f.InForce
	}
	return f.Pod
}

// stored is the status as the API server has it.
func (f Facts) stored() v1.PodStatus {
	if o := f.object(); o != nil {
		return o.Status
	}
	return v1.PodStatus{}
}

// Override is the end of a pod that was rejected, evicted, or over its deadline. It is told
// when no container lives any more.
type Override struct {
	Phase   v1.PodPhase
	Reason  string
	Message string
	// Rejected says that the pod never ran here: nothing is said of containers.
	Rejected bool
	// Unready says that the pod is not ready any more, though its containers live.
	Unready bool
	// Lenient says that a pod which ends without failure is Succeeded, with neither
	// Reason nor Message. A static pod is not: it was to run for ever.
	Lenient    bool
	Disruption string // the reason of a DisruptionTarget condition; empty for none
	// DisruptionMessage is that condition's; empty: Message.
	DisruptionMessage string
}

// Waiting is why a container does not run.
type Waiting struct {
	Reason  string
	Message string
}

// Probe is what is known of a running container by its probes.
type Probe struct {
	Started        bool // no startup probe, or it has succeeded
	Ready          bool // started, and no readiness probe, or it has succeeded
	StartupFailed  bool
	LivenessFailed bool
}
