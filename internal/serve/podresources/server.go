package podresources

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	podresourcesv1alpha1 "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"keelson/internal/pods/panics"
	"keelson/internal/serve/socket"
)

// Device is a device of a resource.
type Device struct {
	Resource, ID string
	Nodes        []int // its NUMA nodes; empty: not known
}

// Memory is memory or huge pages on NUMA nodes.
type Memory struct {
	Type  string // the name of the resource: memory, hugepages-2Mi
	Bytes uint64
	Nodes []int
}

// Claim is a prepared ResourceClaim with the devices of a container.
type Claim struct {
	Namespace, Name string
	Devices         []ClaimDevice
}

// ClaimDevice is a device of a claim.
type ClaimDevice struct {
	Driver, Pool, Name string
	Share              string   // the share ID; empty: not shared
	CDI                []string // CDI device IDs
}

// Resources are the exclusive resources of a container or node.
type Resources struct {
	Devices []Device
	CPUs    []int
	Memory  []Memory
	Claims  []Claim
}

// Config holds the configuration of a Server. All fields are required unless noted otherwise.
type Config struct {
	Socket string // path
	// Pods returns the pods that use the node. All returns the pods that the alpha service lists: all known ones. Pod
	// returns a pod by its name.
	Pods func() []*v1.Pod
	All  func() []*v1.Pod
	Pod  func(namespace, name string) (*v1.Pod, bool)
	// Container returns what is allocated to a container, and Node what is allocatable.
	Container func(uid types.UID, name string) Resources
	Node      func() Resources
	// Listen makes the socket. By default it is in the file system.
	Listen func(path string) (net.Listener, error)
	Log    *slog.Logger
}

// Server serves the socket.
type Server struct {
	cfg     Config
	limit   *rate.Limiter
	metrics metrics
}

// New returns a Server. It does not listen before Run.
func New(cfg Config) *Server {
	if cfg.Listen == nil {
		cfg.Listen = socket.Listen
	}
	return &Server{cfg: cfg, limit: rate.NewLimiter(callsPerSecond, callsAtOnce), metrics: newMetrics()}
}

// Run serves until ctx ends. A socket that cannot be made is logged and does not stop the agent.
func (s *Server) Run(ctx context.Context) error {
	l, err := s.cfg.Listen(s.cfg.Socket)
	if err != nil {
		s.cfg.Log.Error("failed to serve pod resources API", "err", err)
		<-ctx.Done()
		return nil
	}
	srv := grpc.NewServer(panics.Unary(s.cfg.Log, "resources of pods"),
		grpc.ChainUnaryInterceptor(s.limited), grpc.WaitForHandlers(true))
	podresourcesv1.RegisterPodResourcesListerServer(srv, v1Server{Server: s})
	podresourcesv1alpha1.RegisterPodResourcesListerServer(srv, v1alpha1Server{Server: s})
	defer context.AfterFunc(ctx, srv.Stop)()
	s.cfg.Log.Info("serving pod resources API", "socket", s.cfg.Socket)
	if err := srv.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve pod resources API on %s: %w", s.cfg.Socket, err)
	}
	return nil
}

func (s *Server) limited(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if !s.limit.Allow() {
		return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
	}
	return next(ctx, req)
}
