package node

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
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
// keeps the answers that are dear. It belongs to the status loop. What cannot be
// had is said once until it works again, and the last answer serves meanwhile.
type gatherer struct {
	cfg *Config

	images          []*runtimeapi.Image
	imagesAt        time.Time
	runtimeName     string
	runtimeVersion  string
	versionAt       time.Time
	addresses       []netip.Addr
	addressesAt     time.Time
	interfaces      []machine.Interface
	imageMountpoint string

	seen map[v1.NodeConditionType]time.Time // when each pressure was last there
	said map[string]bool                    // complaints that stand
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
	in.Pressure = g.hold(pressures(g.cfg.Hard, g.measure(ctx), g.cfg.Machine.MaxPIDs), in.Now)
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
	if now.Sub(g.versionAt) >= versionEvery {
		v, err := g.cfg.Runtime.Version(ctx, &runtimeapi.VersionRequest{})
		g.complain("runtime version", err)
		if err == nil {
			g.runtimeName, g.runtimeVersion, g.versionAt = v.GetRuntimeName(), v.GetRuntimeVersion(), now
		}
	}
	return g.runtimeName, g.runtimeVersion
}

func (g *gatherer) listImages(ctx context.Context, now time.Time) []*runtimeapi.Image {
	if now.Sub(g.imagesAt) >= imagesEvery {
		list, err := g.cfg.Runtime.ListImages(ctx, &runtimeapi.ListImagesRequest{})
		g.complain("images", err)
		if err == nil {
			g.images, g.imagesAt = list.GetImages(), now
		}
	}
	return g.images
}

// measure reads what is left, as far as a threshold asks for it.
func (g *gatherer) measure(ctx context.Context) Usage {
	var u Usage
	asked := func(prefix string) bool {
		return slices.ContainsFunc(g.cfg.Hard, func(t Threshold) bool { return strings.HasPrefix(t.Signal, prefix) })
	}
	if asked("memory.") {
		m, err := machine.ReadMemory(g.cfg.RootFS)
		g.complain("memory", err)
		if err == nil {
			u.Memory = &m
		}
	}
	if asked("pid.") {
		p, err := machine.ReadPIDs(g.cfg.RootFS)
		g.complain("processes", err)
		if err == nil {
			u.PIDs = &p
		}
	}
	if asked("nodefs.") {
		st, err := machine.ReadFilesystem(g.cfg.RootDir)
		g.complain("storage", err)
		if err == nil {
			u.NodeFS = &st
		}
	}
	if asked("imagefs.") || asked("containerfs.") {
		st, err := g.imageStorage(ctx)
		g.complain("image storage", err)
		if err == nil {
			u.ImageFS = &st
		}
	}
	return u
}

// imageStorage measures the file system of the images. The runtime is asked only
// where it is; how full it is, the kernel knows better.
func (g *gatherer) imageStorage(ctx context.Context) (machine.Filesystem, error) {
	if g.imageMountpoint == "" {
		info, err := g.cfg.Runtime.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
		if err != nil {
			return machine.Filesystem{}, err
		}
		for _, f := range info.GetImageFilesystems() {
			g.imageMountpoint = f.GetFsId().GetMountpoint()
		}
		if g.imageMountpoint == "" {
			return machine.Filesystem{}, errors.New("read image file system: the runtime names none")
		}
	}
	return machine.ReadFilesystem(g.imageMountpoint)
}

// hold keeps a pressure for a while after it was last there: a node on the edge
// would otherwise be tainted and cleared in turns.
func (g *gatherer) hold(now map[v1.NodeConditionType]bool, at time.Time) map[v1.NodeConditionType]bool {
	for kind := range now {
		g.seen[kind] = at
	}
	out := map[v1.NodeConditionType]bool{}
	for kind, last := range g.seen {
		if now[kind] || at.Sub(last) < g.cfg.PressureHold {
			out[kind] = true
		}
	}
	return out
}
