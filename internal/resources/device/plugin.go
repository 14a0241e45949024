package device

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/types"
	deviceapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"keelson/internal/host/clock"
	"keelson/internal/pods/panics"
)

// plugin is a registered device plugin.
type plugin struct {
	resource, path string
	client         deviceapi.DevicePluginClient
	prefers        bool // it implements GetPreferredAllocation
	preStart       bool // it requires PreStartContainer

	life context.Context // ends when the plugin stops or is replaced
	stop context.CancelFunc
}

// connect connects to a plugin and reads its options.
func (p *Manager) connect(ctx context.Context, name, path string) (*plugin, error) {
	dial := p.cfg.Dial
	if dial == nil {
		dial = func(ctx context.Context, path string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}
	}
	conn, err := grpc.NewClient("passthrough:///"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(dial), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithDisableServiceConfig())
	if err != nil {
		return nil, fmt.Errorf("dial device plugin: %w", err)
	}
	pl := &plugin{resource: name, path: path, client: deviceapi.NewDevicePluginClient(conn)}
	pl.life, pl.stop = context.WithCancel(p.life)
	context.AfterFunc(pl.life, func() { conn.Close() })
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	defer context.AfterFunc(pl.life, cancel)()
	options, err := pl.client.GetDevicePluginOptions(ctx, &deviceapi.Empty{}, grpc.WaitForReady(true))
	if err != nil {
		pl.stop()
		return nil, fmt.Errorf("failed to get device plugin options: %w", err)
	}
	pl.prefers, pl.preStart = options.GetGetPreferredAllocationAvailable(), options.GetPreStartRequired()
	return pl, nil
}

// addPlugin makes a plugin the endpoint of its resource, in place of an earlier one.
func (p *Manager) addPlugin(pl *plugin) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life.Err() != nil {
		return errors.New("register device plugin: the agent is ending")
	}
	r := p.resources[pl.resource]
	if r == nil {
		if len(p.resources) >= maxResources {
			return fmt.Errorf("register device plugin: the node has %d resources of devices already", maxResources)
		}
		r = &resource{stopped: time.Now()}
		p.resources[pl.resource] = r
		delete(p.removed, pl.resource)
		p.markChangedLocked()
	}
	if r.plugin != nil {
		r.plugin.stop()
	}
	r.plugin, r.listed = pl, false
	return nil
}

// followPlugin processes the list of a plugin until the plugin stops or is replaced.
func (p *Manager) followPlugin(pl *plugin) {
	err := p.guard(func() error { return p.watch(pl) })
	var panicked *panics.Error
	for backoff := clock.Backoff(minFollow, maxFollow); errors.As(err, &panicked); {
		pause := backoff.Step()
		p.cfg.Log.Error("failed to process list of device plugin; its devices are unhealthy",
			"resourceName", pl.resource, "socket", pl.path, "retryAfter", pause, "err", err)
		p.onStopped(pl)
		clock.Sleep(pl.life, pause)
		err = p.guard(func() error { return p.watch(pl) })
	}
	switch {
	case p.life.Err() != nil:
		return
	case pl.life.Err() != nil:
		err = errors.New("replaced, or its socket was removed")
	}
	p.cfg.Log.Info("device plugin stopped", "resourceName", pl.resource, "socket", pl.path, "err", err)
	pl.stop()
	p.onStopped(pl)
}

// guard runs f for one plugin. A panic becomes an error of that plugin.
func (p *Manager) guard(f func() error) error { return panics.Try(p.cfg.Log, "device plugins", f) }

func (p *Manager) watch(pl *plugin) error {
	ctx, end := context.WithCancel(pl.life)
	defer end()
	stream, err := pl.client.ListAndWatch(ctx, &deviceapi.Empty{})
	if err != nil {
		return fmt.Errorf("call ListAndWatch: %w", err)
	}
	limit := rate.NewLimiter(listsPerSecond, listsAtOnce)
	for {
		list, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("receive from ListAndWatch: %w", err)
		}
		p.onList(pl, devicesOf(list.Devices))
		if err := limit.Wait(pl.life); err != nil {
			return err
		}
	}
}

func devicesOf(list []*deviceapi.Device) map[string]Device {
	out := make(map[string]Device, len(list))
	for _, d := range list {
		dev := Device{Healthy: d.Health == deviceapi.Healthy}
		for _, n := range d.GetTopology().GetNodes() {
			dev.Nodes = append(dev.Nodes, int(n.ID))
		}
		slices.Sort(dev.Nodes)
		dev.Nodes = slices.Compact(dev.Nodes)
		out[d.ID] = dev
	}
	return out
}

// onList processes a list of a plugin.
func (p *Manager) onList(pl *plugin, now map[string]Device) {
	news, late := p.storeList(pl, now)
	p.syncPods(news)
	if late {
		p.cfg.OnPending()
	}
}

// storeList stores the devices that a plugin has listed. It returns the pods with devices whose health has changed, and
// whether pods may have waited for the plugin.
func (p *Manager) storeList(pl *plugin, now map[string]Device) (news []types.UID, late bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.resources[pl.resource]
	if r == nil || r.plugin != pl {
		return nil, false
	}
	same := r.listed && r.stopped.IsZero() && maps.EqualFunc(r.devices, now, func(a, b Device) bool {
		return a.Healthy == b.Healthy && slices.Equal(a.Nodes, b.Nodes)
	})
	if same {
		return nil, false
	}
	before := *r
	if !r.listed {
		p.cfg.Log.Info("device plugin is serving", "resourceName", pl.resource, "socket", pl.path, "devices", len(now))
	}
	r.devices, r.listed, r.stopped = now, true, time.Time{}
	p.markChangedLocked()
	return p.podsToSyncLocked(pl.resource, &before), p.pending.registeredLocked(pl.resource)
}

// onStopped marks the resource of a plugin as stopped, unless it was replaced.
func (p *Manager) onStopped(pl *plugin) {
	_ = p.guard(func() error { // logged and counted; no caller waits for the result
		p.syncPods(p.markStopped(pl))
		return nil
	})
}

// markStopped marks the resource as stopped. It returns the pods with devices whose health has changed.
func (p *Manager) markStopped(pl *plugin) []types.UID {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.resources[pl.resource]
	if r == nil || r.plugin != pl {
		return nil
	}
	before := *r
	r.stopped = time.Now()
	p.markChangedLocked()
	return p.podsToSyncLocked(pl.resource, &before)
}
