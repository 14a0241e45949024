package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	v1beta1 "k8s.io/kubelet/config/v1beta1"
)

const useTheFile = "This parameter should be set via the config file specified by the kubelet's --config flag. " +
	"See https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/ for more information."

// flagSet is the command line: pflag's set, and for each flag the field that it sets and
// why it is deprecated.
type flagSet struct {
	*pflag.FlagSet
	fields     map[string]string
	deprecated map[string]string
	version    versionFlag
	help       bool
}

// parseFlags applies args to c, over its values.
func parseFlags(c *Config, args []string) (*flagSet, error) {
	fs := newFlagSet(c)
	if err := fs.Parse(args); err != nil {
		var none *pflag.NotExistError
		if errors.As(err, &none) {
			return nil, fmt.Errorf("failed to parse kubelet flag: %w (kubelet --help lists those that there are)", err)
		}
		return nil, fmt.Errorf("failed to parse kubelet flag: %w", err)
	}
	if fs.help {
		return nil, &Answer{Text: fs.usage()}
	}
	if text := fs.version.text(); text != "" {
		return nil, &Answer{Text: text}
	}
	if fs.version.reported != "" {
		c.Version = fs.version.reported
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unknown command %q: the kubelet takes flags only, or explain", fs.Arg(0))
	}
	return fs, nil
}

// newFlagSet declares every flag, bound to c.
func newFlagSet(c *Config) *flagSet {
	fs := &flagSet{
		FlagSet:    pflag.NewFlagSet("kubelet", pflag.ContinueOnError),
		fields:     map[string]string{},
		deprecated: map[string]string{},
	}
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	fs.SortFlags = true
	fs.Usage = func() {} // --help is answered by the caller

	fs.BoolVarP(&fs.help, "help", "h", false, "Show this help.")
	fs.Var(&fs.version, "version",
		"Print the version and exit; --version=raw prints all of it; --version=vX.Y.Z... sets the version that is reported.")
	fs.Lookup("version").NoOptDefVal = "true"

	fs.BoolVar(&c.Flags.Validate, "validate", false,
		"Check the command line, the configuration and the files they name, print all problems, and exit.")
	fs.BoolVar(&c.Flags.ShowConfig, "show-config", false,
		"Print the effective configuration with the origin of each value, and exit.")

	fs.addNative(&c.Flags)
	fs.addLeftovers()
	fs.addFields(c)
	return fs
}

const useEviction = "Use --eviction-hard or --eviction-soft instead. Will be removed in a future version."

// addNative declares the flags without a field.
func (fs *flagSet) addNative(f *Flags) {
	fs.StringVar(&f.ConfigFile, "config", f.ConfigFile,
		"Configuration file (kubelet.config.k8s.io/v1beta1). Flags override it.")
	fs.StringVar(&f.ConfigDir, "config-dir", f.ConfigDir,
		"Directory of drop-in files (*.conf), merged over the configuration file in the order of their paths.")
	fs.StringVar(&f.Kubeconfig, "kubeconfig", f.Kubeconfig,
		"Kubeconfig file with the address and credentials of the API server. Without it the node is standalone.")
	fs.StringVar(&f.BootstrapKubeconfig, "bootstrap-kubeconfig", f.BootstrapKubeconfig,
		"Kubeconfig file used to request a client certificate when --kubeconfig does not exist yet or has expired.")
	fs.StringVar(&f.HostnameOverride, "hostname-override", f.HostnameOverride,
		"Name of the node, instead of the host name.")
	fs.StringVar(&f.NodeIP, "node-ip", f.NodeIP,
		"IP address of the node, or a dual-stack pair separated by a comma. 0.0.0.0 or :: choose the family only.")
	fs.StringVar(&f.RootDir, "root-dir", f.RootDir, "Directory for the files of pods, volumes and plugins.")
	fs.StringVar(&f.CertDir, "cert-dir", f.CertDir, "Directory for certificates the kubelet makes or is issued.")
	fs.StringVar(&f.CloudProvider, "cloud-provider", f.CloudProvider,
		"Empty, or 'external' when a cloud controller initialises the node.")
	fs.Var(configurationMap(&f.NodeLabels), "node-labels",
		"Labels to register the node with, as key=value pairs separated by commas.")
	fs.StringVar(&f.ImageCredentialProviderConfig, "image-credential-provider-config", f.ImageCredentialProviderConfig,
		"Configuration file of the image credential provider plugins, or a directory of such files.")
	fs.StringVar(&f.ImageCredentialProviderBinDir, "image-credential-provider-bin-dir", f.ImageCredentialProviderBinDir,
		"Directory of the image credential provider plugins.")
	fs.BoolVar(&f.SeccompDefault, "seccomp-default", f.SeccompDefault,
		"Confine containers with the runtime's default seccomp profile unless they ask for another, as the field "+
			"seccompDefault does.")
	fs.StringVar(&f.RuntimeCgroups, "runtime-cgroups", f.RuntimeCgroups,
		"Absolute name of the cgroup the container runtime runs in.")
	fs.StringVar(&f.LockFile, "lock-file", f.LockFile, "Lock file shared with other kubelets.")
	fs.BoolVar(&f.ExitOnLock, "exit-on-lock-contention", f.ExitOnLock, "Exit when another process opens --lock-file.")
	fs.Int32Var(&f.EndedInstances, "maximum-dead-containers-per-container", f.EndedInstances,
		"How many ended instances of each container are kept, one at least.")
	fs.deprecated["maximum-dead-containers-per-container"] = useEviction
	fs.DurationVar(&f.LeastEndedAge, "minimum-container-ttl-duration", f.LeastEndedAge, "No effect.")
	fs.deprecated["minimum-container-ttl-duration"] = useEviction
	fs.BoolVar(&f.IgnoreEviction, "experimental-allocatable-ignore-eviction", f.IgnoreEviction,
		"Leave the hard eviction thresholds out of node allocatable.")
	fs.deprecated["experimental-allocatable-ignore-eviction"] = "will be removed in 1.25 or later."
}

