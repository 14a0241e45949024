package podplan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// Input is everything that a decision depends on.
type Input struct {
	Now  time.Time
	Pod  *v1.Pod // with its allocated resources; nil if only the runtime or the disk has traces of it
	Have pod.Runtime
	// StoppedForRestart and Recreated are parts of the [View].
	StoppedForRestart map[string]bool
	Recreated         map[string]int

	State       State        // as Assess computed it
	Termination *Termination // of the decision before; nil: there was none

	Source Source
	// RuntimeUnlisted says that the runtime was not listed yet, RuntimeUnread that what it holds of the pod could not
	// be read yet.
	RuntimeUnlisted bool
	RuntimeUnread   bool
	// Adopted says that the pod was found by its traces on the node, and that no source has it.
	Adopted bool
	// NameTaken says that another static pod of the same full name has not ended.
	NameTaken bool
	Recovered bool // what an earlier agent has recorded of the pod was read
	Admission Admission
	Eviction  Eviction
	Held      Holdings
	Readiness

	Busy    map[Key]Task
	RetryAt map[Key]time.Time // after a failed step: it is not repeated before
	History
	Resize ResizeNeed

	Images map[string]Image // by container name
	Probes map[string]Probe // by container ID
	// UnlinkedLogs says that logs of containers may not be linked under their older names yet.
	UnlinkedLogs bool
	// KeepEnded is how many ended instances of each container are kept, one at least.
	KeepEnded int
}

// View returns the parts of the input that are about the pod's containers.
func (in *Input) View() View {
	return View{
		Pod:               in.Pod,
		Have:              in.Have,
		StoppedForRestart: in.StoppedForRestart,
		Recreated:         in.Recreated,
	}
}

// Source is the state of the sources with regard to the pod.
type Source struct {
	Missing  bool // no source has the pod
	Unsynced bool // a source that may have it has not delivered yet
	// Undecided: a resize of the pod is not decided yet, and what it was before is not known.
	Undecided bool
	Forced    bool // the object was removed from the API server while the pod was being deleted
	Discard   bool // what the runtime holds of it after its end is removed, though a source has it
}

// AdmissionState is how far the admission of a pod is.
type AdmissionState int

// The states of an admission.
const (
	NotAsked AdmissionState = iota // or to be asked again
	Waiting                        // for other pods to end, or for device plugins to register
	Granted                        // by the allocation; what is allocated may have to be confirmed
	Admitted
)

// Admission is what is known of the pod's admission.
type Admission struct {
	State  AdmissionState
	Judged bool // once at least
	Late   bool // when it was judged last, it had to wait for device plugins
	// Unconfirmed says that what is allocated to the pod has yet to be confirmed by device plugins.
	Unconfirmed bool
	// Rejection, if not nil, is why the node rejects the pod: in admission, or because of a device plugin or a volume.
	Rejection *pod.Rejection
	Started   time.Time // when the pod's life on this node began
}

// admitted reports whether the pod may run.
func (in *Input) admitted() bool {
	return in.Admission.State == Admitted || in.Admission.State == Granted && !in.Admission.Unconfirmed
}

// Eviction holds requests of other parts to terminate the pod: evictions, preemptions, and the shutdown of the node.
type Eviction struct {
	// Pending is an eviction that is not in force yet. It is recorded on the disk before any container is stopped: without
	// the record, an agent that starts later would run the pod again if the reason for the eviction is over.
	Pending *EvictionRecord
	Since   time.Time // when it was requested
	// Recorded says that Pending is on the disk, or that it cannot be.
	Recorded bool
	// Earlier is the eviction that an earlier agent has recorded; nil for none.
	Earlier *EvictionRecord
	// Requests are in force at once: node shutdown, and evictions after the first.
	Requests []EvictionRecord
}

// Readiness is what containers need before they can start.
type Readiness struct {
	NetworkReady bool // the runtime's; pods on the host's network do not need it
	VolumesReady bool
	// ClaimsPending says that drivers have yet to prepare what the pod claims: neither its sandbox nor a container
	// starts before.
	ClaimsPending bool
	// DevicesPending is set while device plugins that the pod needs have not registered: neither its sandbox nor a
	// container starts before.
	DevicesPending bool
	// LogsUnread says that for a container which the runtime does not hold, the attempts that its log files show have
	// yet to be read.
	LogsUnread bool
}

// Holdings are what the pod still holds on the node.
type Holdings struct {
	Claims      bool
	Resources   bool // its allocation
	Volumes     bool
	VolumesFail bool // they cannot be unmounted
	Objects     bool // ConfigMaps and Secrets
	Cgroup      bool
	CgroupFull  bool // its cgroup has more than the least CPU
	Directories bool
}

// History is what this agent has done to the pod's containers and sandboxes.
type History struct {
	Backoff   map[string]Backoff // crash back-off, by container name
	Announced map[string]bool    // containers whose stop was announced by a Killing event, by ID
	// Replaced are the containers that this agent stopped to start them again, by ID, and when the instance before each
	// of them ended; the zero time if the runtime held none.
	Replaced map[string]time.Time
	// SandboxStopped are the sandboxes that were stopped, by ID. A sandbox that died by itself is not ready either, but
	// the runtime holds its network until it is stopped.
	SandboxStopped map[string]bool
	// SandboxWithoutCgroup is the sandbox whose containers run although the pod's cgroup was removed; empty: none is.
	SandboxWithoutCgroup string
	// Ran is the latest attempt of each container that this agent has seen run.
	Ran         map[string]int
	LogAttempts map[string]int // next attempt by the log files on disk, for containers that the runtime has no longer
	// RestartsRecorded says that a restart of all containers is recorded on the disk.
	RestartsRecorded bool
}

// ResizeNeed is what has to be done to actuate the pod's allocated resources.
type ResizeNeed struct {
	// Restart are the running containers that must be restarted to get their allocated resources.
	Restart map[string]bool
	// Open says that the pod's cgroup or a container does not have the allocated resources yet.
	Open bool
	// Failing says that the last attempt failed. Containers are started nevertheless.
	Failing bool
}

// Task is a step under way.
type Task struct {
	Verb     Verb
	Deadline time.Time // of a Stop or AnnounceStop
}

// Image is what is known of a container's image for one attempt to start it.
type Image struct {
	Attempt int
	Ready   bool
	RetryAt time.Time // set after a failure
}

// Probe is what the probes of one container instance have found.
type Probe struct {
	Started        bool // no startup probe, or it has succeeded; the postStart hook is done
	StartupFailed  bool
	LivenessFailed bool
}
