package explain

import (
	"time"

	"keelson/internal/pods/timeline"
)

// Pod is all that is to be said of one pod at one moment.
type Pod struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       string    `json:"uid"`
	Node      string    `json:"node,omitempty"`
	At        time.Time `json:"at"`

	// Filled in by Judge.
	State   State     `json:"state"`
	Verdict string    `json:"verdict"`
	Since   time.Time `json:"since,omitzero"`

	Source  string    `json:"source,omitempty"` // empty: no source knows the pod any more
	Arrived time.Time `json:"arrived,omitzero"` // when this agent first heard of it
	Phase   string    `json:"phase,omitempty"`  // as it was last published
	Going   *Going    `json:"going,omitempty"`
	Refused *Refusal  `json:"refused,omitempty"`

	Sandbox    *Sandbox    `json:"sandbox,omitempty"`
	Containers []Container `json:"containers"`
	// Waits are what the pod waits for, the first cause first.
	Waits []Wait `json:"waits,omitempty"`
	// Doing is what is under way.
	Doing []Task `json:"doing,omitempty"`
	// Next is when the pod is looked at again if nothing happens first.
	Next time.Time `json:"next,omitzero"`
	// Stuck is set when the pod could not be asked about: since when its worker is
	// busy with one turn.
	Stuck time.Time `json:"stuck,omitzero"`

	Steps []timeline.View `json:"steps,omitempty"`
	Lost  int             `json:"lostSteps,omitempty"`
	Ready time.Time       `json:"ready,omitzero"` // when all containers were first ready
}

// State is one word for how a pod is.
type State string

// The states.
const (
	Ready    State = "Ready"    // all that is to run runs and is ready
	Running  State = "Running"  // it runs and is not ready
	Starting State = "Starting" // under way, nothing is wrong
	Waiting  State = "Waiting"  // it needs something that is not there
	Failing  State = "Failing"  // a step went wrong and is tried again
	Stopping State = "Stopping"
	Finished State = "Finished" // it ran to its end
	Refused  State = "Refused"  // this node does not take it
	Stuck    State = "Stuck"    // its worker does not answer
)

// Going says that a pod is to end.
type Going struct {
	Why      string    `json:"why"`
	Since    time.Time `json:"since"`
	Deadline time.Time `json:"deadline"`
}

// Refusal says why the node does not take the pod.
type Refusal struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Sandbox is the pod's place in the runtime.
type Sandbox struct {
	ID    string    `json:"id"`
	Ready bool      `json:"ready"`
	Since time.Time `json:"since"`
	IPs   []string  `json:"ips,omitempty"`
}

// Container is one container: what is wanted and what is seen of it.
type Container struct {
	Name     string    `json:"name"`
	Kind     string    `json:"kind"` // container, init container, sidecar, ephemeral container
	Image    string    `json:"image,omitempty"`
	State    string    `json:"state"` // not created, created, running, exited, unknown
	Since    time.Time `json:"since,omitzero"`
	Restarts int       `json:"restarts,omitempty"`
	ExitCode *int32    `json:"exitCode,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Message  string    `json:"message,omitempty"`
	Started  bool      `json:"started,omitempty"` // its startup probe and postStart hook are done
	Ready    bool      `json:"ready,omitempty"`
}

// Wait is one thing the pod waits for.
type Wait struct {
	For     string    `json:"for"`
	Reason  string    `json:"reason,omitempty"` // as it is shown in the pod's status
	Error   string    `json:"error,omitempty"`  // the last one
	Since   time.Time `json:"since,omitzero"`
	Next    time.Time `json:"next,omitzero"` // when it is tried again
	Attempt int       `json:"attempt,omitempty"`
}

// failed reports whether something went wrong, as opposed to taking its time.
func (w Wait) failed() bool { return w.Error != "" || !w.Next.IsZero() }

// Task is a step under way.
type Task struct {
	What  string    `json:"what"`
	Since time.Time `json:"since"`
}

// Line is one pod in the list of all.
type Line struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	State     State     `json:"state"`
	Since     time.Time `json:"since,omitzero"`
	Verdict   string    `json:"verdict"`
}

// List is all pods of the node.
type List struct {
	Node string    `json:"node"`
	At   time.Time `json:"at"`
	Pods []Line    `json:"pods"`
}
