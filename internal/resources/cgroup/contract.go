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
