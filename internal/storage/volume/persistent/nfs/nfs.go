// Package nfs mounts exports of NFS servers for pods, with the machine's own
// mount helper. Nothing is common to the pods of a node: each has a mount of its
// own, and the kernel shares what can be.
//
//	<root>/pods/<uid>/volumes/kubernetes.io~nfs/<volume>
//
// A server that does not answer holds up its own pods alone. To let such a pod go
// its mount is first taken off politely, then by force, and in the end taken out
// of sight.
package nfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
	"keelson/internal/storage/volume/persistent"
)

const (
	name    = "kubernetes.io/nfs"
	dirMode = 0o750
	// politely is how long an unmount may take before it is forced.
	politely = time.Minute
)

// Config holds what the plugin is built from. Every field but Tools is required.
type Config struct {
	Guard *mount.Guard
	Tools mount.Tools
}

// Plugin brings NFS volumes.
type Plugin struct {
	cfg    Config
	detach func(target string) error
}

// New builds the plugin; nothing is done before a volume is asked for.
func New(cfg Config) *Plugin { return &Plugin{cfg: cfg, detach: mount.ForceUnmount} }

func (*Plugin) Name() string { return name }

func (*Plugin) Serves(s persistent.Spec) bool { return source(s) != nil }

func source(s persistent.Spec) *v1.NFSVolumeSource {
	switch {
	case s.PV != nil:
		return s.PV.Spec.NFS
	case s.Inline != nil:
		return s.Inline.NFS
	}
	return nil
}

func (*Plugin) Describe(context.Context, persistent.Spec) (persistent.Traits, error) {
	return persistent.Traits{}, nil
}

func (*Plugin) Stage(context.Context, persistent.Request) error  { return nil }
func (*Plugin) Unstage(context.Context, persistent.Device) error { return nil }
func (*Plugin) Devices() ([]persistent.Device, error)            { return nil, nil }
func (*Plugin) DeviceOf(volume.Place) (persistent.Traits, error) { return persistent.Traits{}, nil }

// export is the server and path as mount.nfs takes them. Both are a user's words
// and become one argument; the server must not be able to end before its colon.
func export(src *v1.NFSVolumeSource) (string, error) {
	server := src.Server
	if ip := net.ParseIP(server); ip != nil && strings.Contains(server, ":") {
		server = "[" + server + "]"
	} else if strings.ContainsAny(server, ":/ \t\n") {
		return "", fmt.Errorf("NFS server %q is neither a name nor an address", src.Server)
	}
	return server + ":" + src.Path, nil
}

// Publish mounts the export for the pod.
func (p *Plugin) Publish(ctx context.Context, r persistent.Request) (persistent.Published, error) {
	src := source(r.Spec)
	readOnly := r.ForReading(src.ReadOnly)
	out := persistent.Published{Path: r.Place.Path, ReadOnly: readOnly}
	what, err := export(src)
	if err != nil {
		return persistent.Published{}, err
	}
	var options []string
	if readOnly {
		options = append(options, "ro")
	}
	options = r.MountOptions(options...)
	err = p.cfg.Guard.Do(ctx, r.Place.Path, "mount NFS volume", func() error {
		if err := os.MkdirAll(r.Place.Path, dirMode); err != nil {
			// A directory whose server is gone cannot be looked at, but is there.
			if on, perr := mount.IsListed(r.Place.Path); perr != nil || !on {
				return err
			}
		}
		if on, err := mount.IsListed(r.Place.Path); on || err != nil {
			return err
		}
		if err := p.cfg.Tools.Mount(ctx, "nfs", what, r.Place.Path, options); err != nil {
			if on, _ := mount.IsListed(r.Place.Path); on || ctx.Err() != nil {
				return persistent.Unknown(err)
			}
			return persistent.Undone(err, removeEmpty(r.Place.Path))
		}
		return nil
	})
	return out, err
}

// Unpublish takes the mount away. What containers wrote has been sent to the
// server when they closed it; a server that is gone must not keep the pod.
func (p *Plugin) Unpublish(ctx context.Context, place volume.Place) error {
	polite, stop := context.WithTimeout(ctx, politely)
	defer stop()
	err := p.cfg.Guard.Do(polite, place.Path, "unmount NFS volume", func() error { return mount.Unmount(place.Path) })
	if err != nil && polite.Err() != nil && ctx.Err() == nil {
		// The polite call hangs still, and goes on to hold its key; or it waits for others
		// to return that hang on the same server.
		err = p.cfg.Guard.Rescue(ctx, place.Path+" (by force)", "force unmount of NFS volume", func() error { return p.detach(place.Path) })
	}
	if err != nil {
		return err
	}
	return p.cfg.Guard.Do(ctx, place.Path+" (removed)", "remove directory of NFS volume", func() error { return removeEmpty(place.Path) })
}

// removeEmpty removes a directory that nothing is in: never data.
func removeEmpty(dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
