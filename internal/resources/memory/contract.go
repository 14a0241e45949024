package memory

// The memory manager policies, as named in the configuration.
const (
	PolicyNone   = "None"
	PolicyStatic = "Static"
)

// fileState is the checkpoint, in the root directory.
const fileState = "memory_manager_state"

const (
	metricRequests = "kubelet_memory_manager_pinning_requests_total"
	metricErrors   = "kubelet_memory_manager_pinning_errors_total"
)
