package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	authnv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson/internal/host/clock"
)

const (
	idleTimeout       = 90 * time.Second
	readTimeout       = 4 * time.Hour
	writeTimeout      = 4 * time.Hour
	readHeaderTimeout = 30 * time.Second // upstream: 4 hours
	maxHeaderBytes    = 1 << 20
	maxBodyBytes      = 1 << 20 // no endpoint reads more than a few bytes
	maxHTTP2Streams   = 250     // per connection, which the log followers of an API server share
	maxStreams        = 1000    // concurrent exec, attach and port-forward, the limit of runtimes

	healthzRetry = 5 * time.Second
	logInterval  = 10 * time.Second
	// stopTimeout is for pending requests at shutdown. Streams are closed immediately.
	stopTimeout = 2 * time.Second
)

// Config holds the configuration of a Server. A listener with an empty address is disabled, and so are endpoints
// without a source.
type Config struct {
	Listeners
	Access
	Handlers
	Sources
	Gatherers

	Checks []Check // in addition to ping
	// KubeletConfig returns the current configuration, for /configz.
	KubeletConfig func() any
	// About is the content of /statusz and /flagz.
	About About
	// SetVerbosity changes the log level and returns a message.
	SetVerbosity func(level string) (string, error)

	Registerer prometheus.Registerer
	// Trace starts the span of a request, and returns a function that ends it. Nil: requests are not traced.
	Trace func(r *http.Request, route string) (*http.Request, func(status int))
	Log   *slog.Logger
}

// Listeners are the addresses that the server listens on.
type Listeners struct {
	Address         string // host:port of the authenticated port
	ReadOnlyAddress string
	HealthzAddress  string
	LocalSocket     string // path of the local socket
	// OnListen is called with each address that accepts connections. Optional.
	OnListen func(Port, net.Addr)
}

// Access is how requests to Address are authenticated and authorized.
type Access struct {
	TLS           TLS
	Authenticator authenticator
	Authorizer    authorizer
}

// Handlers are the switches of the configuration file and of gates.
type Handlers struct {
	DebuggingHandlers bool
	ProfilingHandler  bool
	DebugFlagsHandler bool
	SystemLogHandler  bool
	SystemLogDir      string // served below /logs/
	SystemLogQuery    bool   // /logs/?query=... reads the journal
	SplitLogStreams   bool   // gate PodLogsQuerySplitStreams
	ExtendWebSockets  bool   // gate ExtendWebSocketsToKubelet
	StreamIdleTimeout time.Duration
}

// Sources answer requests about pods.
type Sources struct {
	Pods        podSource
	RunningPods func(context.Context) ([]*v1.Pod, error)
	Logs        logReader
	Streams     streamer
	Runner      runner
	Checkpoints checkpointer
	Explain     explainer
	// Summary returns /stats/summary.
	Summary func(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error)
}

// Gatherers gather the metrics of the paths.
type Gatherers struct {
	Metrics          prometheus.Gatherer // /metrics
	ContainerMetrics prometheus.Gatherer // /metrics/cadvisor
	ResourceMetrics  prometheus.Gatherer // /metrics/resource
	ProbeMetrics     prometheus.Gatherer // /metrics/probes
}

// Port names one of the listeners.
type Port string

// The listeners.
const (
	Secure   Port = "secure"
	ReadOnly Port = "read-only"
	Healthz  Port = "healthz"
	Local    Port = "local" // the local socket
)

// authenticator authenticates requests.
type authenticator interface {
	// Authenticate returns nil without an error if the request has no credentials and anonymous requests are not
	// admitted.
	Authenticate(r *http.Request) (*authnv1.UserInfo, error)
}

// authorizer authorizes users.
type authorizer interface {
	// Allowed reports whether the user may do verb on a subresource of this node. It returns an error if it cannot
	// decide.
	Allowed(ctx context.Context, user *authnv1.UserInfo, verb, subresource string) (bool, error)
}

// podSource provides the pods of the node.
type podSource interface {
	// Pods returns all pods, including static ones, with their last known status.
	Pods() []*v1.Pod
	// Pod returns one of Pods.
	Pod(namespace, name string) (*v1.Pod, bool)
}

// Server serves up to three ports and the local socket.
type Server struct {
	cfg     Config
	metrics metrics
	slis    *prometheus.Registry
	retry   time.Duration // of the health port
	// logLimit limits log messages about rejected requests.
	logLimit rate.Sometimes
	paths    []string      // listed by /statusz
	streams  chan struct{} // tokens of open streams
	journals chan struct{} // tokens of log queries
	open     sync.WaitGroup
}

