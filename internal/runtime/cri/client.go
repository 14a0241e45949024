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

// Config says where the runtime is and how long to wait for it.
type Config struct {
	// RuntimeEndpoint is the socket of the runtime service, as
	// unix:///run/containerd/containerd.sock or a plain absolute path.
	RuntimeEndpoint string
	// ImageEndpoint is the socket of the image service; empty means the same.
	ImageEndpoint string
	// RequestTimeout bounds most calls. RunPodSandbox gets twice as long,
	// because networks are slow to set up; calls that come with a time of their
	// own get that time on top; pulling an image may take as long as it takes.
	RequestTimeout time.Duration
	// Observe, if not nil, is told of each call when it ends. It must not block.
	Observe func(method string, took time.Duration, err error)
	// Wrap, if not nil, puts something around the connections.
	Wrap func(grpc.ClientConnInterface) grpc.ClientConnInterface
	// StreamLists has lists sent in parts, if the runtime can (gate
	// CRIListStreaming): they may then be longer than a message.
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
	observe func(method string, took time.Duration, err error) // nil: nobody

	streams  bool
	noStream sync.Map // names of streams that the runtime does not have

	// begun ends when calls that change something are to end, see [Client.Run].
	begun  context.Context
	giveUp context.CancelFunc
}

// endpoint is the socket of a service, as it was configured, and the field of the configuration that has it.
type endpoint struct{ path, setting string }

// endpoints are those of the runtime service and of the image service.
func endpoints(cfg Config) (runtime, image endpoint) {
	runtime = endpoint{cfg.RuntimeEndpoint, "containerRuntimeEndpoint"}
	if cfg.ImageEndpoint == "" {
		return runtime, runtime
	}
	return runtime, endpoint{cfg.ImageEndpoint, "imageServiceEndpoint"}
}

// Dial prepares a client. It does not wait for the runtime, which may well
// start later: the connection is made with the first call, see [Client.Handshake].
// The error is about the configuration.
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

// Over makes a client that speaks over connections that exist already, one to
// each service. They stay the caller's to close; the endpoints of cfg are not
// looked at.
func Over(runtime, image grpc.ClientConnInterface, cfg Config) *Client {
	if cfg.Wrap != nil {
		runtime, image = cfg.Wrap(runtime), cfg.Wrap(image)
	}
	if cfg.Observe != nil {
		runtime, image = watched{runtime, cfg.Observe}, watched{image, cfg.Observe}
	}
	begun, giveUp := context.WithCancel(context.Background())
	runtimeAt, imageAt := endpoints(cfg)
	return &Client{
		begun:         begun,
		giveUp:        giveUp,
		endpoint:      runtimeAt,
		imageEndpoint: imageAt,
		timeout:       cfg.RequestTimeout, observe: cfg.Observe, streams: cfg.StreamLists,
		log:     cfg.Log,
		runtime: runtimeapi.NewRuntimeServiceClient(runtime),
		image:   runtimeapi.NewImageServiceClient(image),
	}
}

// watched tells of each call when it ends.
type watched struct {
	grpc.ClientConnInterface
	observe func(method string, took time.Duration, err error)
}

func (w watched) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	start := time.Now()
	err := w.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
	took := time.Since(start)
	w.observe(path.Base(method), took, err)
	timeline.From(ctx).Call(path.Base(method), start, took, err)
	return err
}

// Close ends the connections that Dial made; calls under way fail.
func (c *Client) Close() {
	for _, conn := range c.conns {
		// The only error is that it was closed before.
		_ = conn.Close()
	}
}

// SocketPath is the file that an endpoint names. Only unix sockets are spoken.
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

// options are how the runtime is spoken to, wherever it is.
func options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(MaxMessage),
			grpc.MaxCallSendMsgSize(MaxMessage),
		),
		// A runtime that was restarted should be found again within a second;
		// trying to connect to a local socket costs next to nothing.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		// The other end is on this machine: no proxy, no service
		// configuration, no going idle, fixed windows instead of measuring the
		// bandwidth with pings, and small buffers.
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithStaticStreamWindowSize(1 << 20),
		grpc.WithStaticConnWindowSize(4 << 20),
		grpc.WithReadBufferSize(8 << 10),
		grpc.WithWriteBufferSize(8 << 10),
	}
}

// call makes one call, bounded by limit unless that is zero, and says in the
// error what was being done.
func call[Req, Resp any](ctx context.Context, limit time.Duration, do func(context.Context, *Req, ...grpc.CallOption) (*Resp, error), req *Req, verb, object string) (*Resp, error) {
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
