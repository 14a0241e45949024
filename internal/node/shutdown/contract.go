package shutdown

import (
	"errors"
	"time"
)

// StateFile is the file, in the agent's directory, that tells of the last shutdown.
const StateFile = "graceful_node_shutdown_state"

const (
	// EventShutdown is the reason of the event about the node.
	EventShutdown = "Shutdown"
	saysShutdown  = "Shutdown manager detected shutdown event"
	saysCancelled = "Shutdown manager detected shutdown cancellation"
)

// How the status of a pod tells that it ended with its node.
const (
	ReasonTerminated = "Terminated"
	MessageEnded     = "Pod was terminated in response to imminent node shutdown."
)

// ErrLeaving is why a node that shuts down is not ready.
var ErrLeaving = errors.New("node is shutting down")

const (
	metricStart = "kubelet_graceful_shutdown_start_time_seconds"
	metricEnd   = "kubelet_graceful_shutdown_end_time_seconds"
)

const (
	// dialAgain is how long it takes to a new connection after one was lost.
	dialAgain = time.Second
	// reloadTries is how often it is looked whether the login manager has read its
	// settings: reloadWait after the first look, then after twice as long each.
	reloadTries = 5
	reloadWait  = 100 * time.Millisecond
)
