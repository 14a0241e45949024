package node

// Labels and annotations of the node object.
const (
	labelHostname = "kubernetes.io/hostname"
	labelOS       = "kubernetes.io/os"
	labelArch     = "kubernetes.io/arch"
	labelBetaOS   = "beta.kubernetes.io/os"
	labelBetaArch = "beta.kubernetes.io/arch"

	labelZone             = "topology.kubernetes.io/zone"
	labelRegion           = "topology.kubernetes.io/region"
	labelBetaZone         = "failure-domain.beta.kubernetes.io/zone"
	labelBetaRegion       = "failure-domain.beta.kubernetes.io/region"
	labelInstanceType     = "node.kubernetes.io/instance-type"
	labelBetaInstanceType = "beta.kubernetes.io/instance-type"

	annotationAttachDetach = "volumes.kubernetes.io/controller-managed-attach-detach"
	annotationProvidedIP   = "alpha.kubernetes.io/provided-node-ip"

	taintExternalCloud = "node.cloudprovider.kubernetes.io/uninitialized"
)

// LeaseNamespace is the namespace of node leases.
const LeaseNamespace = "kube-node-lease"

// Reasons of events about the node.
const (
	EventStarting           = "Starting"
	EventRebooted           = "Rebooted"
	EventReady              = "NodeReady"
	EventNotReady           = "NodeNotReady"
	EventSchedulable        = "NodeSchedulable"
	EventNotSchedulable     = "NodeNotSchedulable"
	EventCgroupV1           = "CgroupV1"
	EventAllocatableSet     = "NodeAllocatableEnforced"
	EventAllocatableFailing = "FailedNodeAllocatableEnforcement"
)

// messageCgroupV1 is the message of EventCgroupV1.
const messageCgroupV1 = "cgroup v1 detected. " +
	"cgroup v1 support is deprecated and will be removed in a future release. Please migrate to cgroup v2. " +
	"More information at https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1"
