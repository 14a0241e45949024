package allocation

// State files, below the agent's directory.
const (
	fileAllocated = "allocated_pods_state"
	fileActuated  = "actuated_pods_state"
)

// Event reasons.
const (
	EventResizeStarted    = "ResizeStarted"
	EventResizeCompleted  = "ResizeCompleted"
	EventResizeDeferred   = "ResizeDeferred"
	EventResizeInfeasible = "ResizeInfeasible"
	EventResizeError      = "ResizeError"
	EventPreempting       = "Preempting"
)

// ReasonUnexpected is the reason of a rejection after a failed preemption.
const ReasonUnexpected = "UnexpectedAdmissionError"

// Reason and messages of a pod that is preempted for a critical pod.
const (
	ReasonPreempting   = "Preempting"
	saysPreempting     = "Preempted in order to admit critical pod"
	disruptionPreempts = "Pod was preempted by Kubelet to accommodate a critical pod."
)

// Metric names.
const (
	metricRejections = "kubelet_admission_rejections_total"
	metricPreempted  = "kubelet_preemptions"
	metricRequested  = "kubelet_container_requested_resizes_total"
	metricInfeasible = "kubelet_pod_infeasible_resizes_total"
	metricAccepted   = "kubelet_pod_deferred_accepted_resizes_total"
	metricPending    = "kubelet_pod_pending_resizes"
	metricInProgress = "kubelet_pod_in_progress_resizes"
	metricDuration   = "kubelet_pod_resize_duration_milliseconds"
)

// trigger is the label retry_trigger: why deferred resizes were decided again.
type trigger string

const (
	triggerPeriod  trigger = "periodic_retry"
	triggerResized trigger = "pod_resized"
	triggerUpdated trigger = "pod_updated"
	triggerRemoved trigger = "pods_removed"
)

// Details of infeasible resizes: the label reason_detail.
const (
	detailGate         = "feature_gate_off"
	detailSwap         = "swap_limitation"
	detailStaticCPU    = "guaranteed_pod_cpu_manager_static_policy"
	detailStaticMemory = "guaranteed_pod_memory_manager_static_policy"
	detailInit         = "init_container"
	detailPodLevel     = "plr_feature_gate_off"
)
