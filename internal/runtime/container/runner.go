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

// runtime is the part of the container runtime that runs things. Calls return
// the runtime's gRPC status, wrapped or not: NotFound is told from other errors
// by it, and its message is what users read.
type runtime interface {
	RunPodSandbox(context.Context, *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error)
	StopPodSandbox(context.Context, *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error)
	RemovePodSandbox(context.Context, *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error)
	CreateContainer(context.Context, *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error)
	StartContainer(context.Context, *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error)
	StopContainer(context.Context, *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error)
	RemoveContainer(context.Context, *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error)
	UpdatePodSandboxResources(context.Context, *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error)
	UpdateContainerResources(context.Context, *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error)
	ContainerStats(context.Context, *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error)
	// ExecSync with a timeout of zero is bounded by its context alone.
	ExecSync(context.Context, *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error)
	ImageStatus(context.Context, *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error)
}

// objects fetches what environments refer to. An object that does not exist is
// an error that apierrors.IsNotFound knows.
type objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
}

// services knows the services of a namespace.
type services interface {
	List(namespace string) []*v1.Service
	// Synced reports whether List has been filled once; before that an empty
	// answer means nothing.
	Synced() bool
}

// NodeFacts is what pods are told about their node.
type NodeFacts struct {
	Name        string
	HostIPs     []string         // at most one of a family, the primary one first
	Addresses   []v1.NodeAddress // all that the node shows
	Allocatable v1.ResourceList
	Memory      int64 // bytes of the machine
	Swap        int64 // bytes of the machine
}

// Kernel is what the kernel offers to containers. It does not change.
type Kernel struct {
	CgroupV2       bool
	SwapController bool     // memory and swap can be limited together
	HugePageSizes  []string // as cgroup files name them, in the order to be told: 2MB, 1GB
	SELinux        bool
}

// DNSConfig is the part of the node's configuration that resolv.conf files of
// pods are made from.
type DNSConfig struct {
	ClusterDNS    []string
	ClusterDomain string
	// ResolvConf is the host's file that pods inherit from. If it is empty,
	// pods with the Default policy ask the node itself.
	ResolvConf string
	// NodeIPs are the addresses of --node-ip, of which the families count. There may
	// be none: the addresses that the agent finds by itself choose nothing here.
	NodeIPs []netip.Addr
}

// The values of Config.SwapBehavior.
const (
	NoSwap      = "NoSwap"
	LimitedSwap = "LimitedSwap"
)

// Config holds what a Runner is built from. Fields are required unless their
// comment says otherwise.
type Config struct {
	Runtime  runtime
	Objects  objects  // nil without an API server
	Services services // nil without an API server
	Events   pod.Events
	Node     func() NodeFacts
	Kernel   Kernel
	DNS      DNSConfig

	RootDir          string
	PodLogsDir       string // such as /var/log/pods
	ContainerLogsDir string // such as /var/log/containers

	// CgroupParent is the pod's cgroup in the form the runtime expects.
	CgroupParent func(*v1.Pod) string
	// RuntimeHandler resolves the pod's RuntimeClass; an error keeps the
	// sandbox from being made.
	RuntimeHandler func(*v1.Pod) (string, error)
	// UserNamespace is the mapping of a pod with hostUsers: false. Nil means
	// that the node has none to give, and such a pod cannot start.
	UserNamespace func(*v1.Pod) (*runtimeapi.UserNamespace, error)
	// VolumeGroups are the groups that own the pod's volumes. May be nil.
	VolumeGroups func(*v1.Pod) []int64

	CPUQuota         bool
	CPUQuotaPeriod   time.Duration
	SwapBehavior     string // empty is NoSwap
	SingleProcessOOM bool   // the kernel kills one process, not the container
	// ExclusiveCPUs reports whether the container has CPUs that nobody else may use.
	// Nil: none has.
	ExclusiveCPUs       func(*v1.Pod, *v1.Container) bool
	SeccompDefault      bool
	ContainerStopSignal bool   // lifecycle.stopSignal is passed on
	Version             string // major.minor, shown to the servers that hooks call

	// Processors tells what the processors do while nothing else is known of the
	// runtime. May be nil.
	Processors Processors

	Registry prometheus.Registerer // nil shows the metrics to nobody
	Log      *slog.Logger
	Now      func() time.Time
}

// Runner carries out the verbs of sandboxes and containers.
type Runner struct {
	cfg     Config
	users   userCache
	masked  []string // paths no container sees unless it asks to
	metrics metrics
	hooks   *http.Client
	turns   *turns
	stops   stops
}

// New makes a Runner. It starts nothing.
func New(cfg Config) (*Runner, error) {
	m, err := newMetrics(cfg.Registry)
	if err != nil {
		return nil, err
	}
	return &Runner{cfg: cfg, masked: maskedPaths("/"), metrics: m, hooks: hookClient(), turns: newTurns(cfg.Processors)}, nil
}

// describe names a pod in messages that users read.
func describe(p *v1.Pod) string {
	return fmt.Sprintf("%s_%s(%s)", p.Name, p.Namespace, p.UID)
}
