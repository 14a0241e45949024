package cpu

// The policies, as the configuration names them.
const (
	PolicyNone   = "none"
	PolicyStatic = "static"
)

// fileState is the state file, in the agent's root directory.
const fileState = "cpu_manager_state"

// Names of options of the static policy.
const (
	optionFullCores   = "full-pcpus-only"
	optionAcrossNUMA  = "distribute-cpus-across-numa"
	optionBySocket    = "align-by-socket"
	optionAcrossCores = "distribute-cpus-across-cores"
	optionStrict      = "strict-cpu-reservation"
	optionByCache     = "prefer-align-cpus-by-uncorecache"
)

// ReasonCores is why a pod is refused that would get half a core.
const ReasonCores = "SMTAlignmentError"

const (
	metricRequests  = "kubelet_cpu_manager_pinning_requests_total"
	metricErrors    = "kubelet_cpu_manager_pinning_errors_total"
	metricShared    = "kubelet_cpu_manager_shared_pool_size_millicores"
	metricExclusive = "kubelet_cpu_manager_exclusive_cpu_allocation_count"
	metricPerNode   = "kubelet_cpu_manager_allocation_per_numa"
)

// resourceName is what hints are about.
const resourceName = "cpu"
