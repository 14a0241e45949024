package fakecri

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/kit/faults"
)

// maxMessage is the gRPC message size that containerd and kubelets agree on.
const maxMessage = 16 << 20

// Options say what kind of runtime this is. The zero value is a useful one:
// cgroupfs, events on, every image can be pulled.
type Options struct {
	// Seed makes the ids of two runtimes differ. The same seed and the same
	// calls give the same ids.
	Seed string
	// PodCIDR is where sandbox addresses come from; 10.88.0.0/16 if empty. A
	// range inside 127.0.0.0/8 gives addresses on which a test can listen.
	PodCIDR string
	// Systemd reports the systemd cgroup driver instead of cgroupfs.
	Systemd bool
	// Old makes the runtime one of the age of containerd 1.6: without events,
	// RuntimeConfig, resources of sandboxes, list streams and image ids of containers, and with
	// NotFound when something unknown is to be stopped.
	Old bool
	// NoEvents answers GetContainerEvents with Unimplemented; NoRuntimeConfig likewise for RuntimeConfig,
	// NoListStreams for the Stream… lists.
	NoEvents, NoRuntimeConfig, NoListStreams bool
	// Handlers are the names of the runtime handlers besides the default one.
	Handlers []string
	// Plain are the names of further handlers, which have no features.
	Plain []string
	// UsersOnHostNetwork says that pods may have a user namespace on the host's network.
	UsersOnHostNetwork bool
	// ImageRoot is the mount point reported for the image file system; the
	// temporary directory if empty.
	ImageRoot string
	// OnExec, when set, is called first for every exec; with ok=false the small shell
	// runs the command.
	OnExec func(Exec) (res ExecResult, ok bool)
	// OnCreate, when set, may replace a container's command before it starts.
	OnCreate func(sandbox *cri.PodSandboxConfig, container *cri.ContainerConfig)
	// OnMoment, when set, is called for every start and every end of a container. It must
	// not call the runtime.
	OnMoment func(Moment)
	// OnCall, when set, is called for every unary call that has ended, with its request and,
	// unless it failed, its response, neither of which it may change.
	OnCall func(c Call, request, response any)
	// MaxCalls bounds the call log; 200,000 if zero.
	MaxCalls int
}

// Runtime is the fake runtime. It implements both CRI services.
type Runtime struct {
	cri.UnimplementedRuntimeServiceServer
	cri.UnimplementedImageServiceServer

	opts   Options
	prefix netip.Prefix
	faults faults.Set[Call, Fault]
	calls  callLog
	stream streaming

	mu         sync.Mutex
	servers    map[*grpc.Server]bool
	serial     int   // of ids
	lastTime   int64 // of the last timestamp handed out
	sandboxes  map[string]*sandbox
	names      map[string]string // sandbox name → id
	containers map[string]*container
	addresses  map[netip.Addr]bool
	nextAddr   netip.Addr
	images     map[string]*image // by id
	pulls      []Pull
	private    map[string]Credentials // by normal image name
	usage      map[string]Usage       // by container id
	conditions []*cri.RuntimeCondition
	events     eventQueue
	podCIDR    string // last UpdateRuntimeConfig
}

// New builds a runtime that is ready and has no pods.
func New(opts Options) *Runtime {
	if opts.PodCIDR == "" {
		opts.PodCIDR = "10.88.0.0/16"
	}
	if opts.MaxCalls == 0 {
		opts.MaxCalls = 200_000
	}
	if opts.ImageRoot == "" {
		opts.ImageRoot = os.TempDir()
	}
	if opts.Old {
		opts.NoEvents, opts.NoRuntimeConfig, opts.NoListStreams = true, true, true
	}
	prefix := netip.MustParsePrefix(opts.PodCIDR)
	r := &Runtime{
		opts:       opts,
		prefix:     prefix,
		calls:      callLog{limit: opts.MaxCalls, methods: map[string]*MethodUsage{}},
		servers:    map[*grpc.Server]bool{},
		sandboxes:  map[string]*sandbox{},
		names:      map[string]string{},
		containers: map[string]*container{},
		addresses:  map[netip.Addr]bool{},
		nextAddr:   prefix.Masked().Addr().Next().Next(), // .1 is the bridge
		images:     map[string]*image{},
		private:    map[string]Credentials{},
		usage:      map[string]Usage{},
		conditions: []*cri.RuntimeCondition{
			{Type: cri.RuntimeReady, Status: true},
			{Type: cri.NetworkReady, Status: true},
		},
	}
	r.AddImage(Image{Name: "registry.k8s.io/pause:3.10.1", Size: 320_000, UID: 65535, Pinned: true})
	return r
}

