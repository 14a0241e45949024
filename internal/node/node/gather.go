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

	images         []*runtimeapi.Image
	imagesAt       time.Time
	runtimeName    string
	runtimeVersion string
	versionAt      time.Time
	addresses      []netip.Addr
	addressesAt    time.Time
	interfaces     []machine.Interface
	imageDisk      string // mount point; empty before the runtime was asked
	containerDisk  string

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
		images, containers, err := g.runtimeStorage(ctx)
		g.complain("image storage", err)
		if err == nil {
			u.ImageFS, u.ContainerFS = &images, &containers
		}
	}
	return u
}

// runtimeStorage measures the file systems of the images and of the containers'
// writable layers. The runtime is asked only where they are; how full they are,
// the kernel knows better.
func (g *gatherer) runtimeStorage(ctx context.Context) (images, containers machine.Filesystem, err error) {
	if g.imageDisk == "" {
		info, err := g.cfg.Runtime.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
		if err != nil {
			return images, containers, err
		}
		at := func(list []*runtimeapi.FilesystemUsage) string {
			if len(list) == 0 {
				return ""
			}
			return list[0].GetFsId().GetMountpoint()
		}
		g.imageDisk = at(info.GetImageFilesystems())
		if g.imageDisk == "" {
			return images, containers, errors.New("read image file system: the runtime names none")
		}
		// Runtimes from before the field keep both in one place.
		g.containerDisk = g.imageDisk
		if other := at(info.GetContainerFilesystems()); other != "" && g.cfg.SeparateContainerDisk {
			g.containerDisk = other
		}
	}
	if images, err = machine.ReadFilesystem(g.imageDisk); err != nil {
		return images, containers, err
	}
	containers, err = machine.ReadFilesystem(g.containerDisk)
	return images, containers, err
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
