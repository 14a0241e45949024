package topology

// Reasons and message of a rejection, as users see them.
const (
	ReasonTopology   = "TopologyAffinityError"
	ReasonUnexpected = "UnexpectedAdmissionError"

	messageTopology = "Resources cannot be allocated with Topology locality"
)

// Topology manager scopes: containers are aligned one by one, or all containers of a pod together.
const (
	ScopeContainer = "container"
	ScopePod       = "pod"
)

// Alignment boundaries, as named by the metrics.
const (
	BoundaryNode  = "numa_node"
	BoundaryCore  = "physical_cpu"
	BoundaryCache = "uncore_cache"
)

const (
	metricRequests  = "kubelet_topology_manager_admission_requests_total"
	metricErrors    = "kubelet_topology_manager_admission_errors_total"
	metricDuration  = "kubelet_topology_manager_admission_duration_ms"
	metricAligned   = "kubelet_container_aligned_compute_resources_count"
	metricUnaligned = "kubelet_container_aligned_compute_resources_failure_count"
)
