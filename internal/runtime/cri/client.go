package cri

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/timeline"
)

// Config holds the endpoints of the runtime and the timeouts of calls.
type Config struct {
	// RuntimeEndpoint is the socket of the runtime service: unix:///run/containerd/containerd.sock
	// or an absolute path.
	RuntimeEndpoint string
	// ImageEndpoint is the socket of the image service. Empty means RuntimeEndpoint.
	ImageEndpoint string
	// RequestTimeout bounds most calls. RunPodSandbox gets twice as long, because setting up
	// networks is slow. Calls with a timeout of their own get the sum of both. PullImage is not
	// bounded.
	RequestTimeout time.Duration
	// Observe, if not nil, is called when a call ends. It must not block.
	Observe func(method string, took time.Duration, err error)
	// Wrap, if not nil, wraps the connections.
	Wrap func(grpc.ClientConnInterface) grpc.ClientConnInterface
	// StreamLists uses streaming list calls if the runtime has them (gate CRIListStreaming). Such
	// lists may exceed the size of a message.
	StreamLists bool
	Log         *slog.Logger
}

// Client makes calls to one container runtime. It is safe for concurrent use.
type Client struct {
	endpoint, imageEndpoint endpoint

	timeout time.Duration
	log     *slog.Logger
	conns   []*grpc.ClientConn
	runtime runtimeapi.RuntimeServiceClient
	image   runtimeapi.ImageServiceClient
	observe func(method string, took time.Duration, err error) // may be nil

	streams  bool
	noStream sync.Map // streaming calls that the runtime does not implement

	// begun ends when calls that change state are to be cancelled, see [Client.Run].
	begun  context.Context
	giveUp context.CancelFunc
}

// endpoint is the configured socket of a service and the name of the configuration field.
type endpoint struct{ path, setting string }

// endpoints returns the endpoints of the runtime service and the image service.
func endpoints(cfg Config) (runtime, image endpoint) {
	runtime = endpoint{cfg.RuntimeEndpoint, "containerRuntimeEndpoint"}
	if cfg.ImageEndpoint == "" {
		return runtime, runtime
	}
	return runtime, endpoint{cfg.ImageEndpoint, "imageServiceEndpoint"}
}

// Dial prepares a client. It does not wait for the runtime, which may start later: the connection
// is made with the first call, see [Client.Handshake]. It fails only if the configuration is
// invalid.
func Dial(cfg Config) (*Client, error) {
	runtimePath, err := SocketPath(cfg.RuntimeEndpoint)
	if err != nil {
		return nil, fmt.Errorf("read container runtime endpoint: %w", err)
	}
	imagePath := runtimePath
	if cfg.ImageEndpoint != "" {
		if imagePath, err = SocketPath(cfg.ImageEndpoint); err != nil {
			return nil, fmt.Errorf("read image service endpoint: %w", err)
		}
	}
	if cfg.RequestTimeout <= 0 {
		return nil, fmt.Errorf("read runtime request timeout: %v is not above zero", cfg.RequestTimeout)
	}
	conn, err := connect(runtimePath)
	if err != nil {
		return nil, fmt.Errorf("prepare connection to %s: %w", runtimePath, err)
	}
	conns := []*grpc.ClientConn{conn}
	if imagePath != runtimePath {
		if conn, err = connect(imagePath); err != nil {
			_ = conns[0].Close()
			return nil, fmt.Errorf("prepare connection to %s: %w", imagePath, err)
		}
		conns = append(conns, conn)
	}
	c := Over(conns[0], conn, cfg)
	c.conns = conns
	return c, nil
}

// Over makes a client for existing connections, one to each service. The caller closes them. The
// endpoints of cfg are ignored.
func Over(runtime, image grpc.ClientConnInterface, cfg Config) *Client {
	if cfg.Wrap != nil {
		runtime, image = cfg.Wrap(runtime), cfg.Wrap(image)
	}
	if cfg.Observe != nil {
		runtime, image = observedConn{runtime, cfg.Observe}, observedConn{image, cfg.Observe}
	}
	begun, giveUp := context.WithCancel(context.Background())
	runtimeAt, imageAt := endpoints(cfg)
	return &Client{
		begun:         begun,
		giveUp:        giveUp,
		endpoint:      runtimeAt,
		imageEndpoint: imageAt,
		timeout:       cfg.RequestTimeout,
		observe:       cfg.Observe,
		streams:       cfg.StreamLists,
		log:           cfg.Log,
		runtime:       runtimeapi.NewRuntimeServiceClient(runtime),
		image:         runtimeapi.NewImageServiceClient(image),
	}
}

// observedConn observes the calls of a connection.
type observedConn struct {
	grpc.ClientConnInterface
	observe func(method string, took time.Duration, err error)
}

func (w observedConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	start := time.Now()
	err := w.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
	took := time.Since(start)
	w.observe(path.Base(method), took, err)
	timeline.From(ctx).Call(path.Base(method), start, took, err)
	return err
}

// Close closes the connections that Dial made. Calls under way fail.
func (c *Client) Close() {
	for _, conn := range c.conns {
		// The only error is that the connection is closed already.
		_ = conn.Close()
	}
}

// SocketPath returns the path of the socket that an endpoint specifies. Only unix sockets are
// supported.
func SocketPath(endpoint string) (string, error) {
	if endpoint == "" {
		return "", fmt.Errorf("endpoint is empty, want unix:///path/to/socket")
	}
	p := endpoint
	if scheme, _, ok := strings.Cut(endpoint, ":"); ok && !strings.Contains(scheme, "/") {
		u, err := url.Parse(endpoint)
		if err != nil {
			return "", fmt.Errorf("endpoint %q: %w", endpoint, err)
		}
		if u.Scheme != "unix" || u.Host != "" || u.Opaque != "" {
			return "", fmt.Errorf("endpoint %q is not of the form unix:///path/to/socket", endpoint)
		}
		p = u.Path
	}
	if !path.IsAbs(p) {
		return "", fmt.Errorf("endpoint %q does not name an absolute path", endpoint)
	}
	return path.Clean(p), nil
}

func connect(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, options()...)
}

// options returns the gRPC options for connections to a runtime.
func options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(MaxMessage),
			grpc.MaxCallSendMsgSize(MaxMessage),
		),
		// A restarted runtime should be found again within a second. Connecting to a local socket
		// costs next to nothing.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay:  100 * time.Millisecond,
				Multiplier: 1.6,
				Jitter:     0.2,
				MaxDelay:   time.Second,
			},
			MinConnectTimeout: 5 * time.Second,
		}),
		// The server is on this machine: no proxy, no service configuration, no idle timeout, small
		// buffers, and fixed windows instead of bandwidth estimation with pings.
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithStaticStreamWindowSize(1 << 20),
		grpc.WithStaticConnWindowSize(4 << 20),
		grpc.WithReadBufferSize(8 << 10),
		grpc.WithWriteBufferSize(8 << 10),
	}
}

// call makes one call, bounded by limit unless that is zero. The error names the operation and the
// object.
func call[Req, Resp any](
	ctx context.Context, limit time.Duration,
	do func(context.Context, *Req, ...grpc.CallOption) (*Resp, error), req *Req, verb, object string,
) (*Resp, error) {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	resp, err := do(ctx, req)
	if err != nil {
		return nil, failed(verb, object, outOfTime(err))
	}
	return resp, nil
}
