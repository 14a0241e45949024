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
	// unmountTimeout is how long an unmount may take before it is forced.
	unmountTimeout = time.Minute
)

// Config holds what the plugin is built from. Every field but Tools is required.
type Config struct {
	Guard *mount.Guard
	Tools mount.Tools
}

// Plugin serves NFS volumes.
type Plugin struct {
	cfg    Config
	detach func(target string) error
}

// New makes the plugin.
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

// export returns server and path in the form of mount.nfs. Both are user input and become one
// argument, so the server must not contain a colon unless it is an IPv6 address.
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
			// A directory whose server is gone cannot be accessed, but is mounted.
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

// Unpublish unmounts the volume. Containers' writes were flushed when they closed the files
// (close-to-open consistency). A server that does not respond must not block the pod's termination.
func (p *Plugin) Unpublish(ctx context.Context, place volume.Place) error {
	regular, stop := context.WithTimeout(ctx, unmountTimeout)
	defer stop()
	err := p.cfg.Guard.Do(regular, place.Path, "unmount NFS volume", func() error { return mount.Unmount(place.Path) })
	if err != nil && regular.Err() != nil && ctx.Err() == nil {
		// The regular unmount still hangs and holds its key, or it waits for other calls that hang
		// on the same server.
		err = p.cfg.Guard.Rescue(ctx, place.Path+" (by force)", "force unmount of NFS volume",
			func() error { return p.detach(place.Path) })
	}
	if err != nil {
		return err
	}
	return p.cfg.Guard.Do(ctx, place.Path+" (removed)", "remove directory of NFS volume",
		func() error { return removeEmpty(place.Path) })
}

// removeEmpty removes an empty directory; it never removes data.
func removeEmpty(dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
