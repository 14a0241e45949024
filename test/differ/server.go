package differ

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The ports of probes and hooks in generated pods. They are replaced by the ports of the stage's
// server when a pod is created, so that several stages can run on a machine.
const (
	httpPort = 8001
	grpcPort = 8002
)

// server answers HTTP and gRPC probes and HTTP hooks at the addresses of all pods, which are
// on the loopback device. TCP probes connect to its HTTP port.
type server struct {
	sides [2]*side
	ports map[int32]int32 // by the generated ports
	http  *http.Server
	grpc  *grpc.Server
	health.UnimplementedHealthServer
}

// serve begins to answer.
func serve(ctx context.Context, sides [2]*side) (*server, error) {
	s := &server{sides: sides, ports: map[int32]int32{}, grpc: grpc.NewServer()}
	s.http = &http.Server{Handler: http.HandlerFunc(s.answer), ReadHeaderTimeout: time.Minute}
	health.RegisterHealthServer(s.grpc, s)
	config := net.ListenConfig{Control: loopbackOnly}
	for port, run := range map[int32]func(net.Listener) error{httpPort: s.http.Serve, grpcPort: s.grpc.Serve} {
		l, err := config.Listen(ctx, "tcp4", "0.0.0.0:0")
		if err != nil {
			return nil, errors.Join(fmt.Errorf("serve probes: %w", err), s.close())
		}
		s.ports[port] = int32(l.Addr().(*net.TCPAddr).Port)
		go func() {
			if err := run(l); err != nil && !errors.Is(err, http.ErrServerClosed) &&
				!errors.Is(err, grpc.ErrServerStopped) {
				panic(fmt.Errorf("serve probes: %w", err)) // comparisons would be meaningless from here on
			}
		}()
	}
	return s, nil
}

// loopbackOnly makes a socket accept connections on the loopback device only.
func loopbackOnly(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), "lo") }); e != nil {
		return e
	}
	return err
}

func (s *server) close() error {
	s.grpc.Stop()
	return s.http.Close()
}

// answer answers a probe, whose path is /container/kind, or a hook: /hook/code.
func (s *server) answer(w http.ResponseWriter, r *http.Request) {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		http.Error(w, "no local address", http.StatusInternalServerError)
		return
	}
	path := strings.TrimPrefix(r.URL.Path, "/")
	switch {
	case path == "hook/0":
	case path == "hook/1":
		http.Error(w, "not hooked", http.StatusInternalServerError)
	case r.URL.Query().Has("own") && (r.Header.Get("X-Own") != "drawn" || r.Host != "own.example"):
		http.Error(w, "not the headers of the probe", http.StatusBadRequest)
	case s.fails(local, path):
		http.Error(w, "not well", http.StatusServiceUnavailable)
	}
}

// Check answers a gRPC probe, whose service is called container/kind.
func (s *server) Check(ctx context.Context, r *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil, grpcstatus.Error(codes.Internal, "no address")
	}
	if s.fails(p.LocalAddr, r.GetService()) {
		return &health.HealthCheckResponse{Status: health.HealthCheckResponse_NOT_SERVING}, nil
	}
	return &health.HealthCheckResponse{Status: health.HealthCheckResponse_SERVING}, nil
}

// fails reports whether a probe of the pod at an address fails this time. An address without a
// pod does not fail.
func (s *server) fails(at net.Addr, probe string) bool {
	tcp, ok := at.(*net.TCPAddr)
	if !ok {
		return false
	}
	for _, side := range s.sides {
		_, pod, _ := strings.Cut(side.fake.PodAt(tcp.AddrPort().Addr().Unmap()), "/")
		if l := side.lives.find(pod, side.node); l != nil {
			return side.record.track(l.Name).fails(probe)
		}
	}
	return false
}

// bind sets the ports of a pod's probes and hooks to those of the server.
func (s *server) bind(p *corev1.Pod) {
	port := func(n *int32) {
		if real, ok := s.ports[*n]; ok {
			*n = real
		}
	}
	number := func(n *intstr.IntOrString) {
		if n.Type == intstr.Int {
			port(&n.IntVal)
		}
	}
	web := func(a *corev1.HTTPGetAction) {
		if a != nil {
			number(&a.Port)
		}
	}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for _, c := range list {
			for i := range c.Ports {
				port(&c.Ports[i].ContainerPort)
			}
			for _, probe := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe, c.StartupProbe} {
				if probe == nil {
					continue
				}
				web(probe.HTTPGet)
				if probe.TCPSocket != nil {
					number(&probe.TCPSocket.Port)
				}
				if probe.GRPC != nil {
					port(&probe.GRPC.Port)
				}
			}
			if c.Lifecycle == nil {
				continue
			}
			for _, hook := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
				if hook != nil {
					web(hook.HTTPGet)
				}
			}
		}
	}
}
