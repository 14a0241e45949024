package podsync

import (
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
)

// Config holds what a Syncer is built from. Every field is required
// unless its comment says otherwise.
type Config struct {
	Desired    Desired
	Observed   Observed
	Runtime    Runtime
	Images     Images
	Volumes    Volumes
	Claims     Claims
	Objects    Objects
	Cgroups    Cgroups
	Probes     Probes
	Status     Status
	Allocation Allocation
	Resources  Resources
	Disk       Disk
	Node       Node
	Events     pod.Events

	Backoff    podplan.BackoffLimits // of containers that crash
	RestartAll bool                  // restart rules may restart all containers of a pod
	KeepEnded  int                   // ended instances of each container that are kept; see [podplan.Input]
	// OnNameFree is called when a static pod's full name has become free; must
	// not block.
	OnNameFree func()
	// TurnPatience is how long a worker may be in one turn before it counts as stuck.
	TurnPatience time.Duration
	Tracer       trace.Tracer // nil: nothing is traced
	Log          *slog.Logger
	Now          func() time.Time
}

// Runtime acts on the container runtime.
type Runtime struct {
	Relister
	Sandboxes
	Starter
	Stopper
	Updater
	Logs
}

// Volumes are the volumes of pods.
type Volumes struct {
	Preparer
	Releaser
	Mounter
}

// Claims are the resource claims of pods (dynamic resource allocation).
type Claims struct {
	Preparer
	Releaser
	ClaimContributor
	HealthReporter
}

// Cgroups are the cgroups of pods.
type Cgroups struct {
	CgroupMaker
	CgroupResizer
	CgroupRemover
}

// Allocation is the ledger of what is allocated to pods.
type Allocation struct {
	Admitter
	Allocated
	Actuation
	Resizes
	Occupancy
}

// Resources allocates exclusive resources to containers: whole CPUs, memory of a NUMA node, devices. Admitter.Admit has
// reserved them.
type Resources struct {
	Confirmer
	ResourceContributor
	ResourceReleaser
	HealthReporter
}

// Disk is what is kept of pods on the disk.
type Disk struct {
	Dirs
	RestartRecords
	EvictionRecords
}

// Node is the state of the node that pods depend on.
type Node struct {
	// Leaving, if not nil, reports whether the machine was already shutting down when this
	// agent started, and still is. No container is started then. When this changes, all
	// pods must be woken.
	Leaving func() bool
	// NetworkReady reports whether the runtime can give pods a network.
	NetworkReady func() error
	// HostIPs are the node's addresses, primary family first; nil until known.
	HostIPs func() []string
	// NodeIP is the first address of --node-ip, if there is one. Pods show an address of its family first, by
	// default IPv4.
	NodeIP string
	// AddressMismatch returns a message if the addresses are not those that the agent would have chosen, with the
	// consequence; empty if they are.
	AddressMismatch func() string
}