// Serve answers CRI calls on l until Disconnect or Close. It may be called
// again afterwards, and for several listeners at once.
func (r *Runtime) Serve(l net.Listener) error { return r.serve(r.newServer(), l) }

// newServer makes a server, which Disconnect stops from now on.
func (r *Runtime) newServer() *grpc.Server {
	s := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.UnaryInterceptor(r.interceptUnary), grpc.StreamInterceptor(r.interceptStream),
	)
	cri.RegisterRuntimeServiceServer(s, r)
	cri.RegisterImageServiceServer(s, r)
	r.mu.Lock()
	r.servers[s] = true
	r.mu.Unlock()
	return s
}

func (r *Runtime) serve(s *grpc.Server, l net.Listener) error {
	defer func() {
		r.mu.Lock()
		delete(r.servers, s)
		r.mu.Unlock()
	}()
	if err := s.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve CRI on %s: %w", l.Addr(), err)
	}
	return nil
}

// Listen serves on a unix socket in the background and returns when the
// socket accepts connections. A socket left over from earlier is replaced.
func (r *Runtime) Listen(path string) error {
	path = strings.TrimPrefix(path, "unix://")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove old socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("listen for CRI: %w", err)
	}
	s := r.newServer()
	go r.serve(s, l) // it ends with Disconnect, the only way it can end
	return nil
}

// Dial serves in memory and returns a connection to it. Nothing leaves the
// process, so it works in a testing/synctest bubble.
func (r *Runtime) Dial() (*grpc.ClientConn, error) {
	l := bufconn.Listen(1 << 20)
	s := r.newServer()
	go r.serve(s, l) // it ends with Disconnect, the only way it can end
	conn, err := grpc.NewClient("passthrough:///fakecri",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		return nil, fmt.Errorf("connect to the runtime in memory: %w", err)
	}
	return conn, nil
}

// Disconnect drops every connection and stops listening, as a killed runtime
// does; pods keep running and are there at the next Serve.
func (r *Runtime) Disconnect() {
	r.mu.Lock()
	var servers []*grpc.Server
	for s := range r.servers {
		servers = append(servers, s)
	}
	r.mu.Unlock()
	for _, s := range servers {
		s.Stop()
	}
}

// die calls last and disconnects the runtime. Clients get no event of what last does.
func (r *Runtime) die(last func()) error {
	away := status.Error(codes.Unavailable, "the runtime has died")
	r.BreakEvents(away)
	last()
	r.LoseEvents()
	r.Disconnect()
	return away
}

// Close disconnects, ends every container and releases what the runtime holds
// open. Files it wrote stay.
func (r *Runtime) Close() {
	r.faults.ReleaseAll()
	r.Disconnect()
	r.stream.close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.containers {
		if c.state == cri.ContainerState_CONTAINER_RUNNING {
			r.exitLocked(c, 137, "", "")
		}
	}
}

// newIDLocked returns a new 64-digit id, as containerd's look.
func (r *Runtime) newIDLocked(kind string) string {
	r.serial++
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", r.opts.Seed, kind, r.serial))
	return hex.EncodeToString(sum[:])
}

// nowLocked returns the time in nanoseconds. No two calls get the same time, so that
// things can be ordered by time even in virtual time.
func (r *Runtime) nowLocked() int64 {
	r.lastTime = max(r.lastTime+1, time.Now().UnixNano())
	return r.lastTime
}

// takeAddressLocked hands out the next free address of the pod range.
func (r *Runtime) takeAddressLocked() (netip.Addr, error) {
	start := r.nextAddr
	for a := start; ; {
		next := a.Next()
		if !r.prefix.Contains(next) || !next.IsValid() {
			next = r.prefix.Masked().Addr().Next().Next()
		}
		if !r.addresses[a] {
			r.addresses[a] = true
			r.nextAddr = next
			return a, nil
		}
		if a = next; a == start {
			return netip.Addr{}, status.Errorf(codes.Unknown,
				"failed to setup network for sandbox: no IP addresses available in range set: %s", r.prefix)
		}
	}
}

// errNotFound and errState make errors with containerd's texts. Only the first has a
// code of its own.
func errNotFound(format string, args ...any) error {
	return status.Error(codes.NotFound, fmt.Sprintf(format, args...)+": not found")
}

func errState(format string, args ...any) error {
	return status.Error(codes.Unknown, fmt.Sprintf(format, args...))
}

// errContext is the error that a handler returns when its caller has gone.
func errContext(what string, err error) error {
	return status.Error(status.FromContextError(err).Code(), what+": "+err.Error())
}
