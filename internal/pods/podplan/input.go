package podplan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// Input is everything a decision goes by.
type Input struct {
	Now  time.Time
	Pod  *v1.Pod // nil when only the runtime knows the pod
	Have pod.Runtime

	// Going is set once the pod is to end, and never taken back.
	Going *Going
	// Forgotten says that no source holds the pod any more, or nobody looks at what
	// is left of it: whatever the runtime still has of it is removed.
	Forgotten bool

	NetworkReady bool // the runtime's network; pods on the host's do not need it
	VolumesReady bool
	// ClaimsPending says that drivers have yet to prepare what the pod claims: neither
	// its sandbox nor a container starts before.
	ClaimsPending bool
	// DevicesPending is set while device plugins that the pod needs have not registered: neither
	// its sandbox nor a container starts before.
	DevicesPending bool
	Busy           map[string]Task      // what is under way, by step target
	Images         map[string]Image     // by container name
	Probes         map[string]Probe     // by container ID
	Backoff        map[string]Backoff   // crash back-off, by container name
	RetryAt        map[string]time.Time // after a failed step: its target is not tried before
	Announced      map[string]bool      // containers whose stop was announced by a Killing event, by ID
	// Replaced are the containers that this agent stopped to start them again, by ID, and when the instance before each
	// of them ended; the zero time if the runtime held none.
	Replaced map[string]time.Time
	// SandboxStopped are the sandboxes that were stopped, by ID. A sandbox that died by itself is not ready either, but
	// the runtime holds its network until it is stopped.
	SandboxStopped map[string]bool
	// Resize names running containers that must be restarted to get their allocated
	// resources. While Resizing, the pod's cgroup does not have the allocated resources
	// yet: no regular container starts.
	Resize   map[string]bool
	Resizing bool
	// KeepEnded is how many ended instances of each container are kept, one at least.
	KeepEnded int
	// Ran is the latest attempt of each container that this agent has seen run.
	Ran         map[string]int
	LogAttempts map[string]int // next attempt by the log files on disk, for containers the runtime has forgotten
}

// Going says that a pod is to end and how much time its containers have.
type Going struct {
	Deadline time.Time // when the grace period is over; it may only move earlier
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

// Verb is the kind of a step.
type Verb string

// The verbs. A step's target is a container name for Image and Start, a
// container ID for Stop, AnnounceStop and Remove, a sandbox ID for StopSandbox and
// RemoveSandbox, and [SandboxTarget] for RunSandbox.
const (
	RunSandbox    Verb = "run sandbox"
	StopSandbox   Verb = "stop sandbox"
	RemoveSandbox Verb = "remove sandbox"
	FetchImage    Verb = "fetch image"
	Start         Verb = "start"
	Stop          Verb = "stop"
	AnnounceStop  Verb = "announce stop"
	Remove        Verb = "remove"
)

// SandboxTarget is the target of RunSandbox: a pod has one at a time.
const SandboxTarget = "/sandbox"

// Cause says why a container is stopped, where the reader of its event or
// status needs to know.
type Cause string

// The causes of a Stop.
const (
	CausePodGoing       Cause = ""
	CauseSandboxChanged Cause = "sandbox changed"
	CauseSpecChanged    Cause = "definition changed"
	CauseLiveness       Cause = "failed liveness probe"
	CauseStartup        Cause = "failed startup probe"
	CauseUnknownState   Cause = "in an unknown state"
	CauseRemoval        Cause = "in an unknown state, and to be removed"
	CauseResize         Cause = "resize requires restart"
	CauseRestartAll     Cause = "all containers are restarted"
)

// Step is one thing to do now.
type Step struct {
	Verb     Verb
	Target   string
	Attempt  int       // RunSandbox, Start, FetchImage
	Deadline time.Time // Stop, AnnounceStop: when the container's grace period is over
	Cause    Cause     // Stop, Remove
	Reason   string    // what a person would want in a log
}

// What a plan waits for, where others ask which it is.
const (
	WaitVolumes = "volumes"
	WaitClaims  = "resource claims"
	WaitDevices = "device plugins"
	WaitNetwork = "the runtime's network"
	WaitSandbox = "sandbox"
	WaitBackoff = "back-off of " // and the container
)

// Plan is the answer: steps to take now, in order, and when to ask again if
// nothing else happens first. A zero Wake means that there is nothing to wait for.
type Plan struct {
	Steps []Step
	Wake  time.Time
	// Waits names what the pod waits for, for people.
	Waits []string
	// Held are the containers that wait out a crash back-off, and until when.
	Held map[string]time.Time
	// Stopped is set if no container runs, and no sandbox is ready or still holds its network.
	Stopped bool
}

func (p *Plan) step(s Step)         { p.Steps = append(p.Steps, s) }
func (p *Plan) waitFor(what string) { p.Waits = append(p.Waits, what) }
func (p *Plan) wakeAt(t time.Time) {
	if p.Wake.IsZero() || t.Before(p.Wake) {
		p.Wake = t
	}
}
