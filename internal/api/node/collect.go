package node

import (
	"context"
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/host/machine"
)

const (
	imagesEvery  = 30 * time.Second // because the list is long and seldom changes
	versionEvery = time.Minute
	addressEvery = time.Minute // or when the interfaces change
	lookupLimit  = 2 * time.Second
)

// collector collects the input of the status from the machine and the runtime, and caches expensive results. It belongs
// to the status loop, which does not wait for a runtime that hangs. Failures are logged once until they are resolved,
// and the last result is used meanwhile.
type collector struct {
	cfg  *Config
	late func() // called when a late response has arrived; must not block

	images      cachedCall[[]*runtimeapi.Image]
	version     cachedCall[*runtimeapi.VersionResponse]
	addresses   []netip.Addr
	addressesAt time.Time
	interfaces  []machine.Interface

	logged map[string]bool // current failures, for logging
}

// logOnce logs the first of several consecutive failures.
func (g *collector) logOnce(what string, err error) {
	if g.logged == nil {
		g.logged = map[string]bool{}
	}
	if err != nil && !g.logged[what] {
		g.cfg.Log.Warn("failed to collect node status", "part", what, "err", err)
	}
	g.logged[what] = err != nil
}

// fill adds what was collected to in.
func (g *collector) fill(ctx context.Context, in *Input) {
	in.Addresses = g.findAddresses(ctx, in.Now)
	in.RuntimeName, in.RuntimeVersion = g.askVersion(ctx, in.Now)
	in.Images = g.listImages(ctx, in.Now)
	if g.cfg.Pressures != nil {
		in.Pressure = map[v1.NodeConditionType]bool{}
		for _, kind := range g.cfg.Pressures(ctx) {
			in.Pressure[kind] = true
		}
	}
}

func (g *collector) findAddresses(ctx context.Context, now time.Time) []netip.Addr {
	ifs, err := machine.Interfaces()
	g.logOnce("network interfaces", err)
	if err != nil {
		return g.addresses
	}
	same := slices.EqualFunc(ifs, g.interfaces, func(a, b machine.Interface) bool {
		return a.Name == b.Name && a.Up == b.Up && slices.Equal(a.Addrs, b.Addrs)
	})
	if same && now.Sub(g.addressesAt) < addressEvery && len(g.addresses) > 0 {
		return g.addresses
	}
	routes, err := machine.DefaultRoutes(g.cfg.RootFS)
	g.logOnce("routes", err)
	ctx, cancel := context.WithTimeout(ctx, lookupLimit)
	defer cancel()
	found, err := machine.Addresses(ctx, machine.AddressInput{
		NodeIPs:    g.cfg.NodeIPs,
		Name:       g.cfg.Identity.Name,
		Interfaces: ifs,
		Routes:     routes,
		Lookup:     g.cfg.Lookup,
	})
	g.logOnce("address", err)
	if err == nil {
		g.addresses, g.addressesAt, g.interfaces = found, now, ifs
	}
	return g.addresses
}

func (g *collector) askVersion(ctx context.Context, now time.Time) (name, version string) {
	err := g.version.get(ctx, now, versionEvery, func() (*runtimeapi.VersionResponse, error) {
		return g.cfg.Runtime.Version(ctx, &runtimeapi.VersionRequest{})
	}, g.late)
	g.logOnce("runtime version", err)
	return g.version.answer.GetRuntimeName(), g.version.answer.GetRuntimeVersion()
}

func (g *collector) listImages(ctx context.Context, now time.Time) []*runtimeapi.Image {
	err := g.images.get(ctx, now, imagesEvery, func() ([]*runtimeapi.Image, error) {
		list, err := g.cfg.Runtime.ListImages(ctx, &runtimeapi.ListImagesRequest{})
		return list.GetImages(), err
	}, g.late)
	g.logOnce("images", err)
	return g.images.answer
}

// finish waits for pending calls. It must be called after their context has ended.
func (g *collector) finish() {
	g.version.finish()
	g.images.finish()
}
