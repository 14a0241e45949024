package explain

import (
	"time"

	"keelson/internal/pods/timeline"
)

// Pod is the explanation of one pod at one time.
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

	Source      string       `json:"source,omitempty"` // empty: no source has the pod any more (orphan)
	Arrived     time.Time    `json:"arrived,omitzero"` // when this agent first received it
	Phase       string       `json:"phase,omitempty"`  // as it was last published
	Termination *Termination `json:"termination,omitempty"`
	Rejected    *Rejection   `json:"rejected,omitempty"`

	Sandbox    *Sandbox    `json:"sandbox,omitempty"`
	Containers []Container `json:"containers"`
	// Waits are what the pod waits for, the root cause first.
	Waits []Wait `json:"waits,omitempty"`
	// Doing are the tasks in progress.
	Doing []Task `json:"doing,omitempty"`
	// Next is the time of the next sync unless a change triggers one before.
	Next time.Time `json:"next,omitzero"`
	// Stuck is set if the worker does not respond: since when it is busy with one turn.
	Stuck time.Time `json:"stuck,omitzero"`

	Steps []timeline.View `json:"steps,omitempty"`
	Lost  int             `json:"lostSteps,omitempty"`
	Ready time.Time       `json:"ready,omitzero"` // when all containers were first ready
}

// State is the state of a pod in one word.
type State string

// The states.
const (
	Ready       State = "Ready"    // all containers that should run do and are ready
	Running     State = "Running"  // it runs and is not ready
	Starting    State = "Starting" // in progress, without failures
	Waiting     State = "Waiting"  // it waits for something
	Failing     State = "Failing"  // a step has failed and is retried
	Terminating State = "Terminating"
	Terminated  State = "Terminated"
	Rejected    State = "Rejected" // this node does not admit it
	Stuck       State = "Stuck"    // its worker does not respond
)

// Termination describes why and since when a pod is terminated.
type Termination struct {
	Why      string    `json:"why"`
	Since    time.Time `json:"since"`
	Deadline time.Time `json:"deadline"`
}

// Rejection describes why the node does not admit the pod.
type Rejection struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Sandbox is the pod's sandbox in the runtime.
type Sandbox struct {
	ID    string    `json:"id"`
	Ready bool      `json:"ready"`
	Since time.Time `json:"since"`
	IPs   []string  `json:"ips,omitempty"`
}

// Container is one container, desired and observed.
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
	Reason  string    `json:"reason,omitempty"` // as in the pod's status
	Error   string    `json:"error,omitempty"`  // the last one
	Since   time.Time `json:"since,omitzero"`
	Next    time.Time `json:"next,omitzero"` // when it is tried again
	Attempt int       `json:"attempt,omitempty"`
}

// failed reports whether an attempt failed, as opposed to one that is still in progress.
func (w Wait) failed() bool { return w.Error != "" || !w.Next.IsZero() }

// Task is a step in progress.
type Task struct {
	What  string    `json:"what"`
	Since time.Time `json:"since"`
}

// Line is one pod in the list of all pods.
type Line struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	State     State     `json:"state"`
	Since     time.Time `json:"since,omitzero"`
	Verdict   string    `json:"verdict"`
}

// List are all pods of the node.
type List struct {
	Node string    `json:"node"`
	At   time.Time `json:"at"`
	Pods []Line    `json:"pods"`
}
