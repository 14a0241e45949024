package cgroup

// Driver is the cgroup driver: cgroups are made by the agent itself, or by systemd on its behalf. The runtime has to
// use the same one.
type Driver string

// The drivers.
const (
	Cgroupfs Driver = "cgroupfs"
	Systemd  Driver = "systemd"
)

// Names of cgroups. The runtime, monitoring and other agents depend on them.
const (
	rootName       = "kubepods"
	burstableName  = "burstable"
	bestEffortName = "besteffort"
	podPrefix      = "pod"
	sliceSuffix    = ".slice"
)

// Operations on cgroups, as named by the metric of their duration.
const (
	Create  = "create"
	Update  = "update"
	Destroy = "destroy"
)

// procsFile lists the processes of a cgroup. Writing a process ID moves the process to the cgroup.
const procsFile = "cgroup.procs"