// addLeftovers declares the flags without effect that are accepted because existing command lines
// may have them. Most are those of cAdvisor.
func (fs *flagSet) addLeftovers() {
	leftover := func(name string, value any, why string) {
		const usage = "No effect."
		switch v := value.(type) {
		case bool:
			fs.Bool(name, v, usage)
		case int:
			fs.Int(name, v, usage)
		case int32:
			fs.Int32(name, v, usage)
		case time.Duration:
			fs.Duration(name, v, usage)
		case string:
			fs.String(name, v, usage)
		}
		fs.deprecated[name] = why
	}
	leftover("maximum-dead-containers", int32(-1), useEviction)
	leftover("experimental-mounter-path", "", "will be removed in 1.25 or later. in favor of using CSI.")
	for name, value := range map[string]any{
		"application-metrics-count-limit": 100, "boot-id-file": "/proc/sys/kernel/random/boot_id",
		"container-hints": "/etc/cadvisor/container_hints.json", "containerd": "/run/containerd/containerd.sock",
		"containerd-namespace": "k8s.io", "enable-load-reader": false,
		"event-storage-age-limit": "default=0", "event-storage-event-limit": "default=0",
		"global-housekeeping-interval": time.Minute, "log-cadvisor-usage": false,
		"machine-id-file":     "/etc/machine-id,/var/lib/dbus/machine-id",
		"storage-driver-user": "root", "storage-driver-password": "root", "storage-driver-host": "localhost:8086",
		"storage-driver-db": "cadvisor", "storage-driver-table": "stats", "storage-driver-secure": false,
		"storage-driver-buffer-duration": time.Minute,
	} {
		leftover(name, value,
			"This is a cadvisor flag that was mistakenly registered with the Kubelet. Due to legacy concerns, it will "+
				"follow the standard CLI deprecation timeline before being removed.")
	}
	fs.Duration("housekeeping-interval", 10*time.Second, "No effect.")
}

// field records the field that the flag just declared sets.
func (fs *flagSet) field(name, field string) {
	fs.fields[name] = field
	switch name {
	case "v", "vmodule", "log-flush-frequency", "provider-id", "fail-cgroupv1":
	default:
		fs.deprecated[name] = useTheFile
	}
}

func (fs *flagSet) str(p *string, name, field, usage string) {
	fs.StringVar(p, name, *p, usage)
	fs.field(name, field)
}

func (fs *flagSet) bool(p *bool, name, field, usage string) {
	fs.BoolVar(p, name, *p, usage)
	fs.field(name, field)
}

