package resource

// Reasons of a rejection; upstream's words.
const (
	ReasonTopology   = "TopologyAffinityError"
	ReasonUnexpected = "UnexpectedAdmissionError"

	saysTopology = "Resources cannot be allocated with Topology locality"
)

// Scopes: whether the containers of a pod are placed one by one or together.
const (
	ScopeContainer = "container"
	ScopePod       = "pod"
)

// Boundaries that a container's resources can be aligned to, in metrics.
const (
	BoundaryNode  = "numa_node"
	BoundaryCore  = "physical_cpu"
	BoundaryCache = "uncore_cache"
)

const (
	metricRequests = "kubelet_topology_manager_admission_requests_total"
	metricErrors   = "kubelet_topology_manager_admission_errors_total"
	metricDuration = "kubelet_topology_manager_admission_duration_ms"
	metricAligned  = "kubelet_container_aligned_compute_resources_count"
	metricAskew    = "kubelet_container_aligned_compute_resources_failure_count"
)
