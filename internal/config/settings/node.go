package settings

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	v1beta1 "k8s.io/kubelet/config/v1beta1"

	"keelson/internal/api/client"
	"keelson/internal/api/node"
	"keelson/internal/config"
	"keelson/internal/host/cgroup"
	"keelson/internal/host/machine"
	"keelson/internal/host/shutdown"
	"keelson/internal/pods/pod"
	"keelson/internal/resources/eviction"
	"keelson/internal/runtime/cri"
	"keelson/internal/runtime/logs"
	"keelson/internal/serve/tracing"
)

// Version returns the major and minor version of the agent, such as 1.36.
func Version(c *config.Config) string {
	parts := strings.SplitN(strings.TrimPrefix(c.Version, "v"), ".", 3)
	if len(parts) < 2 {
		return c.Version
	}
	return parts[0] + "." + parts[1]
}

// NodeIP is the first address of --node-ip; empty if there is none.
func NodeIP(c *config.Config) string {
	if ips, _ := c.NodeIPs(); len(ips) > 0 {
		return ips[0].String()
	}
	return ""
}

// ContainerLogsDir is the directory of the legacy symlinks to container logs. If the pod log directory is not the
// default, it is beside that directory: two agents on one machine must not write to the same directory.
func ContainerLogsDir(k *v1beta1.KubeletConfiguration) string {
	if k.PodLogsDir != logs.DefaultPodLogsDir {
		return filepath.Join(filepath.Dir(filepath.Clean(k.PodLogsDir)), "containers")
	}
	return logs.ContainerLogsDir
}

// Tracing is where spans are sent; ok is false without tracing.
func Tracing(c *config.Config) (out tracing.Config, ok bool) {
	t := c.Kubelet.Tracing
	if t == nil {
		return out, false
	}
	out = tracing.Config{Host: c.NodeName, Version: c.Version}
	if t.Endpoint != nil {
		out.Endpoint = *t.Endpoint
	}
	if t.SamplingRatePerMillion != nil {
		out.PerMillion = *t.SamplingRatePerMillion
	}
	return out, true
}

// Runtime is how the container runtime is called.
func Runtime(c *config.Config) cri.Config {
	k := &c.Kubelet
	return cri.Config{
		RuntimeEndpoint: k.ContainerRuntimeEndpoint,
		ImageEndpoint:   k.ImageServiceEndpoint,
		RequestTimeout:  k.RuntimeRequestTimeout.Duration,
		StreamLists:     c.Gates.Enabled("CRIListStreaming"),
	}
}

// Client is how the API server is called.
func Client(c *config.Config) client.Config {
	k := &c.Kubelet
	return client.Config{
		Kubeconfig:  c.Flags.Kubeconfig,
		QPS:         unlimited(*k.KubeAPIQPS),
		Burst:       int(k.KubeAPIBurst),
		EventQPS:    unlimited(*k.EventRecordQPS),
		EventBurst:  int(k.EventBurst),
		ContentType: k.ContentType,
		Version:     c.Version,
		// A heartbeat that takes longer is cancelled, so that the next one can be sent.
		Heartbeat: min(k.NodeStatusUpdateFrequency.Duration, leaseDuration(k)),
	}
}

// unlimited translates "no limit": zero in the configuration, negative to the client, whose zero means its default.
func unlimited(qps int32) float32 {
	if qps == 0 {
		return -1
	}
	return float32(qps)
}

func leaseDuration(k *v1beta1.KubeletConfiguration) time.Duration {
	return time.Duration(k.NodeLeaseDurationSeconds) * time.Second
}

// Cgroups is the configuration of the cgroup tree of the pods. The driver must be that of the runtime, since
// both use the same tree.
func Cgroups(k *v1beta1.KubeletConfiguration, runtimeDriver string, m machine.Info) cgroup.Config {
	return cgroup.Config{
		Driver: CgroupDriver(k, runtimeDriver),
		Root:   cgroupRoot(k),
		Pod: cgroup.PodOptions{
			CFSQuota:  *k.CPUCFSQuota,
			CFSPeriod: k.CPUCFSQuotaPeriod.Duration,
			PIDs:      *k.PodPidsLimit,
			PageSizes: m.PageSizes(),
		},
	}
}

// CgroupDriver returns the cgroup driver: the one that the runtime reports, or else the configured one.
func CgroupDriver(k *v1beta1.KubeletConfiguration, runtimeDriver string) cgroup.Driver {
	if runtimeDriver != "" {
		return cgroup.Driver(runtimeDriver)
	}
	return cgroup.Driver(k.CgroupDriver)
}

// cgroupRoot is the cgroup that holds those of the pods.
func cgroupRoot(k *v1beta1.KubeletConfiguration) string {
	if k.CgroupRoot == "" {
		return "/"
	}
	return k.CgroupRoot
}

