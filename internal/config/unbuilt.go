package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	v1beta1 "k8s.io/kubelet/config/v1beta1"
)

// The lists below are the settings that are validated but have no effect yet. They change
// when a feature is implemented.

// unbuiltFields warn when their value is not the default.
var unbuiltFields = strings.Fields(`
	kernelMemcgNotification
	memoryReservationPolicy
	memoryThrottlingFactor
	qosReserved
	volumePluginDir
`)

// unbuiltFlags warn when their value is not the default.
var unbuiltFlags = strings.Fields(`
	experimental-mounter-path
	housekeeping-interval
	maximum-dead-containers
	minimum-container-ttl-duration
`)

// builtGates are the gates with an effect. Any other gate warns when its setting is not
// the default.
var builtGates = strings.Fields(`
	AllAlpha
	AllBeta
	AllowDNSOnlyNodeCSR
	AtomicFIFO
	CPUManagerPolicyAlphaOptions
	CPUManagerPolicyBetaOptions
	CRIListStreaming
	CSIVolumeHealth
	ClientsAllowCARotation
	ClientsAllowCBOR
	ClientsAllowTLSCacheGC
	ClientsPreferCBOR
	ClusterTrustBundle
	ClusterTrustBundleProjection
	ComponentFlagz
	ComponentStatusz
	ContainerCheckpoint
	ContainerStopSignals
	CustomCPUCFSQuotaPeriod
	DisableCPUQuotaWithExclusiveCPUs
	ExtendWebSocketsToKubelet
	GracefulNodeShutdown
	GracefulNodeShutdownBasedOnPodPriority
	InPlacePodLevelResourcesVerticalScaling
	InPlacePodVerticalScalingExclusiveCPUs
	InPlacePodVerticalScalingExclusiveMemory
	InPlacePodVerticalScalingInitContainers
	KubeletCrashLoopBackOffMax
	KubeletEnsureSecretPulledImages
	KubeletPodResourcesListUseActivePods
	KubeletSeparateDiskGC
	KubeletServiceAccountTokenForCredentialProviders
	LoggingAlphaOptions
	LoggingBetaOptions
	NodeDeclaredFeatures
	PodAndContainerStatsFromCRI
	PodCertificateRequest
	PodLevelResources
	PodLogsQuerySplitStreams
	PodsAPI
	PreventStaticPodAPIReferences
	QOSReserved
	ReduceDefaultCrashLoopBackOffDecay
	ReloadKubeletClientCAFile
	ReloadKubeletServerCertificateFile
	ResourceHealthStatus
	RestartAllContainersOnContainerExits
	RotateKubeletServerCertificate
	RuntimeClassInImageCriApi
	SELinuxMount
	UserNamespacesHostNetworkSupport
	WatchListClient
`)

// unbuilt returns a warning about all settings without effect; "" if there are none.
func unbuilt(c *Config) string {
	var names []string
	var plain v1beta1.KubeletConfiguration
	plain.EvictionHard = defaultEvictionHard()
	setDefaults(&plain, nil)
	have, def := document(&c.Kubelet), document(&plain)
	for _, field := range unbuiltFields {
		v := at(have, field)
		if v != nil && !reflect.DeepEqual(v, at(def, field)) {
			names = append(names, field)
		}
	}
	for _, name := range c.unbuiltFlags {
		names = append(names, "--"+name)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Kubelet.FeatureGates)) {
		if g := c.Gates[name]; g.Enabled != g.Default && !slices.Contains(builtGates, name) {
			names = append(names, "featureGates."+name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "settings without effect in this version: " + strings.Join(names, ", ")
}

// document converts a configuration to the fields of its JSON.
func document(k *v1beta1.KubeletConfiguration) map[string]any {
	b, err := json.Marshal(k)
	if err != nil {
		panic(fmt.Sprintf("config: encode a decoded configuration: %v", err))
	}
	var doc map[string]any
	if err := json.Unmarshal(b, &doc); err != nil {
		panic(fmt.Sprintf("config: decode an encoded configuration: %v", err))
	}
	return doc
}

func at(doc map[string]any, field string) any {
	name, rest, deeper := strings.Cut(field, ".")
	if !deeper {
		return doc[name]
	}
	child, _ := doc[name].(map[string]any)
	return at(child, rest)
}
