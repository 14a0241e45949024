package podsapi

// Socket is where the service is, below the root directory.
const Socket = "pods-api/pods-api.sock"

// How often calls may be begun.
const (
	callsPerSecond = 100
	callsAtOnce    = 10
)

// metricDropped counts what was kept from watchers that were too slow. Nothing is.
const metricDropped = "kubelet_pod_watch_events_dropped_total"
