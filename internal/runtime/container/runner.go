package container

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
)

// runtime is the part of the container runtime that runs sandboxes and containers. Errors carry the
// runtime's gRPC status: callers branch on NotFound, and users see its message.
type runtime interface {
	RunPodSandbox(context.Context, *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error)
	StopPodSandbox(context.Context, *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error)
	RemovePodSandbox(context.Context, *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error)
	CreateContainer(context.Context, *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error)
	StartContainer(context.Context, *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error)
	StopContainer(context.Context, *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error)
	RemoveContainer(context.Context, *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error)
	UpdatePodSandboxResources(
		context.Context, *runtimeapi.UpdatePodSandboxResourcesRequest,
	) (*runtimeapi.UpdatePodSandboxResourcesResponse, error)
	UpdateContainerResources(
		context.Context, *runtimeapi.UpdateContainerResourcesRequest,
	) (*runtimeapi.UpdateContainerResourcesResponse, error)
	ContainerStats(context.Context, *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error)
	// ExecSync with a timeout of zero is bounded by its context alone.
	ExecSync(context.Context, *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error)
	ImageStatus(context.Context, *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error)
}

// objects fetches ConfigMaps and Secrets. The error for one that does not exist satisfies
// apierrors.IsNotFound.
type objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
}

// services lists Services.
type services interface {
	List(namespace string) []*v1.Service
	// Synced reports whether the initial list is complete. Before that, List is not meaningful.
	Synced() bool
}

// NodeFacts are the facts of the node that pods can refer to.
type NodeFacts struct {
	Name        string
	HostIPs     []string         // at most one per address family, the primary first
	Addresses   []v1.NodeAddress // all addresses of the node status
	Allocatable v1.ResourceList
	Memory      int64 // of the machine, in bytes
	Swap        int64 // of the machine, in bytes
}

// Kernel holds the features of the kernel that containers use. They do not change.
type Kernel struct {
	CgroupV2       bool
	SwapController bool     // memory and swap can be limited together
	HugePageSizes  []string // as cgroup files name them: 2MB, 1GB; in the order of the CRI message
	SELinux        bool
}

// DNSConfig is the node's configuration for resolv.conf files of pods.
type DNSConfig struct {
	ClusterDNS    []string
	ClusterDomain string
	// ResolvConf is the host's file that pods inherit from. If it is empty, pods with the Default
	// policy use a resolver on the node.
	ResolvConf string
	// NodeIPs are the addresses of --node-ip, of which only the families are used. It may be empty:
	// addresses that the agent detects are not used here.
	NodeIPs []netip.Addr
}

// Values of Config.SwapBehavior.
const (
	NoSwap      = "NoSwap"
	LimitedSwap = "LimitedSwap"
)

// Config holds what a Runner is built from. Fields are required unless their comment says otherwise.
type Config struct {
	Runtime  runtime
	Objects  objects  // nil without an API server
	Services services // nil without an API server
	Events   pod.Events
	Node     func() NodeFacts
	Kernel   Kernel
	DNS      DNSConfig

	RootDir          string
	PodLogsDir       string // for example /var/log/pods
	ContainerLogsDir string // for example /var/log/containers

	// CgroupParent returns the pod's cgroup in the form that the runtime expects.
	CgroupParent func(*v1.Pod) string
	// RuntimeHandler resolves the pod's RuntimeClass. An error keeps the sandbox from being
	// created.
	RuntimeHandler func(*v1.Pod) (string, error)
	// UserNamespace returns the ID mappings of a pod with hostUsers: false. If nil, such pods
	// cannot start.
	UserNamespace func(*v1.Pod) (*runtimeapi.UserNamespace, error)
	// VolumeGroups returns the supplemental groups of the pod's volumes. May be nil.
	VolumeGroups func(*v1.Pod) []int64

	Settings
	// ExclusiveCPUs reports whether the container has exclusive CPUs. May be nil: then none has.
	ExclusiveCPUs func(*v1.Pod, *v1.Container) bool

	// Processors reads CPU idle time, which sets the initial concurrency of runtime calls. May be
	// nil.
	Processors Processors

	Registry prometheus.Registerer // nil: metrics are not registered
	Log      *slog.Logger
	Now      func() time.Time
}

// Settings are those of the configuration file and of gates.
type Settings struct {
	CPUQuota            bool
	CPUQuotaPeriod      time.Duration
	SwapBehavior        string // empty means NoSwap
	SingleProcessOOM    bool   // an OOM kill takes one process, not all of the container
	SeccompDefault      bool
	ContainerStopSignal bool   // lifecycle.stopSignal is honoured
	Version             string // major.minor, for the User-Agent of HTTP hooks
}

// Runner runs, starts, stops and removes sandboxes and containers.
type Runner struct {
	cfg     Config
	users   userCache
	masked  []string // paths masked in containers by default
	metrics metrics
	hooks   *http.Client
	queue   *callQueue
	stops   stops
}

// New makes a Runner. It starts nothing.
func New(cfg Config) (*Runner, error) {
	m, err := newMetrics(cfg.Registry)
	if err != nil {
		return nil, err
	}
	return &Runner{
		cfg:     cfg,
		masked:  maskedPaths("/"),
		metrics: m,
		hooks:   hookClient(),
		queue:   newCallQueue(cfg.Processors),
	}, nil
}

// describe formats a pod for messages to users.
func describe(p *v1.Pod) string {
	return fmt.Sprintf("%s_%s(%s)", p.Name, p.Namespace, p.UID)
}
