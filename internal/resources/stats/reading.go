package stats

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/resources/cgroup"
	"keelson/internal/resources/machine"
)

// Pod is a pod that there is something of in the runtime.
type Pod struct {
	Spec *v1.Pod // nil when no source knows it
	Have pod.Runtime
}

// Volume is what one volume of a pod holds.
type Volume struct {
	Name                           string
	Claim                          string // the PersistentVolumeClaim; empty without one
	At                             time.Time
	Capacity, Available, Used      uint64
	Inodes, InodesFree, InodesUsed uint64
	// Ephemeral volumes count as the pod's own storage.
	Ephemeral bool
	Abnormal  *bool // nil: nobody watches its health
}

// group is what one control group uses, or what the runtime says in its place.
type group struct {
	path  string
	use   cgroup.Usage
	cores uint64 // nanocores
	io    *cgroup.Pressure
}

// podReading is what one pod uses.
type podReading struct {
	Pod
	group      // of the whole pod; path is empty when it has none
	started    time.Time
	sandbox    *containerReading
	containers []containerReading
	net        []machine.Traffic
	netAt      time.Time
	processes  uint64 // of its containers
}

// containerReading is what one container uses.
type containerReading struct {
	pod.Container
	group
}

// reading is what was found at one moment.
type reading struct {
	at      time.Time
	full    bool
	node    group
	parents []group // the groups above the pods
	system  []systemReading
	pods    []podReading
	net     []machine.Traffic
	memory  machine.Memory
	failed  error // of what could not be read, the first
}

// systemReading is what the programs of the node itself use.
type systemReading struct {
	name string
	group
}
