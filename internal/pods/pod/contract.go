package pod

// Labels and annotations on sandboxes and containers. The agent recognizes its own by them
// after a restart, so they must not change: a container without them is ignored, one with
// a different hash is restarted.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"

	AnnotationHash                     = "io.kubernetes.container.hash"
	AnnotationRestartCount             = "io.kubernetes.container.restartCount"
	AnnotationTerminationMessagePath   = "io.kubernetes.container.terminationMessagePath"
	AnnotationTerminationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
	AnnotationPreStopHandler           = "io.kubernetes.container.preStopHandler"
	AnnotationPorts                    = "io.kubernetes.container.ports"
	AnnotationDeletionGracePeriod      = "io.kubernetes.pod.deletionGracePeriod"
	AnnotationTerminationGracePeriod   = "io.kubernetes.pod.terminationGracePeriod"
)

// Annotations on pods.
const (
	AnnotationConfigSource = "kubernetes.io/config.source" // "api", "file" or "http"
	AnnotationConfigSeen   = "kubernetes.io/config.seen"   // RFC 3339 time the agent first saw the pod
	AnnotationConfigHash   = "kubernetes.io/config.hash"   // static pods: the UID computed from the manifest
	AnnotationConfigMirror = "kubernetes.io/config.mirror" // mirror pods: the hash of the static pod
)

// Source is where a pod's specification came from.
type Source string

// The sources of pods.
const (
	SourceAPI  Source = "api"
	SourceFile Source = "file"
	SourceHTTP Source = "http"
)

// Event reasons of pods and containers.
const (
	EventCreated               = "Created"
	EventStarted               = "Started"
	EventFailed                = "Failed"
	EventKilling               = "Killing"
	EventBackOff               = "BackOff"
	EventUnhealthy             = "Unhealthy"
	EventProbeWarning          = "ProbeWarning"
	EventFailedPostStartHook   = "FailedPostStartHook"
	EventFailedPreStopHook     = "FailedPreStopHook"
	EventPulling               = "Pulling"
	EventPulled                = "Pulled"
	EventInspectFailed         = "InspectFailed"
	EventErrImageNeverPull     = "ErrImageNeverPull"
	EventFailedPullSecret      = "FailedToRetrieveImagePullSecret"
	EventFailedKillPod         = "FailedKillPod"
	EventFailedPrepareClaims   = "FailedPrepareDynamicResources"
	EventFailedCreateSandbox   = "FailedCreatePodSandBox"
	EventFailedSandboxStatus   = "FailedPodSandBoxStatus"
	EventSandboxChanged        = "SandboxChanged"
	EventNetworkNotReady       = "NetworkNotReady"
	EventAddressMismatch       = "HostIPsIPFamilyMismatch"
	EventFailedMount           = "FailedMount"
	EventFailedMapVolume       = "FailedMapVolume"
	EventFailedAttach          = "FailedAttachVolume"
	EventAttached              = "SuccessfulAttachVolume"
	EventCertificateDenied     = "Denied"
	EventCertificateFailed     = "Failed"
	EventCertificateOverdue    = "CertificateOverdueForRefresh"
	EventCertificateExpired    = "CertificateExpired"
	EventVolumeAbnormal        = "VolumeConditionAbnormal"
	EventOtherFS               = "FailedMountOnFilesystemMismatch"
	EventAlreadyMounted        = "AlreadyMountedVolume"
	EventMountedVolume         = "SuccessfulMountVolume"
	EventResizeFailed          = "VolumeResizeFailed"
	EventFSResizeFailed        = "FileSystemResizeFailed"
	EventFSResized             = "FileSystemResizeSuccessful"
	EventFailedSync            = "FailedSync"
	EventFailedValidation      = "FailedValidation"
	EventMissingClusterDNS     = "MissingClusterDNS"
	EventDNSConfigForming      = "DNSConfigForming"
	EventDeadlineExceeded      = "DeadlineExceeded"
	EventLifecycleHTTPFallback = "LifecycleHTTPFallback"
	EventExceededGracePeriod   = "ExceededGracePeriod"
	EventContainerGCFailed     = "ContainerGCFailed"
	EventFeaturesLacking       = "FailedNodeDeclaredFeaturesCheck"
	EventFailedCreateContainer = "FailedCreatePodContainer"
	EventMemoryVolumesOnDisk   = "PossibleMemoryBackedVolumesOnDisk"
	EventPermissionChange      = "VolumePermissionChangeInProgress"
	EventDevicePluginLate      = "DevicePluginNotRegistered"
)

// ReasonEvicted is the reason in the status of a pod that the node has evicted.
const ReasonEvicted = "Evicted"

// Reasons a container waits, as shown in its status.
const (
	ReasonDevicePluginLate      = "DevicePluginNotRegistered"
	ReasonContainerCreating     = "ContainerCreating"
	ReasonPodInitializing       = "PodInitializing"
	ReasonCrashLoopBackOff      = "CrashLoopBackOff"
	ReasonErrImagePull          = "ErrImagePull"
	ReasonImagePullBackOff      = "ImagePullBackOff"
	ReasonErrImageNeverPull     = "ErrImageNeverPull"
	ReasonInvalidImageName      = "InvalidImageName"
	ReasonImageInspectError     = "ImageInspectError"
	ReasonRegistryUnavailable   = "RegistryUnavailable"
	ReasonSignatureValidation   = "SignatureValidationFailed"
	ReasonCreateContainerConfig = "CreateContainerConfigError"
	ReasonCreateContainer       = "CreateContainerError"
	ReasonRunContainer          = "RunContainerError"
	ReasonPostStartHook         = "PostStartHookError"
	ReasonRestartingAll         = "RestartingAllContainers"
)
