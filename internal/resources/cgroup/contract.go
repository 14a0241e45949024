package cgroup

// Driver says who makes the directories: the agent, or systemd on its behalf. The
// runtime must use the same one.
type Driver string

// The drivers.
const (
	Cgroupfs Driver = "cgroupfs"
	Systemd  Driver = "systemd"
)

// Names in the tree. The runtime, monitoring and other agents look for them.
const (
	rootName       = "kubepods"
	burstableName  = "burstable"
	bestEffortName = "besteffort"
	podPrefix      = "pod"
	sliceSuffix    = ".slice"
)

// Operations on the tree, as the metric of how long they take names them.
const (
	Create  = "create"
	Update  = "update"
	Destroy = "destroy"
)

// procsFile lists the processes of a cgroup; what is written to it moves there.
const procsFile = "cgroup.procs"
