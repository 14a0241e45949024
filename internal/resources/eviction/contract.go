package eviction

import v1 "k8s.io/api/core/v1"

// Signal is what a threshold may be put on, as the configuration and the metrics
// name it.
type Signal string

// The signals.
const (
	MemoryAvailable       Signal = "memory.available"
	AllocatableMemory     Signal = "allocatableMemory.available" // of all pods together
	NodeFSAvailable       Signal = "nodefs.available"
	NodeFSInodesFree      Signal = "nodefs.inodesFree"
	ImageFSAvailable      Signal = "imagefs.available"
	ImageFSInodesFree     Signal = "imagefs.inodesFree"
	ContainerFSAvailable  Signal = "containerfs.available"
	ContainerFSInodesFree Signal = "containerfs.inodesFree"
	PIDAvailable          Signal = "pid.available"
)

// Signals of limits that pods have of their own, in the metric alone.
const (
	signalEmptyDir  Signal = "emptydirfs.limit"
	signalPod       Signal = "ephemeralpodfs.limit"
	signalContainer Signal = "ephemeralcontainerfs.limit"
)

// Resources that are starved, beside those of the API.
const (
	resourceInodes v1.ResourceName = "inodes"
	resourcePIDs   v1.ResourceName = "pids"
)

// EventThresholdMet is the reason of the event about the node.
const EventThresholdMet = "EvictionThresholdMet"

// Annotations of a pod's Evicted event.
const (
	annotationContainers     = "offending_containers"
	annotationContainerUsage = "offending_containers_usage"
	annotationResource       = "starved_resource"
	annotationPod            = "offending_pod"
	annotationPodUsage       = "offending_pod_usage"
)

// Messages, which become the pod's status.message. People search for them.
const (
	saysLow       = "The node was low on resource: %s. "
	saysThreshold = "Threshold quantity: %s, available: %s. "
	saysContainer = "Container %s was using %s, request is %s, has larger consumption of %s. "
	saysPod       = "Pod %s was using %s, request is %s, has larger consumption of %s. "
	saysEmptyDir  = "Usage of EmptyDir volume %q exceeds the limit %q. "
	saysLimit     = "Container %s exceeded its local ephemeral storage limit %q. "
	saysTotal     = "Pod ephemeral local storage usage exceeds the total limit of containers %s. "
	saysReclaim   = "Attempting to reclaim %s"
)

// Metric names.
const (
	metricEvictions = "kubelet_evictions"
	metricStatsAge  = "kubelet_eviction_stats_age_seconds"
)

// about tells which pressure a signal means, and what is scarce then.
var about = map[Signal]struct {
	pressure v1.NodeConditionType
	resource v1.ResourceName
}{
	MemoryAvailable:       {v1.NodeMemoryPressure, v1.ResourceMemory},
	AllocatableMemory:     {v1.NodeMemoryPressure, v1.ResourceMemory},
	NodeFSAvailable:       {v1.NodeDiskPressure, v1.ResourceEphemeralStorage},
	NodeFSInodesFree:      {v1.NodeDiskPressure, resourceInodes},
	ImageFSAvailable:      {v1.NodeDiskPressure, v1.ResourceEphemeralStorage},
	ImageFSInodesFree:     {v1.NodeDiskPressure, resourceInodes},
	ContainerFSAvailable:  {v1.NodeDiskPressure, v1.ResourceEphemeralStorage},
	ContainerFSInodesFree: {v1.NodeDiskPressure, resourceInodes},
	PIDAvailable:          {v1.NodePIDPressure, resourcePIDs},
}

func (s Signal) memory() bool { return s == MemoryAvailable || s == AllocatableMemory }
