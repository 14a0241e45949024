package eviction

import v1 "k8s.io/api/core/v1"

// Signal is an eviction signal, as named in the configuration and in metrics.
type Signal string

// The signals.
const (
	MemoryAvailable       Signal = "memory.available"
	AllocatableMemory     Signal = "allocatableMemory.available" // of all pods
	NodeFSAvailable       Signal = "nodefs.available"
	NodeFSInodesFree      Signal = "nodefs.inodesFree"
	ImageFSAvailable      Signal = "imagefs.available"
	ImageFSInodesFree     Signal = "imagefs.inodesFree"
	ContainerFSAvailable  Signal = "containerfs.available"
	ContainerFSInodesFree Signal = "containerfs.inodesFree"
	PIDAvailable          Signal = "pid.available"
)

// Signals of limits of local storage, in metrics only.
const (
	signalEmptyDir  Signal = "emptydirfs.limit"
	signalPod       Signal = "ephemeralpodfs.limit"
	signalContainer Signal = "ephemeralcontainerfs.limit"
)

// Starved resources that are not resources of the API.
const (
	resourceInodes v1.ResourceName = "inodes"
	resourcePIDs   v1.ResourceName = "pids"
)

// EventThresholdMet is the reason of an event about the node.
const EventThresholdMet = "EvictionThresholdMet"

// Annotations of a pod's Evicted event.
const (
	annotationContainers     = "offending_containers"
	annotationContainerUsage = "offending_containers_usage"
	annotationResource       = "starved_resource"
	annotationPod            = "offending_pod"
	annotationPodUsage       = "offending_pod_usage"
)

// Messages of status.message. They are compatible with upstream.
const (
	messageLow       = "The node was low on resource: %s. "
	messageThreshold = "Threshold quantity: %s, available: %s. "
	messageContainer = "Container %s was using %s, request is %s, has larger consumption of %s. "
	messagePod       = "Pod %s was using %s, request is %s, has larger consumption of %s. "
	messageEmptyDir  = "Usage of EmptyDir volume %q exceeds the limit %q. "
	messageLimit     = "Container %s exceeded its local ephemeral storage limit %q. "
	messageTotal     = "Pod ephemeral local storage usage exceeds the total limit of containers %s. "
	messageReclaim   = "Attempting to reclaim %s"
)

// Metric names.
const (
	metricEvictions = "kubelet_evictions"
	metricStatsAge  = "kubelet_eviction_stats_age_seconds"
)

// signalInfo maps signals to the pressure condition and the starved resource.
var signalInfo = map[Signal]struct {
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
