package podplan

import (
	"time"
)

// Kind is the kind of what a step is about.
type Kind string

// The kinds of targets.
const (
	KindPod       Kind = "pod"
	KindSandbox   Kind = "sandbox"   // by its ID; without one, the sandbox that is created next
	KindContainer Kind = "container" // of the specification, by its name
	KindInstance  Kind = "instance"  // of a container in the runtime, by its ID
)

// Target is what a step is about.
type Target struct {
	Kind Kind
	Name string
}

// ThePod is the target of steps for the pod as a whole, NewSandbox that of [RunSandbox].
var (
	ThePod     = Target{Kind: KindPod}
	NewSandbox = Target{Kind: KindSandbox}
)

// Sandbox is the sandbox with that ID.
func Sandbox(id string) Target { return Target{KindSandbox, id} }

// Container is the container of the specification with that name.
func Container(name string) Target { return Target{KindContainer, name} }

// Instance is the container in the runtime with that ID.
func Instance(id string) Target { return Target{KindInstance, id} }

// Verb is what a step does.
type Verb string

// The verbs. The targets are a container for FetchImage and Start, an instance for Stop, AnnounceStop and Remove, a
// sandbox for the next three, and the pod for all others.
const (
	FetchImage   Verb = "fetch image"
	Start        Verb = "start"
	Stop         Verb = "stop"
	AnnounceStop Verb = "announce stop"
	Remove       Verb = "remove"

	RunSandbox    Verb = "run sandbox"
	StopSandbox   Verb = "stop sandbox"
	RemoveSandbox Verb = "remove sandbox"

	Recover          Verb = "recover" // what an earlier agent has recorded of the pod is read
	Admit            Verb = "admit"
	ConfirmResources Verb = "confirm resources" // device plugins are asked for what is allocated to the pod
	ReadLogs         Verb = "read log attempts"
	LinkLogs         Verb = "link logs"
	WriteRestarts    Verb = "record restarts"
	Resize           Verb = "resize"
	RecordEviction   Verb = "record eviction"

	UnprepareClaims   Verb = "unprepare claims"
	ReleaseResources  Verb = "release resources" // CPUs, memory, devices, and the place in the allocation ledger
	UnmountVolumes    Verb = "unmount volumes"
	UnregisterObjects Verb = "unregister objects"
	ReduceCgroup      Verb = "reduce cgroup"
	RemoveCgroup      Verb = "remove cgroup"
	RemoveDirectories Verb = "remove directories"
)

// OnRuntime reports whether a step of this verb changes what the runtime has of the pod.
func (v Verb) OnRuntime() bool {
	switch v {
	case Start, Stop, Remove, RunSandbox, StopSandbox, RemoveSandbox:
		return true
	}
	return false
}

// Immediate reports whether a step of this verb only asks another part for something, without waiting for it: it is
// taken at once, and what is known then is part of the same decision.
func (v Verb) Immediate() bool {
	switch v {
	case FetchImage, UnprepareClaims, UnmountVolumes, UnregisterObjects:
		return true
	}
	return false
}

// Key identifies work of which only one can be under way at a time. Work for the pod as a whole is distinguished by its
// verb. Work for any other target is not: a container that is being stopped is not removed meanwhile.
type Key struct {
	Target Target
	Verb   Verb // only if Target is ThePod
}

// KeyOf is the key of a step.
func KeyOf(v Verb, t Target) Key {
	if t == ThePod {
		return Key{t, v}
	}
	return Key{Target: t}
}

// Cause is why a container is stopped or removed, if its event or status shows that.
type Cause string

// The causes of a Stop.
const (
	CauseTerminating    Cause = ""
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
	Target   Target
	Attempt  int       // RunSandbox, Start, FetchImage
	Deadline time.Time // Stop, AnnounceStop: when the container's grace period is over
	Cause    Cause     // Stop, Remove
	// ForRestart of a Stop says that the container is started again regardless of its exit code.
	ForRestart bool
	// Replace of a Stop says that the container is stopped and started in one sync of upstream's. See [Input.Replaced].
	Replace bool
	Reason  string // for logs and people
}

// Key is the key of the step.
func (s Step) Key() Key { return KeyOf(s.Verb, s.Target) }

// WaitKind is the kind of what a pod waits for.
type WaitKind string

