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

	"keelson/internal/node/panics"
	"keelson/internal/node/socket"
)

// Device is one of a resource.
type Device struct {
	Resource, ID string
	Nodes        []int // the NUMA nodes it is at; empty: not known
}

// Memory is memory of one type, huge pages of a size among them, at NUMA nodes.
type Memory struct {
	Type  string // as a resource is called: memory, hugepages-2Mi
	Bytes uint64
	Nodes []int
}

// Claim is what a container has of a claim that drivers have prepared.
type Claim struct {
	Namespace, Name string
	Devices         []ClaimDevice
}

// ClaimDevice is a device of a claim.
type ClaimDevice struct {
	Driver, Pool, Name string
	Share              string   // empty: it is not shared
	CDI                []string // its names to the runtime
}

// Given is what somebody has for himself.
type Given struct {
	Devices []Device
	CPUs    []int
	Memory  []Memory
	Claims  []Claim
}

// Config holds what a Server is built from. Fields are required unless they say
// otherwise.
type Config struct {
	Socket string // path
	// Pods are those that are told of, and All those that the older service tells of:
	// whatever is known. Pod finds one of Pods by its name.
	Pods func() []*v1.Pod
	All  func() []*v1.Pod
	Pod  func(namespace, name string) (*v1.Pod, bool)
	// Container tells what a container has, and Node what containers can have at all.
	Container func(uid types.UID, name string) Given
	Node      func() Given
	// Listen makes the socket; nil: in the file system.
	Listen func(path string) (net.Listener, error)
	Log    *slog.Logger
}

// Server answers on the socket.
type Server struct {
	cfg     Config
	limit   *rate.Limiter
	metrics metrics
}

// New builds a Server; nothing listens before Run.
func New(cfg Config) *Server {
	if cfg.Listen == nil {
		cfg.Listen = socket.Listen
	}
	return &Server{cfg: cfg, limit: rate.NewLimiter(callsPerSecond, callsAtOnce), metrics: newMetrics()}
}

// Run serves until ctx ends. That the socket cannot be had is said, and stops nothing
// else on the node.
func (s *Server) Run(ctx context.Context) error {
	l, err := s.cfg.Listen(s.cfg.Socket)
	if err != nil {
		s.cfg.Log.Error("cannot tell what containers have for themselves", "err", err)
		<-ctx.Done()
		return nil
	}
	srv := grpc.NewServer(panics.Unary(s.cfg.Log, "resources of pods"), grpc.ChainUnaryInterceptor(s.limited), grpc.WaitForHandlers(true))
	podresourcesv1.RegisterPodResourcesListerServer(srv, stable{Server: s})
	podresourcesv1alpha1.RegisterPodResourcesListerServer(srv, alpha{Server: s})
	defer context.AfterFunc(ctx, srv.Stop)()
	s.cfg.Log.Info("telling what containers have for themselves", "socket", s.cfg.Socket)
	if err := srv.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve resources of pods on %s: %w", s.cfg.Socket, err)
	}
	return nil
}

func (s *Server) limited(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if !s.limit.Allow() {
		return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
	}
	return next(ctx, req)
}
