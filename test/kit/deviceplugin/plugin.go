package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	deviceapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Config says what a Plugin is like. Dir, Socket and Resource are required.
type Config struct {
	Dir      string // where the agent's socket is, and the plugin's
	Socket   string // name of the plugin's socket
	Resource string
	// Version is the API version in the registration; the usual one if empty.
	Version string
	// PreStart sets the option PreStartRequired.
	PreStart bool
	// Prefer chooses among devices; nil: the plugin has no preference.
	Prefer func(available, must []string, size int) []string
	// Done, if set, is called when an Allocate or a PreStartContainer call has been executed,
	// before the caller gets the answer.
	Done func(method string)
	// Answer is what a container gets for devices; [Usual] if nil.
	Answer func(ids []string) *deviceapi.ContainerAllocateResponse
	// Containers is for how many containers Allocate answers; nil: for those in the request.
	Containers func() int
}

// Call is a call that the plugin got.
type Call struct {
	Method string
	IDs    []string
}

// Fault is what happens to calls of one method. The zero Fault lets them through.
type Fault struct {
	Err  error
	Hang chan struct{} // the call waits until this is closed; nil: not at all
}

// Plugin is a device plugin.
type Plugin struct {
	deviceapi.UnimplementedDevicePluginServer
	registerapi.UnimplementedRegistrationServer
	cfg Config

	mu            sync.Mutex
	devices       map[string]*deviceapi.Device
	changed       chan struct{} // closed when devices change
	calls         []Call
	left          map[string]time.Duration // until the caller gives up, by method
	faults        map[string]Fault
	registrations []*registerapi.RegistrationStatus
	server        *grpc.Server
}

// New makes a plugin that does not serve yet, with healthy devices of these IDs.
func New(cfg Config, ids ...string) *Plugin {
	p := &Plugin{
		cfg:     cfg,
		devices: map[string]*deviceapi.Device{},
		changed: make(chan struct{}),
		faults:  map[string]Fault{},
		left:    map[string]time.Duration{},
	}
	for _, id := range ids {
		p.devices[id] = &deviceapi.Device{ID: id, Health: deviceapi.Healthy}
	}
	return p
}

// Usual gives a container the machine's /dev/null once for each device, and names
// the devices in a variable and in an annotation.
func Usual(ids []string) *deviceapi.ContainerAllocateResponse {
	r := &deviceapi.ContainerAllocateResponse{Envs: map[string]string{}, Annotations: map[string]string{}}
	for _, id := range ids {
		r.Devices = append(r.Devices, &deviceapi.DeviceSpec{
			HostPath:      "/dev/null",
			ContainerPath: "/dev/" + id,
			Permissions:   "rw",
		})
		r.Envs["DEVICE_"+id] = id
		r.Annotations["device.example/"+id] = "given"
	}
	return r
}

// Start serves at the plugin's socket. It removes the socket that an earlier plugin has left.
func (p *Plugin) Start() error {
	path := filepath.Join(p.cfg.Dir, p.cfg.Socket)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("serve device plugin: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("serve device plugin: %w", err)
	}
	p.Serve(l)
	return nil
}

// Serve serves at a listener.
func (p *Plugin) Serve(l net.Listener) {
	s := grpc.NewServer()
	deviceapi.RegisterDevicePluginServer(s, p)
	registerapi.RegisterRegistrationServer(s, p)
	p.mu.Lock()
	p.server = s
	p.mu.Unlock()
	go s.Serve(l) //nolint:errcheck // it ends with Stop
}

// Stop ends the plugin; its socket goes with it.
func (p *Plugin) Stop() {
	p.mu.Lock()
	s := p.server
	p.mu.Unlock()
	if s != nil {
		s.Stop()
	}
}

// Register registers the plugin with the agent.
func (p *Plugin) Register(ctx context.Context) error {
	conn, err := grpc.NewClient("unix://"+filepath.Join(p.cfg.Dir, "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("register device plugin: %w", err)
	}
	defer conn.Close()
	_, err = deviceapi.NewRegistrationClient(conn).Register(ctx, p.Request())
	return err
}

// GetInfo implements the registration service: an agent calls it that has found the plugin's
// socket in the directory of the plugin watcher.
func (p *Plugin) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{
		Type:              registerapi.DevicePlugin,
		Name:              p.cfg.Resource,
		SupportedVersions: []string{p.Request().Version},
	}, nil
}

// NotifyRegistrationStatus implements the registration service.
func (p *Plugin) NotifyRegistrationStatus(
	_ context.Context, s *registerapi.RegistrationStatus,
) (*registerapi.RegistrationStatusResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.registrations = append(p.registrations, s)
	return &registerapi.RegistrationStatusResponse{}, nil
}

// Registrations are the registration statuses that agents have sent to the plugin.
func (p *Plugin) Registrations() []*registerapi.RegistrationStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.registrations)
}

// Request is the plugin's registration request.
func (p *Plugin) Request() *deviceapi.RegisterRequest {
	version := p.cfg.Version
	if version == "" {
		version = deviceapi.Version
	}
	return &deviceapi.RegisterRequest{
		Version:      version,
		Endpoint:     p.cfg.Socket,
		ResourceName: p.cfg.Resource,
		Options:      p.options(),
	}
}

