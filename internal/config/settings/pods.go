package settings

import (
	"time"

	v1beta1 "k8s.io/kubelet/config/v1beta1"

	"keelson/internal/config"
	"keelson/internal/pods/admission"
	"keelson/internal/pods/allocation"
	"keelson/internal/pods/desired"
	"keelson/internal/pods/manifest"
	"keelson/internal/pods/podplan"
	"keelson/internal/pods/podsync"
	"keelson/internal/pods/podsync/poddir"
	"keelson/internal/pods/status"
	"keelson/internal/runtime/container"
	"keelson/internal/runtime/cri"
	"keelson/internal/runtime/image"
	"keelson/internal/runtime/image/gc"
	"keelson/internal/runtime/image/provider"
	"keelson/internal/runtime/image/record"
	"keelson/internal/runtime/rotate"
)

// Manifests compiles static manifests.
func Manifests(c *config.Config) manifest.Compiler {
	return manifest.Compiler{
		NodeName:           c.NodeName,
		AllowAPIReferences: !c.Gates.Enabled("PreventStaticPodAPIReferences"),
		MountSELinux:       c.Gates.Enabled("SELinuxMount"),
	}
}

// Files is the source of static pods in files; ok is false without one.
func Files(c *config.Config) (out desired.FilesConfig, ok bool) {
	k := &c.Kubelet
	return desired.FilesConfig{
		Path:     k.StaticPodPath,
		Period:   k.FileCheckFrequency.Duration,
		Manifest: Manifests(c),
	}, k.StaticPodPath != ""
}

// URL is the source of static pods at a URL; ok is false without one.
func URL(c *config.Config) (out desired.URLConfig, ok bool) {
	k := &c.Kubelet
	return desired.URLConfig{
		URL:      k.StaticPodURL,
		Header:   k.StaticPodURLHeader,
		Period:   k.HTTPCheckFrequency.Duration,
		Manifest: Manifests(c),
	}, k.StaticPodURL != ""
}

// StatusNode holds the settings of the node on which pod statuses depend.
func StatusNode(c *config.Config, runtime cri.Identity) status.Node {
	return status.Node{
		RuntimeName:   runtime.Name,
		StopSignals:   c.Gates.Enabled("ContainerStopSignals"),
		HideResources: !c.Gates.Enabled("InPlacePodLevelResourcesVerticalScaling"),
	}
}

// Admission is the rules by which pods are admitted.
func Admission(c *config.Config) admission.Rules {
	return admission.Rules{
		AllowedUnsafeSysctls: c.Kubelet.AllowedUnsafeSysctls,
		PodLevelResources:    c.Gates.Enabled("PodLevelResources"),
	}
}

// Allocation is the rules by which resources are allocated and resized.
func Allocation(c *config.Config) allocation.Rules {
	k, gates := &c.Kubelet, c.Gates
	inPlace := gates.Enabled("InPlacePodVerticalScaling")
	return allocation.Rules{
		InPlace:        inPlace,
		InitContainers: inPlace && gates.Enabled("InPlacePodVerticalScalingInitContainers"),
		PodLevel:       inPlace && gates.Enabled("InPlacePodLevelResourcesVerticalScaling"),
		StaticCPU:      k.CPUManagerPolicy == "static" && !gates.Enabled("InPlacePodVerticalScalingExclusiveCPUs"),
		StaticMemory:   k.MemoryManagerPolicy == "Static" && !gates.Enabled("InPlacePodVerticalScalingExclusiveMemory"),
	}
}

// minTurnPatience is the least time that a turn of a pod's worker may take before the agent is unhealthy.
const minTurnPatience = 5 * time.Minute

// turnPatience is twice the syncFrequency, which is upstream's limit for its sync loop, but at least minTurnPatience.
func turnPatience(syncFrequency time.Duration) time.Duration {
	return max(2*syncFrequency, minTurnPatience)
}

// Syncer is how pods are synced.
func Syncer(c *config.Config) podsync.Config {
	return podsync.Config{
		Backoff:      crashBackoff(c),
		RestartAll:   c.Gates.Enabled("RestartAllContainersOnContainerExits"),
		KeepEnded:    int(c.Flags.EndedInstances),
		TurnPatience: turnPatience(c.Kubelet.SyncFrequency.Duration),
	}
}