// What a pod waits for.
const (
	WaitRuntimeList WaitKind = "the container runtime to be listed for the first time"
	WaitRuntimeRead WaitKind = "what the container runtime holds of the pod to be read"
	WaitSources     WaitKind = "every source of pods to sync for the first time"
	WaitDecision    WaitKind = "its resize to be accepted or deferred"
	WaitName        WaitKind = "an earlier pod of the same full name to terminate"
	WaitRecovery    WaitKind = "the records of an earlier agent to be read"
	WaitAdmission   WaitKind = "admission"
	WaitRoom        WaitKind = "preempted pods to terminate"
	WaitConfirm     WaitKind = "device plugins to confirm its devices"
	WaitLogs        WaitKind = "its log directories to be read"

	WaitVolumes       WaitKind = "volumes"
	WaitClaims        WaitKind = "resource claims"
	WaitDevices       WaitKind = "device plugins"
	WaitNetwork       WaitKind = "the runtime's network"
	WaitSandbox       WaitKind = "sandbox"
	WaitOldSandbox    WaitKind = "the old sandbox to stop"
	WaitOldContainers WaitKind = "containers of the old sandbox to stop"
	WaitResize        WaitKind = "resize"
	WaitRestartAll    WaitKind = "restart of all containers"
	WaitShown         WaitKind = "its status to show the restart"
	WaitBackoff       WaitKind = "back-off"      // of a container
	WaitSettled       WaitKind = "settled"       // a container was killed: whether its sandbox dies, too
	WaitInit          WaitKind = "init"          // an init container
	WaitSidecar       WaitKind = "sidecar start" // a sidecar

	WaitStopped           WaitKind = "containers to stop"
	WaitSandboxStopped    WaitKind = "sandbox to stop"
	WaitUnprepared        WaitKind = "its resource claims to be unprepared"
	WaitResourcesReleased WaitKind = "its resources to be released"
	WaitUnmounted         WaitKind = "its volumes to be unmounted"
	WaitCgroupWritten     WaitKind = "its cgroup to be written"
	WaitRemoved           WaitKind = "containers to be removed"
	WaitSandboxRemoved    WaitKind = "sandbox to be removed"
)

// Wait is one thing that a pod waits for.
type Wait struct {
	Kind   WaitKind
	Target Target // the container, where there is one
}

// String says what is waited for.
func (w Wait) String() string {
	switch w.Kind {
	case WaitBackoff:
		return "back-off of container " + w.Target.Name
	case WaitSettled:
		return "the state of the sandbox after the kill of " + w.Target.Name
	case WaitInit:
		return "init container " + w.Target.Name
	case WaitSidecar:
		return "sidecar " + w.Target.Name
	}
	return string(w.Kind)
}

// Plan is the result of a decision: the state of the pod, steps to take now, in order, and when to decide again if
// nothing else happens first. A zero Wake means that there is nothing to wait for.
type Plan struct {
	State       State
	Termination *Termination
	Recreated   map[string]int // see [View.Recreated]
	Steps       []Step
	Wake        time.Time
	Waits       []Wait
	// ToStart are the containers that are to be started, also those that wait for another one, for their image, or
	// after a failure.
	ToStart []string
	// Held are the containers that wait for their crash back-off, and until when.
	Held map[string]time.Time
	// Blind says that too little is known to act: what was known before still holds.
	Blind bool
	// Shown says that enough is known of the pod to publish its status.
	Shown bool
	// Down says that nothing of the pod runs, and that other pods can have its claims, its resources and its addresses: it
	// may be shown as ended.
	Down bool
	// Overdue says that the runtime has not stopped an evicted pod in time. It is set once.
	Overdue bool
}

func (p *Plan) step(s Step)    { p.Steps = append(p.Steps, s) }
func (p *Plan) waitFor(w Wait) { p.Waits = append(p.Waits, w) }
func (p *Plan) wakeAt(t time.Time) {
	if p.Wake.IsZero() || t.Before(p.Wake) {
		p.Wake = t
	}
}

// WaitsFor reports whether the pod waits for something of this kind.
func (p *Plan) WaitsFor(k WaitKind) bool {
	for _, w := range p.Waits {
		if w.Kind == k {
			return true
		}
	}
	return false
}