func (fs *flagSet) int32(p *int32, name, field, usage string) {
	fs.Int32Var(p, name, *p, usage)
	fs.field(name, field)
}

func (fs *flagSet) dur(p *metav1.Duration, name, field, usage string) {
	fs.DurationVar(&p.Duration, name, p.Duration, usage)
	fs.field(name, field)
}

func (fs *flagSet) strs(p *[]string, name, field, usage string) {
	fs.StringSliceVar(p, name, *p, usage)
	fs.field(name, field)
}

func (fs *flagSet) pairs(p *map[string]string, name, field, usage string) {
	fs.value(cliflag.NewMapStringString(p), name, field, usage)
}

func (fs *flagSet) value(v pflag.Value, name, field, usage string) {
	fs.Var(v, name, usage)
	fs.field(name, field)
}

// addFields declares the flags with a field. Their fields have their defaults.
func (fs *flagSet) addFields(c *Config) {
	k := &c.Kubelet
	fs.addServerFields(k)
	fs.addAccessFields(k)
	fs.addNodeFields(k)
	fs.addManagerFields(k)
	fs.addPodFields(k)
	fs.addReservedFields(k)
	fs.addLoggingFields(k)
}

// addServerFields declares the flags of the sources of pods, the server and the runtime.
func (fs *flagSet) addServerFields(k *v1beta1.KubeletConfiguration) {
	fs.bool(k.EnableServer, "enable-server", "enableServer", "Serve the kubelet's HTTPS endpoints.")
	fs.bool(k.FailSwapOn, "fail-swap-on", "failSwapOn", "Refuse to start while swap is on.")
	fs.str(&k.StaticPodPath,
		"pod-manifest-path", "staticPodPath", "Directory of static pod manifests, or one manifest.")
	fs.dur(&k.SyncFrequency, "sync-frequency", "syncFrequency", "Longest time between two syncs of a running pod.")
	fs.dur(&k.FileCheckFrequency, "file-check-frequency", "fileCheckFrequency",
		"Time between two reads of the static pod manifests.")
	fs.dur(&k.HTTPCheckFrequency, "http-check-frequency", "httpCheckFrequency",
		"Time between two requests for static pods by URL.")
	fs.str(&k.StaticPodURL, "manifest-url", "staticPodURL", "URL of static pod manifests.")
	fs.value(cliflag.NewColonSeparatedMultimapStringString(&k.StaticPodURLHeader), "manifest-url-header",
		"staticPodURLHeader", "HTTP headers to send to --manifest-url, as name:value pairs separated by commas.")
	fs.value(address{&k.Address}, "address", "address", "IP address to serve on.")
	fs.int32(&k.Port, "port", "port", "Port to serve on.")
	fs.int32(&k.ReadOnlyPort, "read-only-port", "readOnlyPort", "Port to serve on without authentication; 0 for none.")
	fs.bool(k.FailCgroupV1, "fail-cgroupv1", "failCgroupV1", "Refuse to start on a host that uses cgroup v1.")
	fs.str(&k.ContainerRuntimeEndpoint, "container-runtime-endpoint", "containerRuntimeEndpoint",
		"Socket of the container runtime.")
	fs.str(&k.ImageServiceEndpoint, "image-service-endpoint", "imageServiceEndpoint",
		"Socket of the image service; empty when it is the container runtime's.")
}