func (p *Plugin) options() *deviceapi.DevicePluginOptions {
	return &deviceapi.DevicePluginOptions{
		PreStartRequired:                p.cfg.PreStart,
		GetPreferredAllocationAvailable: p.cfg.Prefer != nil,
	}
}

// Set sets the health of devices. It adds devices that are new.
func (p *Plugin) Set(health string, ids ...string) {
	p.change(func() {
		for _, id := range ids {
			d := &deviceapi.Device{ID: id, Health: health}
			if old := p.devices[id]; old != nil {
				d.Topology = old.Topology
			}
			p.devices[id] = d
		}
	})
}

// Place sets the NUMA nodes of a device.
func (p *Plugin) Place(id string, nodes ...int64) {
	p.change(func() {
		top := &deviceapi.TopologyInfo{}
		for _, n := range nodes {
			top.Nodes = append(top.Nodes, &deviceapi.NUMANode{ID: n})
		}
		p.devices[id] = &deviceapi.Device{ID: id, Health: p.devices[id].Health, Topology: top}
	})
}

// Drop removes devices.
func (p *Plugin) Drop(ids ...string) {
	p.change(func() {
		for _, id := range ids {
			delete(p.devices, id)
		}
	})
}

func (p *Plugin) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
}

// Fault sets what happens to calls of a method from now on.
func (p *Plugin) Fault(method string, f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults[method] = f
}

// Calls are the calls of a method so far, in their order.
func (p *Plugin) Calls(method string) [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out [][]string
	for _, c := range p.calls {
		if c.Method == method {
			out = append(out, c.IDs)
		}
	}
	return out
}

// Patience is how long the caller of the last call of a method would wait; 0 is for ever.
func (p *Plugin) Patience(method string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left[method]
}

// enter records a call and applies its fault.
func (p *Plugin) enter(ctx context.Context, method string, ids []string) error {
	p.mu.Lock()
	p.calls = append(p.calls, Call{method, slices.Sorted(slices.Values(ids))})
	p.left[method] = 0
	if until, ok := ctx.Deadline(); ok {
		p.left[method] = time.Until(until)
	}
	f := p.faults[method]
	p.mu.Unlock()
	if f.Hang != nil {
		select {
		case <-f.Hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return f.Err
}

// GetDevicePluginOptions implements the service.
func (p *Plugin) GetDevicePluginOptions(
	ctx context.Context, _ *deviceapi.Empty,
) (*deviceapi.DevicePluginOptions, error) {
	return p.options(), p.enter(ctx, "GetDevicePluginOptions", nil)
}

// ListAndWatch implements the service.
func (p *Plugin) ListAndWatch(
	_ *deviceapi.Empty, stream grpc.ServerStreamingServer[deviceapi.ListAndWatchResponse],
) error {
	if err := p.enter(stream.Context(), "ListAndWatch", nil); err != nil {
		return err
	}
	for {
		p.mu.Lock()
		resp := &deviceapi.ListAndWatchResponse{}
		for _, id := range slices.Sorted(maps.Keys(p.devices)) {
			resp.Devices = append(resp.Devices, p.devices[id])
		}
		changed := p.changed
		p.mu.Unlock()
		if err := stream.Send(resp); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

// GetPreferredAllocation implements the service.
func (p *Plugin) GetPreferredAllocation(
	ctx context.Context, r *deviceapi.PreferredAllocationRequest,
) (*deviceapi.PreferredAllocationResponse, error) {
	out := &deviceapi.PreferredAllocationResponse{}
	for _, c := range r.ContainerRequests {
		if err := p.enter(ctx, "GetPreferredAllocation", c.AvailableDeviceIDs); err != nil {
			return nil, err
		}
		ids := p.cfg.Prefer(slices.Sorted(slices.Values(c.AvailableDeviceIDs)), c.MustIncludeDeviceIDs,
			int(c.AllocationSize))
		out.ContainerResponses = append(out.ContainerResponses,
			&deviceapi.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return out, nil
}

// Allocate implements the service.
func (p *Plugin) Allocate(ctx context.Context, r *deviceapi.AllocateRequest) (*deviceapi.AllocateResponse, error) {
	answer := p.cfg.Answer
	if answer == nil {
		answer = Usual
	}
	out := &deviceapi.AllocateResponse{}
	for _, c := range r.ContainerRequests {
		if err := p.enter(ctx, "Allocate", c.DevicesIds); err != nil {
			return nil, err
		}
		out.ContainerResponses = append(out.ContainerResponses, answer(slices.Sorted(slices.Values(c.DevicesIds))))
	}
	if p.cfg.Containers != nil {
		for n := p.cfg.Containers(); len(out.ContainerResponses) != n; {
			if len(out.ContainerResponses) > n {
				out.ContainerResponses = out.ContainerResponses[:n]
				continue
			}
			out.ContainerResponses = append(out.ContainerResponses, answer([]string{"surplus"}))
		}
	}
	p.done("Allocate")
	return out, nil
}

func (p *Plugin) done(method string) {
	if p.cfg.Done != nil {
		p.cfg.Done(method)
	}
}

// PreStartContainer implements the service.
func (p *Plugin) PreStartContainer(
	ctx context.Context, r *deviceapi.PreStartContainerRequest,
) (*deviceapi.PreStartContainerResponse, error) {
	err := p.enter(ctx, "PreStartContainer", r.DevicesIds)
	p.done("PreStartContainer")
	return &deviceapi.PreStartContainerResponse{}, err
}
