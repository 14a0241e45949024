package server

// Names and texts that clients, dashboards and test suites depend on. A change is a compatibility change.

// Subresources of nodes that a request is authorized for. proxy covers every endpoint without a subresource of its own.
const (
	subresourceProxy      = "proxy"
	subresourceStats      = "stats"
	subresourceMetrics    = "metrics"
	subresourceLog        = "log"
	subresourceCheckpoint = "checkpoint"
	subresourceStatusz    = "statusz"
	subresourcePods       = "pods"
	subresourceHealthz    = "healthz"
	subresourceConfigz    = "configz"
)

// Metric names.
const (
	metricRequests          = "kubelet_http_requests_total"
	metricDuration          = "kubelet_http_requests_duration_seconds"
	metricInflight          = "kubelet_http_inflight_requests"
	metricWebSocketRequests = "kubelet_websocket_streaming_requests_total"
	metricHealthcheck       = "kubernetes_healthcheck"
	metricHealthchecks      = "kubernetes_healthchecks_total"
)

// Response texts.
const (
	textUnauthorized     = "Unauthorized"
	textDebugDisabled    = "Debug endpoints are disabled."
	textLogsDisabled     = "logs endpoint is disabled."
	textProfilingOff     = "profiling endpoint is disabled."
	textFlagsOff         = "flags endpoint is disabled."
	textUpgradeRequired  = "Upgrade request required"
	textPodMissing       = "pod does not exist"
	textNoSuchPath       = "404 page not found"
	textMethodNotAllowed = "405: Method Not Allowed"
)

// z-pages.
const (
	componentName = "kubelet"
	zGroup        = "config.k8s.io"
	zWarning      = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility " +
		"guarantees and is for debugging purposes only."
)

var zVersions = []string{"v1beta1", "v1alpha1"} // newest first; the others are deprecated
