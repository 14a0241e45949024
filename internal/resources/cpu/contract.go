package cpu

// The CPU manager policies, as named in the configuration.
const (
	PolicyNone   = "none"
	PolicyStatic = "static"
)

// fileState is the checkpoint, in the root directory.
const fileState = "cpu_manager_state"

// Options of the static policy.
const (
	optionFullCores   = "full-pcpus-only"
	optionAcrossNUMA  = "distribute-cpus-across-numa"
	optionBySocket    = "align-by-socket"
	optionAcrossCores = "distribute-cpus-across-cores"
	optionStrict      = "strict-cpu-reservation"
	optionByCache     = "prefer-align-cpus-by-uncorecache"
)

// ReasonSMTAlignment is the reason of a rejection if the request cannot be met with whole cores.
const ReasonSMTAlignment = "SMTAlignmentError"

const (
	metricRequests  = "kubelet_cpu_manager_pinning_requests_total"
	metricErrors    = "kubelet_cpu_manager_pinning_errors_total"
	metricShared    = "kubelet_cpu_manager_shared_pool_size_millicores"
	metricExclusive = "kubelet_cpu_manager_exclusive_cpu_allocation_count"
	metricPerNode   = "kubelet_cpu_manager_allocation_per_numa"
)

// resourceName is the resource of the topology hints.
const resourceName = "cpu"