// New validates the configuration and registers metrics. It does not listen before Run.
func New(cfg Config) (*Server, error) {
	if cfg.Address != "" && (cfg.Authenticator == nil || cfg.Authorizer == nil || cfg.TLS.GetCertificate == nil) {
		return nil, fmt.Errorf("serve %s: authenticator, authorizer and certificate are required", cfg.Address)
	}
	s := &Server{
		cfg:      cfg,
		slis:     prometheus.NewRegistry(),
		retry:    healthzRetry,
		logLimit: rate.Sometimes{First: 10, Interval: logInterval},
		paths:    listedPaths(&cfg),
		streams:  make(chan struct{}, maxStreams),
		journals: make(chan struct{}, maxJournals),
	}
	var err error
	if s.metrics, err = newMetrics(cfg.Registerer, s.slis); err != nil {
		return nil, err
	}
	return s, nil
}

// Run serves until ctx ends. It returns an error if it cannot listen or a listener fails. Only the health port is
// retried, because nothing depends on it but a probe of this process.
func (s *Server) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if s.cfg.Address != "" {
		g.Go(func() error {
			srv := s.httpServer(ctx, s.secureHandler())
			srv.TLSConfig = s.cfg.TLS.config()
			return s.serve(ctx, Secure, s.cfg.Address, srv)
		})
	}
	if s.cfg.ReadOnlyAddress != "" {
		g.Go(func() error {
			return s.serve(ctx, ReadOnly, s.cfg.ReadOnlyAddress, s.httpServer(ctx, s.readOnlyHandler()))
		})
	}
	if s.cfg.HealthzAddress != "" {
		g.Go(func() error { return s.serveHealthz(ctx) })
	}
	if s.cfg.LocalSocket != "" && s.cfg.Explain != nil {
		g.Go(func() error { return s.serveLocal(ctx) })
	}
	g.Go(func() error { // without any listener, too
		<-ctx.Done()
		return nil
	})
	err := g.Wait()
	s.open.Wait()
	return err
}

// secureHandler is the handler of the authenticated port.
func (s *Server) secureHandler() http.Handler {
	return s.instrumented("readwrite", s.authorised(limitBody(s.routes(s.cfg.DebuggingHandlers))))
}

// readOnlyHandler is the handler of the read-only port, with the endpoints that need no authorization.
func (s *Server) readOnlyHandler() http.Handler {
	return s.instrumented("readonly", limitBody(s.routes(false)))
}

// serveHealthz serves ping on the health port, and retries after a failure.
func (s *Server) serveHealthz(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", s.healthAll([]Check{ping}))
	mux.HandleFunc("/healthz/{check}", s.healthOne([]Check{ping}))
	for {
		err := s.serve(ctx, Healthz, s.cfg.HealthzAddress, s.httpServer(ctx, limitBody(mux)))
		if ctx.Err() != nil {
			return nil
		}
		s.cfg.Log.Error("failed to serve health checks", "err", err, "retryAfter", s.retry)
		if !clock.Sleep(ctx, s.retry) {
			return nil
		}
	}
}

func (s *Server) httpServer(ctx context.Context, h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		IdleTimeout:       idleTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		ReadHeaderTimeout: readHeaderTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxHTTP2Streams},
		BaseContext:       func(net.Listener) context.Context { return ctx },
		// Errors of clients are logged at debug level only.
		ErrorLog: slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
}

// serve listens and serves until ctx ends or the listener fails.
func (s *Server) serve(ctx context.Context, port Port, addr string, srv *http.Server) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("listen on %s (%s port): %w", addr, port, err)
	}
	return s.serveOn(ctx, port, l, srv)
}

// serveOn serves a listener, and closes it.
func (s *Server) serveOn(ctx context.Context, port Port, l net.Listener, srv *http.Server) error {
	s.cfg.Log.Info("started listening", "port", string(port), "address", l.Addr().String())
	if s.cfg.OnListen != nil {
		s.cfg.OnListen(port, l.Addr())
	}
	done := make(chan error, 1)
	go func() {
		if srv.TLSConfig != nil {
			done <- srv.ServeTLS(l, "", "")
		} else {
			done <- srv.Serve(l)
		}
	}()
	select {
	case err := <-done:
		return fmt.Errorf("serve %s (%s port): %w", l.Addr(), port, err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := srv.Shutdown(stop); err != nil {
		s.cfg.Log.Debug("closing connections with pending requests", "port", string(port), "err", err)
		if err := srv.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			s.cfg.Log.Debug("failed to close listener", "port", string(port), "err", err)
		}
	}
	<-done
	return nil
}

// limitBody bounds the size of request bodies.
func limitBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
		next.ServeHTTP(w, r)
	})
}
