package config

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	v1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
)

// setDefaults sets the default of every unset field. flags are the gates that the command
// line sets; those of k override them.
func setDefaults(k *v1beta1.KubeletConfiguration, flags map[string]bool) {
	set := maps.Clone(flags)
	if set == nil {
		set = map[string]bool{}
	}
	maps.Copy(set, k.FeatureGates)
	gates, _ := newGates(set) // validation reports the problems
	k.APIVersion, k.Kind = APIVersion, Kind

	// Depends on whether another field was set, so it goes first.
	if k.NodeStatusReportFrequency.Duration == 0 {
		k.NodeStatusReportFrequency.Duration = 5 * time.Minute
		if k.NodeStatusUpdateFrequency.Duration != 0 {
			k.NodeStatusReportFrequency = k.NodeStatusUpdateFrequency
		}
	}

	or(&k.EnableServer, true)
	orValue(&k.PodLogsDir, "/var/log/pods")
	orFor(&k.SyncFrequency, time.Minute)
	orFor(&k.FileCheckFrequency, 20*time.Second)
	orFor(&k.HTTPCheckFrequency, 20*time.Second)
	orValue(&k.Address, "0.0.0.0")
	orValue(&k.Port, 10250)
	or(&k.Authentication.Anonymous.Enabled, false)
	or(&k.Authentication.Webhook.Enabled, true)
	orFor(&k.Authentication.Webhook.CacheTTL, 2*time.Minute)
	orValue(&k.Authorization.Mode, v1beta1.KubeletAuthorizationModeWebhook)
	orFor(&k.Authorization.Webhook.CacheAuthorizedTTL, 5*time.Minute)
	orFor(&k.Authorization.Webhook.CacheUnauthorizedTTL, 30*time.Second)
	or(&k.RegistryPullQPS, 5)
	orValue(&k.RegistryBurst, 10)
	if gates.Enabled("KubeletEnsureSecretPulledImages") {
		orValue(&k.ImagePullCredentialsVerificationPolicy, v1beta1.NeverVerifyPreloadedImages)
	}
	or(&k.EventRecordQPS, 50)
	orValue(&k.EventBurst, 100)
	or(&k.EnableDebuggingHandlers, true)
	or(&k.HealthzPort, 10248)
	orValue(&k.HealthzBindAddress, "127.0.0.1")
	or(&k.OOMScoreAdj, -999)
	orFor(&k.StreamingConnectionIdleTimeout, 4*time.Hour)
	orFor(&k.NodeStatusUpdateFrequency, 10*time.Second)
	orValue(&k.NodeLeaseDurationSeconds, 40)
	orFor(&k.ImageMinimumGCAge, 2*time.Minute)
	or(&k.ImageGCHighThresholdPercent, 85)
	or(&k.ImageGCLowThresholdPercent, 80)
	orFor(&k.VolumeStatsAggPeriod, time.Minute)
	or(&k.CgroupsPerQOS, true)
	orValue(&k.CgroupDriver, "cgroupfs")
	orValue(&k.CPUManagerPolicy, "none")
	orFor(&k.CPUManagerReconcilePeriod, 10*time.Second)
	orValue(&k.MemoryManagerPolicy, v1beta1.NoneMemoryManagerPolicy)
	orValue(&k.TopologyManagerPolicy, v1beta1.NoneTopologyManagerPolicy)
	orValue(&k.TopologyManagerScope, v1beta1.ContainerTopologyManagerScope)
	orFor(&k.RuntimeRequestTimeout, 2*time.Minute)
	orValue(&k.HairpinMode, v1beta1.PromiscuousBridge)
	orValue(&k.MaxPods, 110)
	if k.PodPidsLimit == nil || *k.PodPidsLimit < 0 {
		k.PodPidsLimit = ptr.To[int64](-1)
	}
	or(&k.ResolverConfig, "/etc/resolv.conf")
	or(&k.CPUCFSQuota, true)
	or(&k.CPUCFSQuotaPeriod, metav1.Duration{Duration: 100 * time.Millisecond})
	or(&k.NodeStatusMaxImages, 50)
	orValue(&k.MaxOpenFiles, 1000000)
	orValue(&k.ContentType, "application/vnd.kubernetes.protobuf")
	or(&k.KubeAPIQPS, 50)
	orValue(&k.KubeAPIBurst, 100)
	or(&k.SerializeImagePulls, k.MaxParallelImagePulls == nil || *k.MaxParallelImagePulls < 2)
	orFor(&k.EvictionPressureTransitionPeriod, 5*time.Minute)
	or(&k.MergeDefaultEvictionSettings, false)
	or(&k.EnableControllerAttachDetach, true)
	or(&k.MakeIPTablesUtilChains, true)
	or(&k.IPTablesMasqueradeBit, 14)
	or(&k.IPTablesDropBit, 15)
	or(&k.FailSwapOn, true)
	orValue(&k.ContainerLogMaxSize, "10Mi")
	or(&k.ContainerLogMaxFiles, 5)
	or(&k.ContainerLogMaxWorkers, 1)
	or(&k.ContainerLogMonitorInterval, metav1.Duration{Duration: 10 * time.Second})
	orValue(&k.ConfigMapAndSecretChangeDetectionStrategy, v1beta1.WatchChangeDetectionStrategy)
	if k.EnforceNodeAllocatable == nil {
		k.EnforceNodeAllocatable = []string{"pods"}
	}
	orValue(&k.VolumePluginDir, "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/")
	logsapi.SetRecommendedLoggingConfiguration(&k.Logging)
	or(&k.EnableSystemLogHandler, true)
	or(&k.EnableSystemLogQuery, false)
	if gates.Enabled("KubeletCrashLoopBackOffMax") {
		or(&k.CrashLoopBackOff.MaxContainerRestartPeriod, metav1.Duration{Duration: 5 * time.Minute})
	}
	or(&k.EnableProfilingHandler, true)
	or(&k.EnableDebugFlagsHandler, true)
	or(&k.SeccompDefault, false)
	or(&k.MemoryThrottlingFactor, 0.9)
	orValue(&k.MemoryReservationPolicy, v1beta1.NoneMemoryReservationPolicy)
	or(&k.RegisterNode, true)
	or(&k.LocalStorageCapacityIsolation, true)
	orValue(&k.ContainerRuntimeEndpoint, "unix:///run/containerd/containerd.sock")
	or(&k.FailCgroupV1, true)
}

// setFlagDefaults sets the four defaults that differ without a configuration file.
func setFlagDefaults(k *v1beta1.KubeletConfiguration) {
	k.Authentication.Anonymous.Enabled = ptr.To(true)
	k.Authentication.Webhook.Enabled = ptr.To(false)
	k.Authorization.Mode = v1beta1.KubeletAuthorizationModeAlwaysAllow
	k.ReadOnlyPort = 10255
}

// defaultEvictionHard are the thresholds if a configuration file does not set
// evictionHard. Without a file there are none.
func defaultEvictionHard() map[string]string {
	return map[string]string{
		"memory.available":   "100Mi",
		"nodefs.available":   "10%",
		"nodefs.inodesFree":  "5%",
		"imagefs.available":  "15%",
		"imagefs.inodesFree": "5%",
	}
}

func or[T any](p **T, v T) {
	if *p == nil {
		*p = &v
	}
}

func orValue[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

func orFor(p *metav1.Duration, v time.Duration) { orValue(&p.Duration, v) }
