package stats

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/host/cgroup"
	"keelson/internal/host/machine"
	"keelson/internal/pods/pod"
)

// Pod is a pod that the runtime knows.
type Pod struct {
	Spec *v1.Pod // nil: no source has it
	Have pod.Runtime
}

// Volume is the usage of a volume of a pod.
type Volume struct {
	Name                           string
	Claim                          string // the PersistentVolumeClaim; empty: none
	At                             time.Time
	Capacity, Available, Used      uint64
	Inodes, InodesFree, InodesUsed uint64
	// Ephemeral volumes count as ephemeral storage of the pod.
	Ephemeral bool
	Abnormal  *bool // nil: its health is not monitored
}

// group is the usage of a cgroup, or the runtime's equivalent.
type group struct {
	path  string
	use   cgroup.Usage
	cores uint64 // nanocores
	io    *cgroup.Pressure
}

// podReading is the usage of a pod.
type podReading struct {
	Pod
	group      // of the whole pod; path is empty if there is none
	started    time.Time
	sandbox    *containerReading
	containers []containerReading
	net        []machine.Traffic
	netAt      time.Time
	processes  uint64 // of all containers
}

// containerReading is the usage of a container.
type containerReading struct {
	pod.Container
	group
}

// reading is the usage at one time.
type reading struct {
	at      time.Time
	full    bool
	node    group
	parents []group // the cgroups above those of the pods
	system  []systemReading
	pods    []podReading
	net     []machine.Traffic
	memory  machine.Memory
	failed  error // the first failure
}

// systemReading is the usage of a system container.
type systemReading struct {
	name string
	group
}
