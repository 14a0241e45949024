package device

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	deviceapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"keelson/internal/node/panics"
	"keelson/internal/pods/pod"
)

// serve has plugins register until ctx ends. A socket that cannot be had is tried
// again; the node's health tells of it meanwhile.
func (p *Pool) serve(ctx context.Context) {
	for said := ""; ; {
		err := p.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		p.refuse(err)
		if err.Error() != said {
			said = err.Error()
			p.cfg.Log.Error("device plugins cannot register", "again_in", again, "err", err)
		}
		if !sleep(ctx, again) {
			return
		}
	}
}

// refuse notes why plugins cannot register.
func (p *Pool) refuse(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serving = fmt.Errorf("device plugin registration gRPC server failed and no device plugins can register: %w", err)
}

// listen serves at the socket. It returns why that has ended.
func (p *Pool) listen(ctx context.Context) error {
	l, err := p.bind(ctx)
	if err != nil {
		return err
	}
	srv := grpc.NewServer(panics.Unary(p.cfg.Log, "device plugins"), grpc.WaitForHandlers(true))
	deviceapi.RegisterRegistrationServer(srv, registration{pool: p})
	defer context.AfterFunc(ctx, srv.Stop)()
	p.mu.Lock()
	if p.serving, p.owned = nil, true; p.unsaved {
		p.poke() // what was given before could not be written down here
	}
	p.mu.Unlock()
	p.cfg.Log.Info("device plugins can register", "socket", p.path(socketName))
	if err := srv.Serve(l); err != nil {
		return fmt.Errorf("serve device plugins: %w", err)
	}
	return errors.New("serve device plugins: the server has ended")
}

// bind makes the socket that plugins know.
func (p *Pool) bind(ctx context.Context) (net.Listener, error) {
	if p.cfg.Listen != nil {
		return p.cfg.Listen(p.path(socketName))
	}
	if err := p.clear(ctx); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", p.path(socketName))
	if err != nil {
		return nil, fmt.Errorf("listen for device plugins: %w", err)
	}
	return l, nil
}

// clear makes the directory, and removes the sockets of earlier times: a plugin that
// finds its own gone, or the agent's new, registers anew. Where another agent
// answers nothing is touched.
func (p *Pool) clear(ctx context.Context) error {
	if err := os.MkdirAll(p.cfg.Dir, dirMode); err != nil {
		return fmt.Errorf("make directory of device plugins: %w", err)
	}
	var d net.Dialer
	if conn, err := d.DialContext(ctx, "unix", p.path(socketName)); err == nil {
		conn.Close()
		return fmt.Errorf("use directory of device plugins: another agent answers at %s", p.path(socketName))
	}
	entries, err := os.ReadDir(p.cfg.Dir)
	if err != nil {
		return fmt.Errorf("read directory of device plugins: %w", err)
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSocket == 0 {
			continue
		}
		if err := os.Remove(p.path(e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove socket of earlier times: %w", err)
		}
	}
	return nil
}

// registration is the service that plugins register at.
type registration struct {
	deviceapi.UnimplementedRegistrationServer
	pool *Pool
}

// Register takes a plugin, which has to serve already: it is asked what it is like
// before it has its answer.
func (r registration) Register(ctx context.Context, req *deviceapi.RegisterRequest) (*deviceapi.Empty, error) {
	p := r.pool
	if err := judge(req); err != nil {
		p.metrics.registrations.WithLabelValues(unheardOf).Inc()
		p.cfg.Log.Warn("refused a device plugin", "resource", req.ResourceName, "err", err)
		return nil, err
	}
	if err := p.Register(ctx, req.ResourceName, p.path(req.Endpoint), nil); err != nil {
		p.cfg.Log.Warn("cannot take a device plugin", "resource", req.ResourceName, "socket", req.Endpoint, "err", err)
		return nil, err
	}
	return &deviceapi.Empty{}, nil
}

// judge refuses what cannot be a plugin of this agent.
func judge(r *deviceapi.RegisterRequest) error {
	switch {
	case !slices.Contains(deviceapi.SupportedVersions[:], r.Version):
		return fmt.Errorf("requested API version %q is not supported by kubelet. Supported version is %q", r.Version, deviceapi.SupportedVersions)
	case !pod.IsExtended(v1.ResourceName(r.ResourceName)):
		return fmt.Errorf("the ResourceName %q is invalid", r.ResourceName)
	case filepath.Base(r.Endpoint) != r.Endpoint || r.Endpoint == socketName:
		return fmt.Errorf("the Endpoint %q is no name of a socket in the directory", r.Endpoint)
	}
	return nil
}

// Validate implements plugin.Handler, for plugins that register where all do.
func (p *Pool) Validate(name, _ string, versions []string) error {
	if !slices.ContainsFunc(versions, func(v string) bool { return slices.Contains(deviceapi.SupportedVersions[:], v) }) {
		return fmt.Errorf("device plugin version, %s, is not supported by kubelet", strings.Join(versions, ","))
	}
	if !pod.IsExtended(v1.ResourceName(name)) {
		return fmt.Errorf("invalid name of device plugin socket: the ResourceName %q is invalid", name)
	}
	return nil
}

// Register implements plugin.Handler.
func (p *Pool) Register(ctx context.Context, name, endpoint string, _ []string) error {
	p.metrics.registrations.WithLabelValues(name).Inc()
	pl, err := p.open(ctx, name, endpoint)
	if err != nil {
		return err
	}
	if err := p.take(pl); err != nil {
		pl.stop()
		return err
	}
	p.tasks.Go(func() { p.follow(pl) })
	return nil
}

// Deregister implements plugin.Handler.
func (p *Pool) Deregister(_ context.Context, name, endpoint string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.resources[name]; r != nil && r.plugin != nil && r.plugin.path == endpoint {
		r.plugin.stop() // who follows it notes the rest
	}
	return nil
}
