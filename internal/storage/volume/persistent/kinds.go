package persistent

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/storage/volume"
)

// claimKind serves volumes of claims. It has no directory of its own: what it prepares belongs to
// the plugin.
type claimKind struct{ v *Volumes }

func (claimKind) Plugin() string { return "kubernetes.io/persistent-claim" }

func (claimKind) Serves(src *v1.Volume) bool {
	return src.PersistentVolumeClaim != nil || src.Ephemeral != nil
}

func (claimKind) Inputs(*v1.Volume) volume.Inputs             { return volume.Inputs{} }
func (claimKind) Release(context.Context, volume.Place) error { return nil }
func (k claimKind) Gone(uid types.UID)                        { k.v.dropHolds(uid) }

func (k claimKind) Prepare(ctx context.Context, r volume.Request) (volume.Ready, error) {
	s, err := k.v.resolve(ctx, r.Pod, r.Volume)
	if err != nil {
		return volume.Ready{}, err
	}
	return k.v.byPlugin(ctx, r.Pod, s)
}

// byPlugin prepares a volume with the plugin that serves it.
func (v *Volumes) byPlugin(ctx context.Context, p *v1.Pod, s Spec) (volume.Ready, error) {
	for _, plugin := range v.cfg.Plugins {
		if plugin.Serves(s) {
			out, err := v.prepare(ctx, p, s, plugin)
			out.Counted, out.Migrated = countedAs(plugin, s), s.Migrated
			if s.Block && out.Did == volume.Mounted {
				out.Did = volume.Mapped
			}
			return out, err
		}
	}
	return volume.Ready{}, &volume.Unresolved{
		Err: fmt.Errorf("failed to get Plugin from volumeSpec for volume %q err=%w", s.Name, volume.ErrNoPlugin),
	}
}

// counted is a Plugin with several names in metrics.
type counted interface {
	CountedAs(s Spec) string
	FoundAs(p volume.Place) string // of a published volume
	StagedAs(d Device) string
}

// stagedAs returns the name in metrics of a device's plugin.
func stagedAs(p Plugin, d Device) string {
	if c, ok := p.(counted); ok {
		return c.StagedAs(d)
	}
	return p.Name()
}

// pluginKind serves inline volumes of a plugin, and releases all volumes of the plugin.
type pluginKind struct {
	v *Volumes
	p Plugin
}

func (k pluginKind) Plugin() string                  { return k.p.Name() }
func (k pluginKind) Inputs(*v1.Volume) volume.Inputs { return volume.Inputs{} }

func (k pluginKind) Serves(src *v1.Volume) bool {
	return k.p.Serves(Spec{Name: src.Name, Inline: src})
}

func (k pluginKind) Prepare(ctx context.Context, r volume.Request) (volume.Ready, error) {
	s := Spec{Name: r.Volume.Name, Inline: r.Volume}
	out, err := k.v.prepare(ctx, r.Pod, s, k.p)
	out.Counted = countedAs(k.p, s)
	return out, err
}

// countedAs returns the name in metrics of a volume's plugin.
func countedAs(p Plugin, s Spec) string {
	if c, ok := p.(counted); ok {
		return c.CountedAs(s)
	}
	return p.Name()
}

// CountedAs implements [volume.Counted].
func (k pluginKind) CountedAs(p volume.Place) string {
	if c, ok := k.p.(counted); ok {
		return c.FoundAs(p)
	}
	return k.p.Name()
}

func (k pluginKind) Release(ctx context.Context, p volume.Place) error {
	return k.v.release(ctx, k.p, p)
}