// addAccessFields declares the flags of authentication, authorization and certificates.
func (fs *flagSet) addAccessFields(k *v1beta1.KubeletConfiguration) {
	fs.bool(k.Authentication.Anonymous.Enabled, "anonymous-auth", "authentication.anonymous.enabled",
		"Accept requests without credentials, as system:anonymous.")
	fs.bool(k.Authentication.Webhook.Enabled, "authentication-token-webhook", "authentication.webhook.enabled",
		"Authenticate bearer tokens by the TokenReview API.")
	fs.dur(&k.Authentication.Webhook.CacheTTL, "authentication-token-webhook-cache-ttl",
		"authentication.webhook.cacheTTL",
		"How long TokenReview responses are cached.")
	fs.str(&k.Authentication.X509.ClientCAFile, "client-ca-file", "authentication.x509.clientCAFile",
		"File with the certificate authorities of accepted client certificates.")
	fs.value((*textOf)(&k.Authorization.Mode), "authorization-mode", "authorization.mode", "AlwaysAllow or Webhook.")
	fs.dur(&k.Authorization.Webhook.CacheAuthorizedTTL, "authorization-webhook-cache-authorized-ttl",
		"authorization.webhook.cacheAuthorizedTTL", "How long authorized responses of the API server are cached.")
	fs.dur(&k.Authorization.Webhook.CacheUnauthorizedTTL, "authorization-webhook-cache-unauthorized-ttl",
		"authorization.webhook.cacheUnauthorizedTTL", "How long unauthorized responses of the API server are cached.")
	fs.str(&k.TLSCertFile,
		"tls-cert-file", "tlsCertFile", "Certificate to serve with. Empty: one is made in --cert-dir.")
	fs.str(&k.TLSPrivateKeyFile, "tls-private-key-file", "tlsPrivateKeyFile", "Private key of --tls-cert-file.")
	fs.bool(&k.ServerTLSBootstrap, "rotate-server-certificates", "serverTLSBootstrap",
		"Request the serving certificate from the API server and renew it.")
	fs.strs(&k.TLSCipherSuites, "tls-cipher-suites", "tlsCipherSuites",
		"Cipher suites of the server. Empty: Go's defaults.")
	fs.str(&k.TLSMinVersion, "tls-min-version", "tlsMinVersion",
		"Least TLS version to serve with: "+strings.Join(cliflag.TLSPossibleVersions(), ", ")+".")
	fs.bool(&k.RotateCertificates, "rotate-certificates", "rotateCertificates",
		"Renew the client certificate before it expires.")
}

// addNodeFields declares the flags of limits of requests, health, the node's status and images.
func (fs *flagSet) addNodeFields(k *v1beta1.KubeletConfiguration) {
	fs.int32(k.RegistryPullQPS, "registry-qps", "registryPullQPS", "Image pulls a second; 0 for no limit.")
	fs.int32(&k.RegistryBurst, "registry-burst", "registryBurst", "Image pulls above --registry-qps for a short time.")
	fs.int32(k.EventRecordQPS, "event-qps", "eventRecordQPS", "Events a second; 0 for no limit.")
	fs.int32(&k.EventBurst, "event-burst", "eventBurst", "Events above --event-qps for a short time.")
	fs.bool(k.EnableDebuggingHandlers, "enable-debugging-handlers", "enableDebuggingHandlers",
		"Serve logs, exec, attach, port-forward and the like.")
	fs.bool(&k.EnableContentionProfiling, "contention-profiling", "enableContentionProfiling",
		"Profile lock contention.")
	fs.int32(k.HealthzPort, "healthz-port", "healthzPort", "Port of the local health endpoint; 0 for none.")
	fs.value(address{&k.HealthzBindAddress}, "healthz-bind-address", "healthzBindAddress",
		"IP address of the local health endpoint.")
	fs.int32(k.OOMScoreAdj, "oom-score-adj", "oomScoreAdj", "oom_score_adj of the kubelet, -1000 to 1000.")
	fs.str(&k.ClusterDomain, "cluster-domain", "clusterDomain", "DNS domain of the cluster.")
	fs.str(&k.VolumePluginDir, "volume-plugin-dir", "volumePluginDir", "Directory of FlexVolume plugins.")
	fs.strs(&k.ClusterDNS, "cluster-dns", "clusterDNS", "DNS servers of pods with dnsPolicy ClusterFirst.")
	fs.dur(&k.StreamingConnectionIdleTimeout, "streaming-connection-idle-timeout", "streamingConnectionIdleTimeout",
		"How long a streaming connection may be idle before it is closed.")
	fs.dur(&k.NodeStatusUpdateFrequency, "node-status-update-frequency", "nodeStatusUpdateFrequency",
		"Time between two computations of the node's status.")
	fs.dur(&k.ImageMinimumGCAge, "minimum-image-ttl-duration", "imageMinimumGCAge",
		"Minimum age of an unused image before it is garbage-collected.")
	fs.int32(k.ImageGCHighThresholdPercent, "image-gc-high-threshold", "imageGCHighThresholdPercent",
		"Disk usage, in percent, above which images are garbage-collected.")
	fs.int32(k.ImageGCLowThresholdPercent, "image-gc-low-threshold", "imageGCLowThresholdPercent",
		"Disk usage, in percent, down to which images are garbage-collected.")
	fs.dur(&k.VolumeStatsAggPeriod, "volume-stats-agg-period", "volumeStatsAggPeriod",
		"Time between two calculations of volume disk usage; negative for none.")
	fs.value(cliflag.NewMapStringBool(&k.FeatureGates), "feature-gates", "featureGates",
		"Feature gates as name=true|false pairs separated by commas; they are listed below.")
}

