package dradriver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"google.golang.org/grpc"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Services that a driver can announce in its registration.
const (
	V1      = drav1.DRAPluginService
	V1Beta1 = drav1beta1.DRAPluginService
	Health  = "v1alpha1.DRAResourceHealth"
)

// Config says what a Driver is like. Name is required.
type Config struct {
	Name string
	// Endpoint is the endpoint in the registration; empty: the driver serves at the
	// registration socket.
	Endpoint string
	// Versions are the services that it announces; [V1] if empty.
	Versions []string
	// CDIDir is the directory for CDI specifications of its devices; empty: it writes none.
	CDIDir string
	// Done, if set, is called when the driver has executed a call, before the caller gets the answer.
	Done func(method string)
	// Devices returns the allocated devices of a claim; [Driver.Usual] if nil.
	Devices func(claim *drav1.Claim) []*drav1.Device
}

// Call is a call that the driver got, for one claim.
type Call struct{ Method, Claim string }

// Fault is what happens to calls of one method. The zero Fault lets them through.
type Fault struct {
	Err   error         // of the whole call
	Claim string        // the error of each claim
	Omit  bool          // claims are missing in the answer
	Hang  chan struct{} // the call waits until this is closed; nil: not at all
	Late  bool          // the call takes effect, although its answer is lost
}

// Driver is a DRA driver.
type Driver struct {
	registerapi.UnimplementedRegistrationServer
	drav1.UnimplementedDRAPluginServer
	healthapi.UnimplementedDRAResourceHealthServer
	cfg Config

	mu            sync.Mutex
	calls         []Call
	prepared      map[string]string // names of claims, by UID
	faults        map[string]Fault
	registrations []*registerapi.RegistrationStatus
	server        *grpc.Server
	health        []*healthapi.DeviceHealth
	changed       chan struct{} // closed when health changes
}

// New makes a driver that does not serve yet.
func New(cfg Config) *Driver {
	if len(cfg.Versions) == 0 {
		cfg.Versions = []string{V1}
	}
	return &Driver{cfg: cfg, prepared: map[string]string{}, faults: map[string]Fault{}, changed: make(chan struct{})}
}

// ID is the CDI name of the device that [Driver.Usual] returns for a claim.
func (d *Driver) ID(uid string) string { return d.cfg.Name + "/claim=" + uid }

// Usual is one device of the claim's UID, for all its requests.
func (d *Driver) Usual(c *drav1.Claim) []*drav1.Device {
	return []*drav1.Device{{PoolName: "pool", DeviceName: "dev-0", CdiDeviceIds: []string{d.ID(c.Uid)}}}
}

// Start serves at a socket. It removes the socket that an earlier driver has left.
func (d *Driver) Start(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("serve claims: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("serve claims: %w", err)
	}
	d.Serve(l)
	return nil
}

// Serve serves at a listener.
func (d *Driver) Serve(l net.Listener) {
	s := grpc.NewServer()
	registerapi.RegisterRegistrationServer(s, d)
	if slices.Contains(d.cfg.Versions, V1) {
		drav1.RegisterDRAPluginServer(s, d)
	}
	if slices.Contains(d.cfg.Versions, V1Beta1) {
		drav1beta1.RegisterDRAPluginServer(s, drav1beta1.V1ServerWrapper{DRAPluginServer: d})
	}
	if slices.Contains(d.cfg.Versions, Health) {
		healthapi.RegisterDRAResourceHealthServer(s, d)
	}
	d.mu.Lock()
	d.server = s
	d.mu.Unlock()
	go s.Serve(l) //nolint:errcheck // it ends with Stop
}

// Stop ends the driver and removes its socket. Claims that it has prepared stay prepared.
func (d *Driver) Stop() {
	d.mu.Lock()
	s := d.server
	d.server = nil
	d.mu.Unlock()
	if s != nil {
		s.Stop()
	}
}

// Fault sets what happens to calls of a method from now on.
func (d *Driver) Fault(method string, f Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults[method] = f
}

// Calls are the calls so far, in their order.
func (d *Driver) Calls() []Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// Prepared are the names of the claims that are prepared, in order.
func (d *Driver) Prepared() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Values(d.prepared))
}

// Registrations are the registration statuses that the driver was sent.
func (d *Driver) Registrations() []*registerapi.RegistrationStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.registrations)
}

// Say sets the health of devices, which the driver reports.
func (d *Driver) Say(health ...*healthapi.DeviceHealth) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.health = health
	close(d.changed)
	d.changed = make(chan struct{})
}

// GetInfo implements the registration service.
func (d *Driver) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{
		Type:              registerapi.DRAPlugin,
		Name:              d.cfg.Name,
		Endpoint:          d.cfg.Endpoint,
		SupportedVersions: d.cfg.Versions,
	}, nil
}

// NotifyRegistrationStatus implements the registration service.
func (d *Driver) NotifyRegistrationStatus(
	_ context.Context, s *registerapi.RegistrationStatus,
) (*registerapi.RegistrationStatusResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.registrations = append(d.registrations, s)
	return &registerapi.RegistrationStatusResponse{}, nil
}