// Reserved returns the sum of the resources reserved for the system and for Kubernetes.
func Reserved(k *v1beta1.KubeletConfiguration) (v1.ResourceList, error) {
	sum, err := node.SumReservations(k.SystemReserved, k.KubeReserved)
	if err != nil {
		return nil, err
	}
	if list := k.ReservedSystemCPUs; list != "" {
		// Whole CPUs override the amounts.
		sum[v1.ResourceCPU] = *apiresource.NewQuantity(int64(config.CountCPUs(list)), apiresource.DecimalSI)
	}
	return sum, nil
}

// Enforced are the reservations whose cgroups are limited; see [node.Reservation].
func Enforced(k *v1beta1.KubeletConfiguration) (out []node.Reservation) {
	for _, r := range []node.Reservation{
		{Name: "system-reserved", Title: "System Reserved", Cgroup: k.SystemReservedCgroup, Amounts: k.SystemReserved},
		{Name: "kube-reserved", Title: "Kube Reserved", Cgroup: k.KubeReservedCgroup, Amounts: k.KubeReserved},
	} {
		whole := slices.Contains(k.EnforceNodeAllocatable, r.Name)
		if r.Compressible = !whole; whole || slices.Contains(k.EnforceNodeAllocatable, r.Name+"-compressible") {
			out = append(out, r)
		}
	}
	return out
}

// AllPods returns the values of the cgroup of all pods: the capacity of the machine, minus the reserved
// resources if enforceNodeAllocatable has pods. Without a CPU weight the pods together would get as much CPU
// as a single other cgroup.
func AllPods(
	k *v1beta1.KubeletConfiguration, m machine.Info, reserved v1.ResourceList,
) func(capacity v1.ResourceList) cgroup.Values {
	if !slices.Contains(k.EnforceNodeAllocatable, "pods") {
		reserved = nil
	}
	return func(capacity v1.ResourceList) cgroup.Values { return cgroup.NodeValues(capacity, reserved, m.MaxPIDs) }
}

// Node is the Node object.
func Node(c *config.Config, m machine.Info) node.Config {
	k, f := &c.Kubelet, &c.Flags
	nodeIPs, _ := c.NodeIPs()
	return node.Config{
		Identity: node.Identity{
			Name:           c.NodeName,
			Hostname:       c.NodeName,
			OS:             m.OS,
			Arch:           m.Arch,
			Labels:         f.NodeLabels,
			Taints:         k.RegisterWithTaints,
			ProviderID:     k.ProviderID,
			External:       f.CloudProvider == "external",
			ProvidedIP:     node.ProvidedIP(nodeIPs),
			AttachesItself: !*k.EnableControllerAttachDetach,
		},
		Size: node.Size{
			Machine:     m,
			RootDir:     f.RootDir,
			Storage:     *k.LocalStorageCapacityIsolation,
			MaxPods:     int64(k.MaxPods),
			PodsPerCore: int64(k.PodsPerCore),
		},
		Reported: node.Reported{
			NodeIPs:   nodeIPs,
			Version:   c.Version,
			Port:      k.Port,
			MaxImages: int(*k.NodeStatusMaxImages),
			PodCIDR:   k.PodCIDR,
		},
		Intervals: node.Intervals{
			UpdateEvery:   k.NodeStatusUpdateFrequency.Duration,
			ReportEvery:   k.NodeStatusReportFrequency.Duration,
			LeaseDuration: leaseDuration(k),
		},
		Register: *k.RegisterNode,
	}
}

// Thresholds are the eviction thresholds.
func Thresholds(c *config.Config) eviction.Settings {
	k := &c.Kubelet
	return eviction.Settings{
		Hard:           k.EvictionHard,
		Soft:           k.EvictionSoft,
		SoftGrace:      k.EvictionSoftGracePeriod,
		MinimumReclaim: k.EvictionMinimumReclaim,
		Enforced: *k.CgroupsPerQOS && slices.Contains(k.EnforceNodeAllocatable, "pods") &&
			!c.Flags.IgnoreEviction,
	}
}

// Eviction is how pods are evicted.
func Eviction(k *v1beta1.KubeletConfiguration) eviction.Config {
	return eviction.Config{
		PressureTransition: k.EvictionPressureTransitionPeriod.Duration,
		MaxPodGrace:        time.Duration(k.EvictionMaxPodGracePeriod) * time.Second,
		Limits:             *k.LocalStorageCapacityIsolation,
	}
}

// ShutdownPeriods are the termination periods of pods during a node shutdown; none if shutdowns are not managed.
func ShutdownPeriods(c *config.Config) []shutdown.Period {
	k := &c.Kubelet
	byPriority := c.Gates.Enabled("GracefulNodeShutdownBasedOnPodPriority")
	switch {
	case !c.Gates.Enabled("GracefulNodeShutdown"):
		return nil
	case len(k.ShutdownGracePeriodByPodPriority) == 0 || !byPriority:
		return shutdown.Periods(k.ShutdownGracePeriod.Duration, k.ShutdownGracePeriodCriticalPods.Duration)
	}
	var out []shutdown.Period
	for _, p := range k.ShutdownGracePeriodByPodPriority {
		out = append(out, shutdown.Period{Priority: p.Priority, Length: pod.Seconds(p.ShutdownGracePeriodSeconds)})
	}
	return out
}