// addManagerFields declares the flags of cgroups, the CPU manager and the topology manager.
func (fs *flagSet) addManagerFields(k *v1beta1.KubeletConfiguration) {
	fs.str(&k.KubeletCgroups, "kubelet-cgroups", "kubeletCgroups", "Absolute name of the cgroup to run the kubelet in.")
	fs.str(&k.SystemCgroups, "system-cgroups", "systemCgroups",
		"Absolute name of the cgroup for processes that are in none.")
	fs.str(&k.ProviderID, "provider-id", "providerID", "ID of the machine at the cloud provider.")
	fs.bool(k.CgroupsPerQOS, "cgroups-per-qos", "cgroupsPerQOS", "Make a cgroup for each QoS class and pod.")
	fs.str(&k.CgroupDriver, "cgroup-driver", "cgroupDriver", "cgroupfs or systemd, if the runtime does not report one.")
	fs.str(&k.CgroupRoot, "cgroup-root", "cgroupRoot", "Cgroup that holds those of the pods.")
	fs.str(&k.CPUManagerPolicy, "cpu-manager-policy", "cpuManagerPolicy", "none or static.")
	fs.value(cliflag.NewMapStringStringNoSplit(&k.CPUManagerPolicyOptions), "cpu-manager-policy-options",
		"cpuManagerPolicyOptions", "Options of the CPU manager policy as key=value pairs.")
	fs.dur(&k.CPUManagerReconcilePeriod, "cpu-manager-reconcile-period", "cpuManagerReconcilePeriod",
		"Reconciliation period of the CPU manager.")
	fs.pairs(&k.QOSReserved, "qos-reserved", "qosReserved",
		"Share of a resource reserved for a QoS class, such as memory=50%.")
	fs.str(&k.TopologyManagerPolicy, "topology-manager-policy", "topologyManagerPolicy",
		"none, best-effort, restricted or single-numa-node.")
	fs.dur(&k.RuntimeRequestTimeout, "runtime-request-timeout", "runtimeRequestTimeout",
		"Timeout of runtime requests other than pull, logs, exec and attach.")
	fs.str(&k.HairpinMode, "hairpin-mode", "hairpinMode", "promiscuous-bridge, hairpin-veth or none. No effect.")
	fs.int32(&k.MaxPods, "max-pods", "maxPods", "Number of pods this node may run.")
	fs.str(&k.PodCIDR, "pod-cidr", "podCIDR", "Addresses of pods, on a standalone node.")
	fs.Int64Var(k.PodPidsLimit, "pod-max-pids", *k.PodPidsLimit, "Number of processes a pod may have; -1 for no limit.")
	fs.field("pod-max-pids", "podPidsLimit")
}

