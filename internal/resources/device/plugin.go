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

	"keelson/internal/node/panics"
)

// plugin is one that has registered.
type plugin struct {
	resource, path string
	client         deviceapi.DevicePluginClient
	prefers        bool // it has a say on which devices go together
	preStart       bool // it is asked before each start of a container

	life context.Context // ends with the plugin's time
	stop context.CancelFunc
}

// open reaches a plugin and asks what it is like.
func (p *Pool) open(ctx context.Context, name, path string) (*plugin, error) {
	dial := p.cfg.Dial
	if dial == nil {
		dial = func(ctx context.Context, path string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}
	}
	conn, err := grpc.NewClient("passthrough:///"+path, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(dial), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)), grpc.WithDisableServiceConfig())
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

// take has a plugin serve its resource from now on, in place of one before it.
func (p *Pool) take(pl *plugin) error {
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
		delete(p.gone, pl.resource)
		p.changedLocked()
	}
	if r.plugin != nil {
		r.plugin.stop()
	}
	r.plugin, r.listed = pl, false
	return nil
}

// follow takes what a plugin tells of its devices until it ends, or another one
// takes its place.
func (p *Pool) follow(pl *plugin) {
	err := p.contain(func() error { return p.watch(pl) })
	var panicked *panics.Error
	for pause := minFollow; errors.As(err, &panicked); pause = min(2*pause, maxFollow) {
		p.cfg.Log.Error("cannot process the list of a device plugin; its devices are unhealthy until it is processed",
			"resource", pl.resource, "socket", pl.path, "again_in", pause, "err", err)
		p.stopped(pl)
		sleep(pl.life, pause)
		err = p.contain(func() error { return p.watch(pl) })
	}
	switch {
	case p.life.Err() != nil:
		return
	case pl.life.Err() != nil:
		err = errors.New("it was replaced, or its socket went")
	}
	p.cfg.Log.Info("a device plugin has ended", "resource", pl.resource, "socket", pl.path, "err", err)
	pl.stop()
	p.stopped(pl)
}

// contain runs what one plugin has the agent do. A panic in it is that plugin's alone.
func (p *Pool) contain(f func() error) error { return panics.Try(p.cfg.Log, "device plugins", f) }

func (p *Pool) watch(pl *plugin) error {
	ctx, end := context.WithCancel(pl.life)
	defer end()
	stream, err := pl.client.ListAndWatch(ctx, &deviceapi.Empty{})
	if err != nil {
		return fmt.Errorf("follow device plugin: %w", err)
	}
	limit := rate.NewLimiter(listsPerSecond, listsAtOnce)
	for {
		list, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("follow device plugin: %w", err)
		}
		p.listed(pl, devicesOf(list.Devices))
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

// listed takes what a plugin has told.
func (p *Pool) listed(pl *plugin, now map[string]Device) {
	news, late := p.keepList(pl, now)
	p.wake(news)
	if late {
		p.cfg.OnWait()
	}
}

// keepList stores the devices that a plugin has listed. It returns the pods whose devices have changed, and whether
// pods have waited for the plugin.
func (p *Pool) keepList(pl *plugin, now map[string]Device) (news []types.UID, late bool) {
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
		p.cfg.Log.Info("a device plugin serves", "resource", pl.resource, "socket", pl.path, "devices", len(now))
	}
	r.devices, r.listed, r.stopped = now, true, time.Time{}
	p.changedLocked()
	return p.newsLocked(pl.resource, &before), p.lateness.cameLocked(pl.resource)
}

// stopped notes that a plugin does not serve, unless another has taken its place.
func (p *Pool) stopped(pl *plugin) {
	_ = p.contain(func() error { // logged and counted; no caller waits for the result
		p.wake(p.keepStopped(pl))
		return nil
	})
}

// keepStopped returns the pods for which it is news that the plugin does not serve.
func (p *Pool) keepStopped(pl *plugin) []types.UID {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.resources[pl.resource]
	if r == nil || r.plugin != pl {
		return nil
	}
	before := *r
	r.stopped = time.Now()
	p.changedLocked()
	return p.newsLocked(pl.resource, &before)
}
