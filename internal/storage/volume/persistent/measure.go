package persistent

import (
	"context"
	"strings"

	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
)

// Measurer is a Plugin that can measure its volumes. For others statfs is used.
type Measurer interface {
	// Measure measures a volume published at path. It returns volume.ErrNoStats if the plugin has
	// no figures.
	Measure(ctx context.Context, p volume.Place, path string) (volume.Measured, error)
}

func (k claimKind) Measure(ctx context.Context, r volume.Request, have volume.Ready) (volume.Measured, error) {
	found, err := volume.FoundOn(k.v.cfg.RootDir, r.UID, false)
	if err != nil {
		return volume.Measured{}, err
	}
	for _, f := range found {
		if !within(have.Path, f.Path) {
			continue
		}
		for _, p := range k.v.cfg.Plugins {
			if p.Name() == f.Plugin() {
				return k.v.measure(ctx, p, f.Place, have.Path)
			}
		}
	}
	return volume.Measured{}, volume.ErrNoStats // a block volume
}

func (k pluginKind) Measure(ctx context.Context, r volume.Request, have volume.Ready) (volume.Measured, error) {
	return k.v.measure(ctx, k.p, r.Place, have.Path)
}

func (v *Volumes) measure(ctx context.Context, plugin Plugin, p volume.Place, path string) (volume.Measured, error) {
	if m, ok := plugin.(Measurer); ok {
		return m.Measure(ctx, p, path)
	}
	m := volume.Measured{Source: "statfs"}
	err := v.cfg.Guard.Do(ctx, path+" (measured)", "measure volume", func() (err error) {
		m.Usage, err = mount.UsageOfFilesystem(path)
		return err
	})
	return m, err
}

// within reports whether path is place or below it.
func within(path, place string) bool {
	return path == place || strings.HasPrefix(path, place+"/")
}
