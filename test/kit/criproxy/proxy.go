package criproxy

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/kit/fakecri"
)

// maxMessage is the gRPC message size that containerd and kubelets agree on.
const maxMessage = 16 << 20

// Options say where calls go and what is done with them. Hooks may be nil.
type Options struct {
	// Target is the runtime's socket. Required.
	Target string
	// OnExec is called first for every ExecSync; ok=false forwards it.
	OnExec func(fakecri.Exec) (res fakecri.ExecResult, ok bool)
	// OnCreate may replace a container's command before its creation is forwarded.
	OnCreate func(sandbox *cri.PodSandboxConfig, container *cri.ContainerConfig)
	// OnCall is called after every unary call with the request as it came and, unless the call
	// failed, the response. It may change neither.
	OnCall func(c fakecri.Call, request, response any)
}

// Proxy forwards CRI calls to a runtime.
type Proxy struct {
	opts Options
	conn *grpc.ClientConn

	mu         sync.Mutex
	server     *grpc.Server // nil when it does not listen
	serial     int          // of calls
	open       map[string]int
	sandboxes  map[string]*cri.PodSandboxConfig
	containers map[string]container
}

// container is one that was created through the proxy.
type container struct {
	sandbox string
	config  *cri.ContainerConfig
}

// New builds a proxy that does not listen yet.
func New(opts Options) (*Proxy, error) {
	conn, err := grpc.NewClient("unix://"+opts.Target,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)))
	if err != nil {
		return nil, fmt.Errorf("connect to the runtime: %w", err)
	}
	return &Proxy{
		opts:       opts,
		conn:       conn,
		open:       map[string]int{},
		sandboxes:  map[string]*cri.PodSandboxConfig{},
		containers: map[string]container{},
	}, nil
}

// Listen serves on a unix socket in the background and returns when the socket accepts
// connections. A socket left over from earlier is replaced.
func (p *Proxy) Listen(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove old socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("listen for CRI: %w", err)
	}
	s := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.UnaryInterceptor(p.unary), grpc.StreamInterceptor(p.stream),
	)
	// The services only decode the requests; the interceptors handle them.
	cri.RegisterRuntimeServiceServer(s, cri.UnimplementedRuntimeServiceServer{})
	cri.RegisterImageServiceServer(s, cri.UnimplementedImageServiceServer{})
	p.mu.Lock()
	p.server = s
	p.mu.Unlock()
	go s.Serve(l) // it ends with Disconnect, the only way it can end
	return nil
}

// Disconnect drops every connection and stops listening, until the next Listen.
func (p *Proxy) Disconnect() {
	p.mu.Lock()
	s := p.server
	p.server = nil
	p.mu.Unlock()
	if s != nil {
		s.Stop()
	}
}

// Close disconnects from both sides.
func (p *Proxy) Close() error {
	p.Disconnect()
	return p.conn.Close()
}

// Open is the number of calls for a pod, by its namespace/name, that have not ended.
func (p *Proxy) Open(pod string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open[pod]
}

// Sandbox returns the configuration of a sandbox; nil if none with this id was created here.
func (p *Proxy) Sandbox(id string) *cri.PodSandboxConfig {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sandboxes[id]
}

// Container returns the configuration of a container and the id of its sandbox; nil if none with
// this id was created here.
func (p *Proxy) Container(id string) (config *cri.ContainerConfig, sandbox string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.containers[id]
	return c.config, c.sandbox
}
