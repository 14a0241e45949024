package memory

// The policies, as the configuration names them.
const (
	PolicyNone   = "None"
	PolicyStatic = "Static"
)

// fileState is the state file, in the agent's root directory.
const fileState = "memory_manager_state"

const (
	metricRequests = "kubelet_memory_manager_pinning_requests_total"
	metricErrors   = "kubelet_memory_manager_pinning_errors_total"
)
