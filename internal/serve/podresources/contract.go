package podresources

// Socket is the path of the socket in the root directory.
const Socket = "pod-resources/kubelet.sock"

// Rate limit of calls from all clients.
const (
	callsPerSecond = 100
	callsAtOnce    = 10
)

const (
	metricCalls            = "kubelet_pod_resources_endpoint_requests_total"
	metricList             = "kubelet_pod_resources_endpoint_requests_list"
	metricGet              = "kubelet_pod_resources_endpoint_requests_get"
	metricAllocatable      = "kubelet_pod_resources_endpoint_requests_get_allocatable"
	metricListFails        = "kubelet_pod_resources_endpoint_errors_list"
	metricGetFails         = "kubelet_pod_resources_endpoint_errors_get"
	metricAllocatableFails = "kubelet_pod_resources_endpoint_errors_get_allocatable"

	labelVersion = "server_api_version"
	versionV1    = "v1"
	versionAlpha = "v1alpha1"
)
