package podsapi

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"keelson/internal/pods/panics"
	"keelson/internal/serve/socket"
)

// Config holds the configuration of a Server. All fields are required.
type Config struct {
	Socket string // path
	Pods   func() []*v1.Pod
	Pod    func(types.UID) (*v1.Pod, bool)
	Log    *slog.Logger
}

// Server serves the socket.
type Server struct {
	podsv1alpha1.UnimplementedPodsServer
	cfg     Config
	limit   *rate.Limiter
	dropped prometheus.Counter

	mu      sync.Mutex
	watches map[*watch]struct{}
}

// New returns a Server. It does not listen before Run.
func New(cfg Config) *Server {
	return &Server{
		cfg:     cfg,
		limit:   rate.NewLimiter(callsPerSecond, callsAtOnce),
		watches: map[*watch]struct{}{},
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: metricDropped,
			Help: "Number of pod watch events that were dropped because a watcher was too slow",
		}),
	}
}

// Describe implements prometheus.Collector.
func (s *Server) Describe(ch chan<- *prometheus.Desc) { s.dropped.Describe(ch) }

// Collect implements prometheus.Collector.
func (s *Server) Collect(ch chan<- prometheus.Metric) { s.dropped.Collect(ch) }

// Changed notes that a pod was added, updated or deleted. It never blocks.
func (s *Server) Changed(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches {
		w.add(uid)
	}
}

// Run serves until ctx ends. A socket that cannot be made is logged and does not stop the agent.
func (s *Server) Run(ctx context.Context) error {
	l, err := socket.Listen(s.cfg.Socket)
	if err != nil {
		s.cfg.Log.Error("failed to serve pods API", "err", err)
		<-ctx.Done()
		return nil
	}
	srv := grpc.NewServer(panics.Unary(s.cfg.Log, "pods API"), panics.Stream(s.cfg.Log, "pods API"),
		grpc.ChainUnaryInterceptor(s.unary), grpc.ChainStreamInterceptor(s.stream), grpc.WaitForHandlers(true))
	podsv1alpha1.RegisterPodsServer(srv, s)
	// Stop ends watches, which otherwise last until their clients cancel them.
	defer context.AfterFunc(ctx, srv.Stop)()
	s.cfg.Log.Info("serving pods API", "socket", s.cfg.Socket)
	if err := srv.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve pods API on %s: %w", s.cfg.Socket, err)
	}
	return nil
}

func (s *Server) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if !s.limit.Allow() {
		return nil, errTooMany
	}
	return next(ctx, req)
}

func (s *Server) stream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if !s.limit.Allow() {
		return errTooMany
	}
	return next(srv, stream)
}

var errTooMany = status.Error(codes.ResourceExhausted, "rejected by rate limit")

// ListPods returns all pods of the node.
func (s *Server) ListPods(context.Context, *podsv1alpha1.ListPodsRequest) (*podsv1alpha1.ListPodsResponse, error) {
	out := &podsv1alpha1.ListPodsResponse{}
	for _, p := range s.cfg.Pods() {
		text, err := p.Marshal()
		if err != nil {
			return nil, status.Errorf(codes.Internal, "encode pod %s/%s: %v", p.Namespace, p.Name, err)
		}
		out.Pods = append(out.Pods, text)
	}
	return out, nil
}

// GetPod returns the pod with the given UID.
func (s *Server) GetPod(_ context.Context, r *podsv1alpha1.GetPodRequest) (*podsv1alpha1.GetPodResponse, error) {
	if r.PodUID == "" {
		return nil, status.Error(codes.InvalidArgument, "pod UID cannot be empty")
	}
	p, ok := s.cfg.Pod(types.UID(r.PodUID))
	if !ok {
		return nil, status.Errorf(codes.NotFound, "pod with UID %q not found", r.PodUID)
	}
	text, err := p.Marshal()
	if err != nil {
		return nil, status.Errorf(codes.Internal, "encode pod %s/%s: %v", p.Namespace, p.Name, err)
	}
	return &podsv1alpha1.GetPodResponse{Pod: text}, nil
}