// addPodFields declares the flags of pod resources, logs and the API client.
func (fs *flagSet) addPodFields(k *v1beta1.KubeletConfiguration) {
	fs.str(k.ResolverConfig, "resolv-conf", "resolvConf", "Resolver file that pods' own are made from.")
	fs.bool(&k.RunOnce, "runonce", "runOnce", "Refused: it is not supported any more.")
	fs.bool(k.CPUCFSQuota, "cpu-cfs-quota", "cpuCFSQuota", "Enforce CPU limits with CFS quota.")
	fs.dur(k.CPUCFSQuotaPeriod, "cpu-cfs-quota-period", "cpuCFSQuotaPeriod", "Period of the CFS quota, 1ms to 1s.")
	fs.bool(k.EnableControllerAttachDetach, "enable-controller-attach-detach", "enableControllerAttachDetach",
		"Leave attaching and detaching of volumes to the controller.")
	fs.bool(k.MakeIPTablesUtilChains, "make-iptables-util-chains", "makeIPTablesUtilChains",
		"Keep the KUBE-IPTABLES-HINT chain.")
	fs.str(&k.ContainerLogMaxSize, "container-log-max-size", "containerLogMaxSize",
		"Size at which a container's log is rotated.")
	fs.int32(k.ContainerLogMaxFiles, "container-log-max-files", "containerLogMaxFiles",
		"Number of log files kept for a container, at least 2.")
	fs.strs(&k.AllowedUnsafeSysctls, "allowed-unsafe-sysctls", "allowedUnsafeSysctls",
		"Unsafe sysctls, or patterns ending in *, that pods may set.")
	fs.int32(k.NodeStatusMaxImages, "node-status-max-images", "nodeStatusMaxImages",
		"Number of images shown in the node's status; -1 for all.")
	fs.bool(&k.KernelMemcgNotification, "kernel-memcg-notification", "kernelMemcgNotification",
		"Use memcg notifications of the kernel for memory thresholds.")
	fs.bool(k.LocalStorageCapacityIsolation, "local-storage-capacity-isolation", "localStorageCapacityIsolation",
		"Account for local ephemeral storage.")
	fs.Int64Var(&k.MaxOpenFiles, "max-open-files", k.MaxOpenFiles, "Number of files the kubelet may open.")
	fs.field("max-open-files", "maxOpenFiles")
	fs.str(&k.ContentType, "kube-api-content-type", "contentType", "Content type of requests to the API server.")
	fs.int32(k.KubeAPIQPS, "kube-api-qps", "kubeAPIQPS", "Requests to the API server a second.")
	fs.int32(&k.KubeAPIBurst, "kube-api-burst", "kubeAPIBurst", "Requests above --kube-api-qps for a short time.")
	fs.bool(k.SerializeImagePulls, "serialize-image-pulls", "serializeImagePulls", "Pull one image at a time.")
}

// addReservedFields declares the flags of eviction and reserved resources.
func (fs *flagSet) addReservedFields(k *v1beta1.KubeletConfiguration) {
	fs.value(cliflag.NewLangleSeparatedMapStringString(&k.EvictionHard), "eviction-hard", "evictionHard",
		"Hard eviction thresholds, such as memory.available<1Gi.")
	fs.value(cliflag.NewLangleSeparatedMapStringString(&k.EvictionSoft), "eviction-soft", "evictionSoft",
		"Soft eviction thresholds, such as memory.available<1.5Gi.")
	fs.pairs(&k.EvictionSoftGracePeriod, "eviction-soft-grace-period", "evictionSoftGracePeriod",
		"Grace periods of soft eviction thresholds, such as memory.available=1m30s.")
	fs.dur(&k.EvictionPressureTransitionPeriod, "eviction-pressure-transition-period",
		"evictionPressureTransitionPeriod",
		"How long a pressure condition stays after the pressure has ended.")
	fs.int32(&k.EvictionMaxPodGracePeriod, "eviction-max-pod-grace-period", "evictionMaxPodGracePeriod",
		"Longest grace period, in seconds, of a pod evicted by a soft threshold.")
	fs.pairs(&k.EvictionMinimumReclaim, "eviction-minimum-reclaim", "evictionMinimumReclaim",
		"Least amount to reclaim, such as imagefs.available=2Gi.")
	fs.int32(&k.PodsPerCore, "pods-per-core", "podsPerCore",
		"Number of pods per CPU core, up to --max-pods; 0 for no such limit.")
	fs.bool(&k.ProtectKernelDefaults, "protect-kernel-defaults", "protectKernelDefaults",
		"Refuse to start when kernel settings differ from what the kubelet needs, instead of setting them.")
	fs.str(&k.ReservedSystemCPUs, "reserved-cpus", "reservedSystemCPUs",
		"CPUs reserved for the system and Kubernetes, such as 0-1.")
	fs.str(&k.TopologyManagerScope, "topology-manager-scope", "topologyManagerScope", "container or pod.")
	fs.pairs(&k.TopologyManagerPolicyOptions, "topology-manager-policy-options", "topologyManagerPolicyOptions",
		"Options of the topology manager policy as key=value pairs.")
	fs.pairs(&k.SystemReserved, "system-reserved", "systemReserved",
		"Resources reserved for the system, such as cpu=200m,memory=500Mi.")
	fs.pairs(&k.KubeReserved, "kube-reserved", "kubeReserved",
		"Resources reserved for Kubernetes, such as cpu=200m,memory=500Mi.")
	fs.strs(&k.EnforceNodeAllocatable, "enforce-node-allocatable", "enforceNodeAllocatable",
		"Limits to enforce: none, pods, system-reserved, system-reserved-compressible, kube-reserved, "+
			"kube-reserved-compressible.")
	fs.str(&k.SystemReservedCgroup, "system-reserved-cgroup", "systemReservedCgroup",
		"Absolute name of the cgroup of the system's processes.")
	fs.str(&k.KubeReservedCgroup, "kube-reserved-cgroup", "kubeReservedCgroup",
		"Absolute name of the cgroup of the Kubernetes processes.")
	fs.str(&k.MemoryManagerPolicy, "memory-manager-policy", "memoryManagerPolicy", "None or Static.")
	fs.value(&reservedMemory{list: &k.ReservedMemory}, "reserved-memory", "reservedMemory",
		"Memory reserved on a NUMA node, such as 0:memory=1Gi,hugepages-1M=2Gi. May be repeated.")
	fs.bool(k.RegisterNode, "register-node", "registerNode", "Register the node with the API server.")
	fs.value(taints{list: &k.RegisterWithTaints}, "register-with-taints", "registerWithTaints",
		"Taints to register the node with, as key=value:effect separated by commas.")
}

