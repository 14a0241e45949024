package builtin

import (
	"context"

	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
)

// measureTree measures the disk usage of a volume's own files.
func measureTree(ctx context.Context, g *mount.Guard, r volume.Request) (volume.Measured, error) {
	m := volume.Measured{Source: "du"}
	// With the same key as the release, which would find the volume busy.
	err := g.Do(ctx, r.Path, "measure volume", func() (err error) {
		m.Usage, err = mount.UsageOfTree(ctx, r.Path)
		return err
	})
	return m, err
}

func (k emptyDir) Measure(ctx context.Context, r volume.Request, _ volume.Ready) (volume.Measured, error) {
	return measureTree(ctx, k.cfg.Guard, r)
}

func (k filesKind) Measure(ctx context.Context, r volume.Request, _ volume.Ready) (volume.Measured, error) {
	return measureTree(ctx, k.cfg.Guard, r)
}
