package shutdown

import (
	"errors"
	"time"
)

// StateFile is the checkpoint, in the root directory.
const StateFile = "graceful_node_shutdown_state"

const (
	// EventShutdown is the reason of the event about the node.
	EventShutdown    = "Shutdown"
	messageShutdown  = "Shutdown manager detected shutdown event"
	messageCancelled = "Shutdown manager detected shutdown cancellation"
)

// Status of a pod that was terminated by a shutdown.
const (
	ReasonTerminated = "Terminated"
	MessageEnded     = "Pod was terminated in response to imminent node shutdown."
)

// ErrShuttingDown is why a node that is shutting down is not ready.
var ErrShuttingDown = errors.New("node is shutting down")

const (
	metricStart = "kubelet_graceful_shutdown_start_time_seconds"
	metricEnd   = "kubelet_graceful_shutdown_end_time_seconds"
)

const (
	// dialAgain is the pause before another connection after one was lost.
	dialAgain = time.Second
	// reloadTries is how often the maximum delay is read after a reload of logind, with a back-off from reloadWait.
	reloadTries = 5
	reloadWait  = 100 * time.Millisecond
)
