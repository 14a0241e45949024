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
)

const (
	idleTimeout       = 90 * time.Second
	readTimeout       = 4 * time.Hour
	writeTimeout      = 4 * time.Hour
	readHeaderTimeout = 30 * time.Second // upstream waits 4 hours for a header
	maxHeaderBytes    = 1 << 20
	maxBodyBytes      = 1 << 20 // no endpoint reads more than a few bytes
	maxHTTP2Streams   = 250     // for each connection; log followers of one API server share one
	maxStreams        = 1000    // exec, attach and port-forward at a time, as many as a runtime holds

	healthzRetry  = 5 * time.Second
	complainEvery = 10 * time.Second
	// stopTimeout is for requests that are being answered when the server ends;
	// streams end at once.
	stopTimeout = 2 * time.Second
)

// Config holds what a Server is built from. An empty address switches that
// listener off; a nil source leaves its endpoints out.
type Config struct {
	Address         string // host:port of the authenticated port
	ReadOnlyAddress string
	HealthzAddress  string

	TLS           TLS           // for Address
	Authenticator authenticator // for Address
	Authorizer    authorizer    // for Address

	// Switches of the configuration file.
	DebuggingHandlers bool
	ProfilingHandler  bool
	DebugFlagsHandler bool
	SystemLogHandler  bool
	SystemLogDir      string // served below /logs/
	SystemLogQuery    bool   // /logs/?query=... asks the journal
	SplitLogStreams   bool   // gate PodLogsQuerySplitStreams
	ExtendWebSockets  bool   // gate ExtendWebSocketsToKubelet
	StreamIdleTimeout time.Duration

	Checks      []Check // beside ping, which is always there
	Pods        podSource
	RunningPods func(context.Context) ([]*v1.Pod, error)
	Logs        logReader
	Streams     streamer
	Runner      runner
	Checkpoints checkpointer
	Explain     explainer
	// LocalSocket is where the administrator of the machine asks about its pods;
	// empty: nowhere.
	LocalSocket string
	// Summary makes the answer of /stats/summary.
	Summary func(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error)
	// KubeletConfig is the configuration in force, for /configz.
	KubeletConfig func() any
	// About is what /statusz and /flagz tell.
	About About
	// SetVerbosity changes the log level and says so in a sentence.
	SetVerbosity func(level string) (string, error)

	Metrics          prometheus.Gatherer // /metrics
	ContainerMetrics prometheus.Gatherer // /metrics/cadvisor
	ResourceMetrics  prometheus.Gatherer // /metrics/resource
	ProbeMetrics     prometheus.Gatherer // /metrics/probes
	Registerer       prometheus.Registerer

	// Trace begins the span of a request, and returns what ends it; nil: requests
	// are not traced.
	Trace func(r *http.Request, route string) (*http.Request, func(status int))

	// OnListen, if set, is told of each address once it accepts connections.
	OnListen func(Port, net.Addr)
	Log      *slog.Logger
}

// Port names one of the listeners.
type Port string

// The listeners.
const (
	Secure   Port = "secure"
	ReadOnly Port = "read-only"
	Healthz  Port = "healthz"
	Local    Port = "local" // the socket
)

// authenticator tells who sends a request.
type authenticator interface {
	// Authenticate returns nil without an error when the request carries no
	// credentials and none are needed to be refused.
	Authenticate(r *http.Request) (*authnv1.UserInfo, error)
}

// authorizer tells what a user may do with this node.
type authorizer interface {
	// Allowed reports whether the user may do verb on a subresource of this
	// node. An error means that it could not be found out.
	Allowed(ctx context.Context, user *authnv1.UserInfo, verb, subresource string) (bool, error)
}

// podSource knows the pods of the node.
type podSource interface {
	// Pods are all pods, static ones included, with their last known status.
	Pods() []*v1.Pod
	// Pod is one of them.
	Pod(namespace, name string) (*v1.Pod, bool)
}

// Server answers on up to three ports.
type Server struct {
	cfg     Config
	metrics metrics
	slis    *prometheus.Registry
	retry   time.Duration // of the health port
	// complain keeps strangers from filling the log with their refusals.
	complain rate.Sometimes
	paths    []string      // as /statusz names them
	streams  chan struct{} // one token for each open stream
	journals chan struct{} // one for each log query
	open     sync.WaitGroup
}

// New checks the configuration and registers metrics; nothing listens yet.
func New(cfg Config) (*Server, error) {
	if cfg.Address != "" && (cfg.Authenticator == nil || cfg.Authorizer == nil || cfg.TLS.GetCertificate == nil) {
		return nil, fmt.Errorf("serve %s: authenticator, authorizer and certificate are required", cfg.Address)
	}
	s := &Server{cfg: cfg, slis: prometheus.NewRegistry(), retry: healthzRetry, complain: rate.Sometimes{First: 10, Interval: complainEvery}, paths: listedPaths(&cfg), streams: make(chan struct{}, maxStreams), journals: make(chan struct{}, maxJournals)}
	var err error
	if s.metrics, err = newMetrics(cfg.Registerer, s.slis); err != nil {
		return nil, err
	}
	return s, nil
}

// Run listens and answers until ctx ends. It returns an error when an address
// cannot be listened on or a listener breaks; the health port alone is tried
// again, since nothing but a probe of this process depends on it.
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
		g.Go(func() error { return s.keepHealthz(ctx) })
	}
	if s.cfg.LocalSocket != "" && s.cfg.Explain != nil {
		g.Go(func() error { return s.keepLocal(ctx) })
	}
	g.Go(func() error { // also with every listener off
		<-ctx.Done()
		return nil
	})
	err := g.Wait()
	s.open.Wait()
	return err
}

// secureHandler is the chain a request of the authenticated port passes.
func (s *Server) secureHandler() http.Handler {
	return s.measured("readwrite", s.authorised(limited(s.routes(s.cfg.DebuggingHandlers))))
}

// readOnlyHandler serves only what needs no rights, to anybody.
func (s *Server) readOnlyHandler() http.Handler {
	return s.measured("readonly", limited(s.routes(false)))
}

// keepHealthz answers ping on the health port, and comes back after a failure.
func (s *Server) keepHealthz(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", s.healthAll([]Check{ping}))
	mux.HandleFunc("/healthz/{check}", s.healthOne([]Check{ping}))
	for {
		err := s.serve(ctx, Healthz, s.cfg.HealthzAddress, s.httpServer(ctx, limited(mux)))
		if ctx.Err() != nil {
			return nil
		}
		s.cfg.Log.Error("cannot serve health checks, trying again", "err", err, "after", s.retry)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(s.retry):
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
		// Callers that hang up or speak nonsense are their own business.
		ErrorLog: slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
}

// serve listens and answers until ctx ends or the listener breaks.
func (s *Server) serve(ctx context.Context, port Port, addr string, srv *http.Server) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("listen on %s (%s port): %w", addr, port, err)
	}
	return s.serveOn(ctx, port, l, srv)
}

// serveOn answers on a listener, and closes it.
func (s *Server) serveOn(ctx context.Context, port Port, l net.Listener, srv *http.Server) error {
	s.cfg.Log.Info("listening", "port", string(port), "address", l.Addr().String())
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
		s.cfg.Log.Debug("closing connections with requests on them", "port", string(port), "err", err)
		if err := srv.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			s.cfg.Log.Debug("cannot close listener", "port", string(port), "err", err)
		}
	}
	<-done
	return nil
}

// limited bounds what a body can make the server read.
func limited(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
		next.ServeHTTP(w, r)
	})
}
