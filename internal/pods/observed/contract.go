package observed

import "time"

// Threshold is how long ago the runtime may last have been listed before the
// node counts as not ready.
const Threshold = 3 * time.Minute

const (
	// PollPeriod is the time between lists without an event stream.
	PollPeriod = time.Second
	// DefaultAudit is the time between lists with an event stream.
	DefaultAudit = time.Minute
)

// Limits of termination messages of one container.
const (
	maxMessage      = 4096
	maxMessageLog   = 2048
	maxMessageLines = 80
)

// Metric names.
const (
	metricRunningPods       = "kubelet_running_pods"
	metricRunningContainers = "kubelet_running_containers"
	metricLastSeen          = "kubelet_pleg_last_seen_seconds"
	metricRelist            = "kubelet_pleg_relist_duration_seconds"
	metricInterval          = "kubelet_pleg_relist_interval_seconds"
	metricPodRead           = "kubelet_pleg_pod_relist_duration_seconds"
	metricDropped           = "kubelet_pleg_discard_events"
	metricLatency           = "kubelet_evented_pleg_connection_latency_seconds"
	metricStood             = "kubelet_evented_pleg_connection_success_count"
	metricBroken            = "kubelet_evented_pleg_connection_error_count"
)

// reasonCannotRun is the runtime's reason for a container that could not be started and so
// has no log.
const reasonCannotRun = "ContainerCannotRun"
