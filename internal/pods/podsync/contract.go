package podsync

import "go.opentelemetry.io/otel/attribute"

// Names of spans, and of their attributes.
const (
	spanSync        = "syncPod"
	spanTerminating = "syncTerminatingPod"
	spanTerminated  = "syncTerminatedPod"
	spanCollect     = "Containers/GarbageCollect"

	keyPod       = attribute.Key("k8s.pod")
	keyPodName   = attribute.Key("k8s.pod.name")
	keyNamespace = attribute.Key("k8s.namespace.name")
	keyPodUID    = attribute.Key("k8s.pod.uid")
	keyUpdate    = attribute.Key("k8s.pod.update_type")
)

// Metric names, and the values of their labels.
const (
	metricDesired       = "kubelet_desired_pods"
	metricActive        = "kubelet_active_pods"
	metricMirror        = "kubelet_mirror_pods"
	metricWorking       = "kubelet_working_pods"
	metricEphemeral     = "kubelet_managed_ephemeral_containers"
	metricOrphaned      = "kubelet_orphaned_runtime_pods_total"
	metricRestarted     = "kubelet_restarted_pods_total"
	metricTerminated    = "kubelet_terminated_containers_total"
	metricContainers    = "kubelet_containers_per_pod_count"
	metricWorker        = "kubelet_pod_worker_duration_seconds"
	metricWorkerStart   = "kubelet_pod_worker_start_duration_seconds"
	metricPodStart      = "kubelet_pod_start_duration_seconds"
	metricPodStartTotal = "kubelet_pod_start_total_duration_seconds"
	metricPodStartSLI   = "kubelet_pod_start_sli_duration_seconds"
	metricFirstStart    = "kubelet_first_network_pod_start_sli_duration_seconds"
)

// lifecycle is the value of the label lifecycle: the state of a pod.
type lifecycle string

const (
	lifeSync        lifecycle = "sync"
	lifeTerminating lifecycle = "terminating"
	lifeTerminated  lifecycle = "terminated"
)

// knownBy is the value of the label config: which part still has the pod.
type knownBy string

const (
	knownDesired knownBy = "desired"
	knownOrphan  knownBy = "orphan"       // no source has it, this agent has its specification
	knownRuntime knownBy = "runtime_only" // only the runtime has it
)

// The label static of pods is empty for those of the API server.
const (
	staticYes     = "true"
	staticNo      = ""
	staticUnknown = "unknown"
)
