package client

import (
	"fmt"
	"runtime"
)

// ContentProtobuf is the default content type.
const ContentProtobuf = "application/vnd.kubernetes.protobuf"

// Component is the source component of all events.
const Component = "kubelet"

// UserAgent returns the agent's user agent. Audit rules and flow schemas match the prefix kubelet/.
func UserAgent(version string) string {
	return fmt.Sprintf("kubelet/%s (%s/%s) keelson", version, runtime.GOOS, runtime.GOARCH)
}

// Metric names.
const (
	metricRequestDuration  = "rest_client_request_duration_seconds"
	metricLimiterDuration  = "rest_client_rate_limiter_duration_seconds"
	metricRequestSize      = "rest_client_request_size_bytes"
	metricResponseSize     = "rest_client_response_size_bytes"
	metricRequests         = "rest_client_requests_total"
	metricRetries          = "rest_client_request_retries_total"
	metricExecCalls        = "rest_client_exec_plugin_call_total"
	metricRotationAge      = "rest_client_exec_plugin_certificate_rotation_age"
	metricPluginTTL        = "rest_client_exec_plugin_ttl_seconds"
	metricTransports       = "rest_client_transport_cache_entries"
	metricTransportCreates = "rest_client_transport_create_calls_total"
	metricCAReloads        = "rest_client_transport_ca_reload_total"
	metricRotationsEnded   = "rest_client_transport_cert_rotation_gc_calls_total"
)
