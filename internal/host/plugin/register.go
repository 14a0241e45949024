package plugin

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"keelson/internal/pods/panics"
)

// plugin is a registered plugin.
type plugin struct {
	info     *registerapi.PluginInfo
	endpoint string
	handler  Handler
}

// register gets the information of the plugin behind a socket, registers it with its handler, and notifies it of the
// result. If the notification fails, the plugin is deregistered, because it has not received the result, or its socket
// was removed. own ends with the socket, ctx with the agent.
func (w *Watcher) register(ctx, own context.Context, s *socket) (*plugin, error) {
	conn, err := w.dial(own, s.path)
	if err != nil {
		return nil, fmt.Errorf("dial plugin: %w", err)
	}
	defer conn.Close()
	client := registerapi.NewRegistrationClient(conn)
	info, err := ask(own, client)
	if err != nil {
		return nil, fmt.Errorf("get info of plugin: %w", err)
	}
	p, err := w.validate(s.path, info)
	if err != nil {
		return nil, errors.Join(err, notify(own, client, err))
	}
	w.count(s, true)
	if err := w.guard(func() error { return p.register(own) }); err != nil {
		w.count(s, false)
		err = fmt.Errorf("RegisterPlugin error -- plugin registration failed with err: %w", err)
		return nil, errors.Join(err, notify(own, client, err))
	}
	if err := notify(own, client, nil); err != nil {
		w.count(s, false)
		return nil, errors.Join(err, w.deregister(ctx, p))
	}
	return p, nil
}

// count sets whether the plugin of a socket counts as registered in the metrics. As upstream, that begins before its
// registration.
func (w *Watcher) count(s *socket, taken bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.counted = taken
}

// dial connects without waiting for a server, so that a socket without a server is distinguished from a slow plugin.
func (w *Watcher) dial(ctx context.Context, path string) (*grpc.ClientConn, error) {
	target := "unix://" + path
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
	}
	if w.cfg.Dial != nil {
		target, opts = "passthrough:///"+path, append(opts, grpc.WithContextDialer(w.cfg.Dial))
	}
	conn, err := grpc.NewClient(target, opts...)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(ctx, dialLimit)
	defer stop()
	conn.Connect()
	for {
		switch st := conn.GetState(); st {
		case connectivity.Ready:
			return conn, nil
		case connectivity.TransientFailure:
			conn.Close()
			return nil, fmt.Errorf("no server at %s", path)
		default:
			if !conn.WaitForStateChange(ctx, st) {
				conn.Close()
				return nil, fmt.Errorf("connect to %s: %w", path, ctx.Err())
			}
		}
	}
}

func ask(ctx context.Context, client registerapi.RegistrationClient) (*registerapi.PluginInfo, error) {
	ctx, stop := context.WithTimeout(ctx, infoLimit)
	defer stop()
	return client.GetInfo(ctx, &registerapi.InfoRequest{})
}

// validate finds the handler of a plugin and validates the plugin.
func (w *Watcher) validate(path string, info *registerapi.PluginInfo) (*plugin, error) {
	handler, ok := w.cfg.Handlers[info.Type]
	if !ok {
		return nil, fmt.Errorf("RegisterPlugin error -- no handler registered for plugin type: %s at socket %s",
			info.Type,
			path)
	}
	p := &plugin{info: info, endpoint: info.Endpoint, handler: handler}
	if p.endpoint == "" {
		p.endpoint = path
	}
	if !filepath.IsAbs(p.endpoint) {
		return nil, fmt.Errorf("RegisterPlugin error -- plugin %s serves at %q, which is not an absolute path", info.Name,
			info.Endpoint)
	}
	err := w.guard(func() error { return handler.Validate(info.Name, p.endpoint, info.SupportedVersions) })
	if err != nil {
		return nil, fmt.Errorf("RegisterPlugin error -- plugin validation failed with err: %w", err)
	}
	return p, nil
}

func (p *plugin) register(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, handlerLimit)
	defer stop()
	return p.handler.Register(ctx, p.info.Name, p.endpoint, p.info.SupportedVersions)
}

func (w *Watcher) deregister(ctx context.Context, p *plugin) error {
	ctx, stop := context.WithTimeout(ctx, handlerLimit)
	defer stop()
	return w.guard(func() error { return p.handler.Deregister(ctx, p.info.Name, p.endpoint) })
}

// guard runs f for one plugin. A panic becomes an error of that plugin.
func (w *Watcher) guard(f func() error) error { return panics.Try(w.cfg.Log, "plugins", f) }

// notify notifies the plugin of the result of its registration.
func notify(ctx context.Context, client registerapi.RegistrationClient, failed error) error {
	ctx, stop := context.WithTimeout(ctx, notifyLimit)
	defer stop()
	st := &registerapi.RegistrationStatus{PluginRegistered: failed == nil}
	if failed != nil {
		st.Error = failed.Error()
	}
	if _, err := client.NotifyRegistrationStatus(ctx, st); err != nil {
		return fmt.Errorf("notify plugin of its registration: %w", err)
	}
	return nil
}