// crashBackoff is the back-off of containers that crash.
func crashBackoff(c *config.Config) podplan.BackoffLimits {
	longest := podplan.DefaultBackoff.Max
	if c.Gates.Enabled("KubeletCrashLoopBackOffMax") {
		longest = c.Kubelet.CrashLoopBackOff.MaxContainerRestartPeriod.Duration
	}
	return podplan.Limits(longest, c.Gates.Enabled("ReduceDefaultCrashLoopBackOffDecay"))
}

// PodDirs are the directories of pods.
func PodDirs(c *config.Config) poddir.Dirs {
	return poddir.Dirs{
		Root:    c.Flags.RootDir,
		LogRoot: c.Kubelet.PodLogsDir,
		Links:   ContainerLogsDir(&c.Kubelet),
	}
}

// Containers is how containers are started.
func Containers(c *config.Config) container.Config {
	k, f := &c.Kubelet, &c.Flags
	nodeIPs, _ := c.NodeIPs()
	return container.Config{
		DNS: container.DNSConfig{
			ClusterDomain: k.ClusterDomain,
			ResolvConf:    *k.ResolverConfig,
			NodeIPs:       nodeIPs,
		},
		RootDir:          f.RootDir,
		PodLogsDir:       k.PodLogsDir,
		ContainerLogsDir: ContainerLogsDir(k),
		Settings: container.Settings{
			CPUQuota:            *k.CPUCFSQuota,
			CPUQuotaPeriod:      k.CPUCFSQuotaPeriod.Duration,
			SwapBehavior:        k.MemorySwap.SwapBehavior,
			SingleProcessOOM:    k.SingleProcessOOMKill != nil && *k.SingleProcessOOMKill,
			SeccompDefault:      *k.SeccompDefault || f.SeccompDefault,
			ContainerStopSignal: c.Gates.Enabled("ContainerStopSignals"),
			Version:             Version(c),
		},
	}
}

// Rotation is how logs are rotated.
func Rotation(k *v1beta1.KubeletConfiguration) (rotate.Config, error) {
	size, err := rotate.ParseMaxSize(k.ContainerLogMaxSize)
	return rotate.Config{
		Root:     k.PodLogsDir,
		MaxSize:  size,
		MaxFiles: int(*k.ContainerLogMaxFiles),
		Workers:  int(*k.ContainerLogMaxWorkers),
		Period:   k.ContainerLogMonitorInterval.Duration,
	}, err
}

// Images is how images are pulled.
func Images(c *config.Config) image.Config {
	k := &c.Kubelet
	return image.Config{
		Parallel: parallelPulls(k),
		Sources:  []image.Source{image.DefaultNodeFiles(c.Flags.RootDir)},
		QPS:      float64(*k.RegistryPullQPS),
		Burst:    int(k.RegistryBurst),
	}
}

// parallelPulls is how many images are pulled at a time; zero for any number.
func parallelPulls(k *v1beta1.KubeletConfiguration) int {
	switch {
	case *k.SerializeImagePulls:
		return 1
	case k.MaxParallelImagePulls == nil:
		return 0
	}
	return int(*k.MaxParallelImagePulls)
}

// Credentials is how credential providers are called; ok is false without any.
func Credentials(c *config.Config) (out provider.Config, ok bool) {
	f := &c.Flags
	return provider.Config{
		Path:        f.ImageCredentialProviderConfig,
		BinDir:      f.ImageCredentialProviderBinDir,
		AllowTokens: c.Gates.Enabled("KubeletServiceAccountTokenForCredentialProviders"),
	}, f.ImageCredentialProviderConfig != ""
}

// PullRecords is the policy for the use of images that were pulled with credentials; ok is false if every pod may use
// all images.
func PullRecords(c *config.Config) (out record.Config, ok bool) {
	return record.Config{
		Root: c.Flags.RootDir,
		Policy: record.Policy{
			Verify:  c.Kubelet.ImagePullCredentialsVerificationPolicy,
			Allowed: c.Kubelet.PreloadedImagesVerificationAllowlist,
		},
	}, c.Gates.Enabled("KubeletEnsureSecretPulledImages")
}

// ImageGC is when images are garbage-collected.
func ImageGC(k *v1beta1.KubeletConfiguration) gc.Config {
	return gc.Config{
		High:   int(*k.ImageGCHighThresholdPercent),
		Low:    int(*k.ImageGCLowThresholdPercent),
		MinAge: k.ImageMinimumGCAge.Duration,
		MaxAge: k.ImageMaximumGCAge.Duration,
	}
}
