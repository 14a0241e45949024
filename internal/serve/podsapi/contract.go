package podsapi

// Socket is the path of the socket in the root directory.
const Socket = "pods-api/pods-api.sock"

// Rate limit of calls.
const (
	callsPerSecond = 100
	callsAtOnce    = 10
)

// metricDropped counts events that were dropped because a watcher was too slow. No events are dropped.
const metricDropped = "kubelet_pod_watch_events_dropped_total"
