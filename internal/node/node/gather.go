package node

import (
	"context"
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/resources/machine"
)

const (
	imagesEvery  = 30 * time.Second // a long list, seldom different
	versionEvery = time.Minute
	addressEvery = time.Minute // or when the interfaces change
	lookupLimit  = 2 * time.Second
)

// gatherer asks the machine and the runtime what the status needs to know, and
// keeps the answers that are dear. It belongs to the status loop, which does not wait
// for a runtime that hangs. What cannot be had is said once until it works again, and
// the last answer serves meanwhile.
type gatherer struct {
	cfg  *Config
	late func() // an answer has come after all; must not block

	images      question[[]*runtimeapi.Image]
	version     question[*runtimeapi.VersionResponse]
	addresses   []netip.Addr
	addressesAt time.Time
	interfaces  []machine.Interface

	said map[string]bool // complaints that stand
}

// complain logs a failure when it begins.
func (g *gatherer) complain(what string, err error) {
	if g.said == nil {
		g.said = map[string]bool{}
	}
	if err != nil && !g.said[what] {
		g.cfg.Log.Warn("cannot tell the node's "+what, "err", err)
	}
	g.said[what] = err != nil
}

// fill completes in with what is gathered.
func (g *gatherer) fill(ctx context.Context, in *Input) {
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

func (g *gatherer) findAddresses(ctx context.Context, now time.Time) []netip.Addr {
	ifs, err := machine.Interfaces()
	g.complain("network interfaces", err)
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
	g.complain("routes", err)
	ctx, cancel := context.WithTimeout(ctx, lookupLimit)
	defer cancel()
	found, err := machine.Addresses(ctx, machine.AddressInput{
		NodeIPs: g.cfg.NodeIPs, Name: g.cfg.Identity.Name, Interfaces: ifs, Routes: routes, Lookup: g.cfg.Lookup,
	})
	g.complain("address", err)
	if err == nil {
		g.addresses, g.addressesAt, g.interfaces = found, now, ifs
	}
	return g.addresses
}

func (g *gatherer) askVersion(ctx context.Context, now time.Time) (name, version string) {
	err := g.version.ask(ctx, now, versionEvery, func() (*runtimeapi.VersionResponse, error) {
		return g.cfg.Runtime.Version(ctx, &runtimeapi.VersionRequest{})
	}, g.late)
	g.complain("runtime version", err)
	return g.version.answer.GetRuntimeName(), g.version.answer.GetRuntimeVersion()
}

func (g *gatherer) listImages(ctx context.Context, now time.Time) []*runtimeapi.Image {
	err := g.images.ask(ctx, now, imagesEvery, func() ([]*runtimeapi.Image, error) {
		list, err := g.cfg.Runtime.ListImages(ctx, &runtimeapi.ListImagesRequest{})
		return list.GetImages(), err
	}, g.late)
	g.complain("images", err)
	return g.images.answer
}

// finish returns when nothing is asked any more, once what was asked under has ended.
func (g *gatherer) finish() {
	g.version.finish()
	g.images.finish()
}