// enter records a call and returns its fault.
func (d *Driver) enter(ctx context.Context, method string, claims []*drav1.Claim) (Fault, error) {
	d.mu.Lock()
	for _, c := range claims {
		d.calls = append(d.calls, Call{method, c.Name})
	}
	f := d.faults[method]
	d.mu.Unlock()
	if f.Hang != nil {
		select {
		case <-f.Hang:
		case <-ctx.Done():
			if !f.Late {
				return f, ctx.Err()
			}
		}
	}
	if f.Late {
		return f, nil
	}
	return f, f.Err
}

// NodePrepareResources implements the service.
func (d *Driver) NodePrepareResources(
	ctx context.Context, r *drav1.NodePrepareResourcesRequest,
) (*drav1.NodePrepareResourcesResponse, error) {
	f, err := d.enter(ctx, "NodePrepareResources", r.Claims)
	if err != nil {
		return nil, err
	}
	out := &drav1.NodePrepareResourcesResponse{Claims: map[string]*drav1.NodePrepareResourceResponse{}}
	for _, c := range r.Claims {
		switch {
		case f.Omit:
		case f.Claim != "":
			out.Claims[c.Uid] = &drav1.NodePrepareResourceResponse{Error: f.Claim}
		default:
			devices := d.Usual(c)
			if d.cfg.Devices != nil {
				devices = d.cfg.Devices(c)
			}
			if err := d.describe(c, devices); err != nil {
				return nil, err
			}
			d.mu.Lock()
			d.prepared[c.Uid] = c.Name
			d.mu.Unlock()
			out.Claims[c.Uid] = &drav1.NodePrepareResourceResponse{Devices: devices}
		}
	}
	d.done("NodePrepareResources")
	return out, f.Err
}

func (d *Driver) done(method string) {
	if d.cfg.Done != nil {
		d.cfg.Done(method)
	}
}

// NodeUnprepareResources implements the service.
func (d *Driver) NodeUnprepareResources(
	ctx context.Context, r *drav1.NodeUnprepareResourcesRequest,
) (*drav1.NodeUnprepareResourcesResponse, error) {
	f, err := d.enter(ctx, "NodeUnprepareResources", r.Claims)
	if err != nil {
		return nil, err
	}
	out := &drav1.NodeUnprepareResourcesResponse{Claims: map[string]*drav1.NodeUnprepareResourceResponse{}}
	for _, c := range r.Claims {
		switch {
		case f.Omit:
		case f.Claim != "":
			out.Claims[c.Uid] = &drav1.NodeUnprepareResourceResponse{Error: f.Claim}
		default:
			if d.cfg.CDIDir != "" {
				if err := os.Remove(d.spec(c)); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return nil, err
				}
			}
			d.mu.Lock()
			delete(d.prepared, c.Uid)
			d.mu.Unlock()
			out.Claims[c.Uid] = &drav1.NodeUnprepareResourceResponse{}
		}
	}
	d.done("NodeUnprepareResources")
	return out, f.Err
}

func (d *Driver) spec(c *drav1.Claim) string {
	return filepath.Join(d.cfg.CDIDir, d.cfg.Name+"-"+c.Uid+".json")
}

// describe writes the CDI specification of the claim's devices: a variable, and the
// machine's /dev/null under the claim's name.
func (d *Driver) describe(c *drav1.Claim, devices []*drav1.Device) error {
	if d.cfg.CDIDir == "" {
		return nil
	}
	type m = map[string]any
	var list []m
	for _, dev := range devices {
		for _, id := range dev.CdiDeviceIds {
			_, name, _ := cutLast(id)
			list = append(list, m{"name": name, "containerEdits": m{
				"env": []string{"CLAIM_" + dev.DeviceName + "=" + c.Name},
				"deviceNodes": []m{{
					"path":        "/dev/" + c.Name + "-" + dev.DeviceName,
					"hostPath":    "/dev/null",
					"type":        "c",
					"major":       1,
					"minor":       3,
					"permissions": "rw",
				}}}})
		}
	}
	text, err := json.Marshal(m{"cdiVersion": "0.6.0", "kind": d.cfg.Name + "/claim", "devices": list})
	if err != nil {
		return err
	}
	tmp := d.spec(c) + ".tmp"
	if err := os.WriteFile(tmp, text, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, d.spec(c))
}

func cutLast(id string) (kind, name string, ok bool) {
	for i := len(id) - 1; i >= 0; i-- {
		if id[i] == '=' {
			return id[:i], id[i+1:], true
		}
	}
	return "", id, false
}

// NodeWatchResources implements the health service.
func (d *Driver) NodeWatchResources(
	_ *healthapi.NodeWatchResourcesRequest, stream grpc.ServerStreamingServer[healthapi.NodeWatchResourcesResponse],
) error {
	for {
		d.mu.Lock()
		resp := &healthapi.NodeWatchResourcesResponse{Devices: slices.Clone(d.health)}
		changed := d.changed
		d.mu.Unlock()
		if len(resp.Devices) > 0 {
			if err := stream.Send(resp); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}
