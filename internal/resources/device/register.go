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

	"keelson/internal/host/clock"
	"keelson/internal/pods/panics"
	"keelson/internal/pods/pod"
)

// serveRegistration serves the registration socket until ctx ends. It retries on errors, which the health check reports
// meanwhile.
func (p *Manager) serveRegistration(ctx context.Context) {
	for logged := ""; ; {
		err := p.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		p.setServeError(err)
		if err.Error() != logged {
			logged = err.Error()
			p.cfg.Log.Error("failed to serve device plugin registration", "retryAfter", retryPeriod, "err", err)
		}
		if !clock.Sleep(ctx, retryPeriod) {
			return
		}
	}
}

// setServeError sets the error of the registration server.
func (p *Manager) setServeError(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serving = fmt.Errorf("device plugin registration gRPC server failed and no device plugins can register: %w", err)
}

// listen serves at the socket. It returns why it has stopped.
func (p *Manager) listen(ctx context.Context) error {
	l, err := p.bind(ctx)
	if err != nil {
		return err
	}
	srv := grpc.NewServer(panics.Unary(p.cfg.Log, "device plugins"), grpc.WaitForHandlers(true))
	deviceapi.RegisterRegistrationServer(srv, registration{manager: p})
	defer context.AfterFunc(ctx, srv.Stop)()
	p.mu.Lock()
	if p.serving, p.owned = nil, true; p.unsaved {
		p.trigger() // earlier allocations are not written to this directory yet
	}
	p.mu.Unlock()
	p.cfg.Log.Info("serving device plugin registration", "socket", p.path(socketName))
	if err := srv.Serve(l); err != nil {
		return fmt.Errorf("serve device plugins: %w", err)
	}
	return errors.New("serve device plugins: the server has ended")
}

// bind makes the registration socket.
func (p *Manager) bind(ctx context.Context) (net.Listener, error) {
	if p.cfg.Listen != nil {
		return p.cfg.Listen(p.path(socketName))
	}
	if err := p.prepareDir(ctx); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", p.path(socketName))
	if err != nil {
		return nil, fmt.Errorf("listen for device plugins: %w", err)
	}
	return l, nil
}

// prepareDir makes the directory and removes old sockets. A plugin registers again when it finds its own socket removed
// or the registration socket replaced. If another agent answers at the socket, nothing is removed.
func (p *Manager) prepareDir(ctx context.Context) error {
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
			return fmt.Errorf("remove socket of an earlier agent: %w", err)
		}
	}
	return nil
}

// registration is the registration service.
type registration struct {
	deviceapi.UnimplementedRegistrationServer
	manager *Manager
}

// Register registers a plugin. The plugin has to serve already, because its options are read before the answer.
func (r registration) Register(ctx context.Context, req *deviceapi.RegisterRequest) (*deviceapi.Empty, error) {
	p := r.manager
	if err := validateRequest(req); err != nil {
		p.metrics.registrations.WithLabelValues(invalidResource).Inc()
		p.cfg.Log.Warn("rejected registration of device plugin", "resourceName", req.ResourceName, "err", err)
		return nil, err
	}
	if err := p.Register(ctx, req.ResourceName, p.path(req.Endpoint), nil); err != nil {
		p.cfg.Log.Warn("failed to register device plugin",
			"resourceName", req.ResourceName, "socket", req.Endpoint, "err", err)
		return nil, err
	}
	return &deviceapi.Empty{}, nil
}

// validateRequest validates a registration request.
func validateRequest(r *deviceapi.RegisterRequest) error {
	switch {
	case !slices.Contains(deviceapi.SupportedVersions[:], r.Version):
		return fmt.Errorf("requested API version %q is not supported by kubelet. Supported version is %q",
			r.Version, deviceapi.SupportedVersions)
	case !pod.IsExtended(v1.ResourceName(r.ResourceName)):
		return fmt.Errorf("the ResourceName %q is invalid", r.ResourceName)
	case filepath.Base(r.Endpoint) != r.Endpoint || r.Endpoint == socketName:
		return fmt.Errorf("the Endpoint %q is not the name of a socket in the directory", r.Endpoint)
	}
	return nil
}

// Validate implements plugin.Handler, for plugins that register through the plugin watcher.
func (p *Manager) Validate(name, _ string, versions []string) error {
	if !slices.ContainsFunc(versions,
		func(v string) bool { return slices.Contains(deviceapi.SupportedVersions[:], v) }) {
		return fmt.Errorf("device plugin version, %s, is not supported by kubelet", strings.Join(versions, ","))
	}
	if !pod.IsExtended(v1.ResourceName(name)) {
		return fmt.Errorf("invalid name of device plugin socket: the ResourceName %q is invalid", name)
	}
	return nil
}

// Register implements plugin.Handler.
func (p *Manager) Register(ctx context.Context, name, endpoint string, _ []string) error {
	p.metrics.registrations.WithLabelValues(name).Inc()
	pl, err := p.connect(ctx, name, endpoint)
	if err != nil {
		return err
	}
	if err := p.addPlugin(pl); err != nil {
		pl.stop()
		return err
	}
	p.tasks.Go(func() { p.followPlugin(pl) })
	return nil
}

// Deregister implements plugin.Handler.
func (p *Manager) Deregister(_ context.Context, name, endpoint string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.resources[name]; r != nil && r.plugin != nil && r.plugin.path == endpoint {
		r.plugin.stop() // the goroutine that follows it does the rest
	}
	return nil
}