// addLoggingFields declares the flags of the log.
func (fs *flagSet) addLoggingFields(k *v1beta1.KubeletConfiguration) {
	fs.str(&k.Logging.Format, "logging-format", "logging.format", "text or json.")
	fs.DurationVar(&k.Logging.FlushFrequency.Duration.Duration, "log-flush-frequency",
		k.Logging.FlushFrequency.Duration.Duration, "Longest time between two flushes of the log.")
	fs.field("log-flush-frequency", "logging.flushFrequency")
	fs.VarP(logsapi.VerbosityLevelPflag(&k.Logging.Verbosity), "v", "v", "How much to log.")
	fs.field("v", "logging.verbosity")
	fs.value(logsapi.VModuleConfigurationPflag(&k.Logging.VModule), "vmodule", "logging.vmodule",
		"Log verbosity by source file, as pattern=N pairs separated by commas.")
	text, js := &k.Logging.Options.Text, &k.Logging.Options.JSON
	fs.bool(&text.SplitStream, "log-text-split-stream", "logging.options.text.splitStream",
		"Errors to standard error and the rest to standard output. Needs the gate LoggingAlphaOptions.")
	fs.value(&text.InfoBufferSize, "log-text-info-buffer-size", "logging.options.text.infoBufferSize",
		"Buffer of the split text stream. Needs the gate LoggingAlphaOptions.")
	fs.bool(&js.SplitStream, "log-json-split-stream", "logging.options.json.splitStream",
		"The same for the json format. Needs the gate LoggingAlphaOptions.")
	fs.value(&js.InfoBufferSize, "log-json-info-buffer-size", "logging.options.json.infoBufferSize",
		"Buffer of the split json stream. Needs the gate LoggingAlphaOptions.")
}

// usage is the text of --help.
func (fs *flagSet) usage() string {
	native := pflag.NewFlagSet("", pflag.ContinueOnError)
	mirrors := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.VisitAll(func(f *pflag.Flag) {
		if fs.deprecated[f.Name] == "" {
			native.AddFlag(f)
			return
		}
		f.Usage = "(DEPRECATED) " + f.Usage
		if field := fs.fields[f.Name]; field != "" {
			f.Usage += " Field: " + field
		}
		mirrors.AddFlag(f)
	})
	const width = 110
	var b strings.Builder
	b.WriteString("The kubelet runs the pods of one node: those the API server assigns to it and\nthose found in " +
		"manifests on the machine itself.\n\nUsage:\n  kubelet [flags]\n  kubelet explain [POD]   why pods of this " +
		"node run, or do not: kubelet explain --help\n\nFlags:\n")
	b.WriteString(native.FlagUsagesWrapped(width))
	b.WriteString("\nFlags that still work and override the configuration file, but should be fields of it:\n")
	b.WriteString(mirrors.FlagUsagesWrapped(width))
	b.WriteString("\nFeature gates (--feature-gates):\n")
	for _, line := range KnownGates().helpLines() {
		b.WriteString("      " + line + "\n")
	}
	return b.String()
}

var errMalformedPair = errors.New("malformed pair, expect key=value")
