package csidriver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Config says what a Driver is like. Name, Dir and Node are required.
type Config struct {
	Name string
	Dir  string // where volumes are, and the driver's socket
	Node string // the driver's name for the node

	NoStage     bool // it does not stage
	NoExpand    bool
	MountGroup  bool // it gives volumes to groups itself
	MultiWriter bool
	Abnormal    bool // it reports an abnormal condition of its volumes
	Max         int64
	Topology    map[string]string
	// Versions are the supported versions in the registration; 1.0.0 if empty.
	Versions []string
}

// Call is a call that the driver got.
type Call struct {
	Method  string // NodeStageVolume
	Request any
	Limit   time.Duration // how long the caller waits for the answer; zero for ever
}

// Fault is what happens to a call. The zero Fault lets it through.
type Fault struct {
	Err   error         // returned instead of doing anything, or after it
	After bool          // the call takes effect before it fails
	Hang  chan struct{} // the call waits until this is closed; nil: not at all
}

// Driver is a CSI driver.
type Driver struct {
	cfg Config

	mu            sync.Mutex
	calls         []Call
	faults        map[string][]Fault
	always        map[string]Fault
	turns         map[string]chan struct{} // by volume, of capacity 1: the call that waits longest is next
	observe       func(method string, done bool)
	status        *registerapi.RegistrationStatus
	registrations chan struct{} // gets a token for each registration status
	servers       []*grpc.Server
}

// New makes a driver that does not serve yet.
func New(cfg Config) *Driver {
	return &Driver{
		cfg:           cfg,
		faults:        map[string][]Fault{},
		always:        map[string]Fault{},
		turns:         map[string]chan struct{}{},
		registrations: make(chan struct{}, 64),
	}
}

// Socket is where the driver serves.
func (d *Driver) Socket() string { return filepath.Join(d.cfg.Dir, "csi.sock") }

// Start serves the driver's services at its socket.
func (d *Driver) Start() error {
	return d.serve(d.Socket(), func(s *grpc.Server) {
		csi.RegisterIdentityServer(s, &identity{driver: d})
		csi.RegisterNodeServer(s, &node{driver: d})
		csi.RegisterControllerServer(s, &controller{driver: d})
	})
}

// Register offers the driver in a registration directory.
func (d *Driver) Register(dir string) error {
	return d.serve(filepath.Join(dir, d.cfg.Name+"-reg.sock"), func(s *grpc.Server) {
		registerapi.RegisterRegistrationServer(s, &registration{driver: d})
	})
}

func (d *Driver) serve(socket string, register func(*grpc.Server)) error {
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return err
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	s := grpc.NewServer(grpc.UnaryInterceptor(d.intercept))
	register(s)
	d.mu.Lock()
	d.servers = append(d.servers, s)
	d.mu.Unlock()
	go s.Serve(l) //nolint:errcheck // it ends with Stop
	return nil
}

// Stop ends the driver like a crash does, but for its sockets, which are removed.
func (d *Driver) Stop() {
	d.mu.Lock()
	servers := d.servers
	d.servers = nil
	d.mu.Unlock()
	for _, s := range servers {
		s.Stop()
	}
}

func (d *Driver) intercept(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	method := path.Base(info.FullMethod)
	call := Call{Method: method, Request: req}
	if end, ok := ctx.Deadline(); ok {
		call.Limit = time.Until(end)
	}
	d.mu.Lock()
	d.calls = append(d.calls, call)
	fault, observe := d.always[method], d.observe
	if queue := d.faults[method]; len(queue) > 0 {
		fault, d.faults[method] = queue[0], queue[1:]
	}
	d.mu.Unlock()
	if v, ok := req.(interface{ GetVolumeId() string }); ok {
		// Calls for a volume are executed in the order of their arrival, even if a caller has gone.
		turn := d.turn(v.GetVolumeId())
		turn <- struct{}{}
		defer func() { <-turn }()
	}
	if observe != nil {
		observe(method, false)
	}
	if fault.Hang != nil {
		select {
		case <-fault.Hang:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if fault.Err != nil && !fault.After {
		return nil, fault.Err
	}
	out, err := handler(ctx, req)
	if observe != nil {
		observe(method, true)
	}
	if err == nil && fault.Err != nil {
		return nil, fault.Err
	}
	return out, err
}

// turn is the lock of a volume: its calls are answered one after the other.
func (d *Driver) turn(id string) chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.turns[id] == nil {
		d.turns[id] = make(chan struct{}, 1)
	}
	return d.turns[id]
}

// Next applies these faults to the next calls of a method, one fault to each call.
func (d *Driver) Next(method string, faults ...Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults[method] = append(d.faults[method], faults...)
}

// Always applies the fault to every call of a method, until another one is given.
func (d *Driver) Always(method string, f Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.always[method] = f
}

// SetMax sets how many volumes the node can have, which NodeGetInfo reports.
func (d *Driver) SetMax(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cfg.Max = n
}

// Observe makes the driver call f before and after each call.
func (d *Driver) Observe(f func(method string, done bool)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.observe = f
}

// Calls are the calls that the driver got, without NodeGetCapabilities and GetInfo.
func (d *Driver) Calls() []Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(d.calls),
		func(c Call) bool { return c.Method == "NodeGetCapabilities" || c.Method == "GetInfo" })
}

// Forget drops the calls so far.
func (d *Driver) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = nil
}

// Methods are the names of Calls that change something.
func (d *Driver) Methods() []string {
	var out []string
	for _, c := range d.Calls() {
		if c.Method != "NodeGetInfo" && c.Method != "NotifyRegistrationStatus" {
			out = append(out, c.Method)
		}
	}
	return out
}

// Count is how many calls of a method there were.
func (d *Driver) Count(method string) int {
	n := 0
	for _, c := range d.Calls() {
		if c.Method == method {
			n++
		}
	}
	return n
}

// Last is the latest request of a method; nil if there was none.
func (d *Driver) Last(method string) any {
	var last any
	for _, c := range d.Calls() {
		if c.Method == method {
			last = c.Request
		}
	}
	return last
}

// Registrations waits until the agent has reported the result of a registration.
func (d *Driver) Registrations(ctx context.Context) (*registerapi.RegistrationStatus, error) {
	select {
	case <-d.registrations:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for word of the registration: %w", ctx.Err())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.status, nil
}

// Data is where a volume's data is.
func (d *Driver) Data(id string) string {
	return filepath.Join(d.cfg.Dir, "volumes", strings.ReplaceAll(id, "/", "~"))
}

type registration struct {
	registerapi.UnimplementedRegistrationServer
	driver *Driver
}

func (r *registration) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	versions := r.driver.cfg.Versions
	if len(versions) == 0 {
		versions = []string{"1.0.0"}
	}
	return &registerapi.PluginInfo{
		Type:              "CSIPlugin",
		Name:              r.driver.cfg.Name,
		Endpoint:          r.driver.Socket(),
		SupportedVersions: versions,
	}, nil
}

func (r *registration) NotifyRegistrationStatus(
	_ context.Context, s *registerapi.RegistrationStatus,
) (*registerapi.RegistrationStatusResponse, error) {
	d := r.driver
	d.mu.Lock()
	d.status = s
	d.mu.Unlock()
	select {
	case d.registrations <- struct{}{}:
	default:
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}
