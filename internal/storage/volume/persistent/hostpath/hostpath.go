package hostpath

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
	"keelson/internal/storage/volume/persistent"
)

const name = "kubernetes.io/host-path"

var errBackstep = errors.New("must not contain '..'")

// Plugin serves hostPath volumes.
type Plugin struct{ guard *mount.Guard }

// New makes the plugin.
func New(guard *mount.Guard) *Plugin { return &Plugin{guard} }

func (*Plugin) Name() string { return name }

func (*Plugin) Serves(s persistent.Spec) bool { return source(s) != nil }

func source(s persistent.Spec) *v1.HostPathVolumeSource {
	switch {
	case s.PV != nil:
		return s.PV.Spec.HostPath
	case s.Inline != nil:
		return s.Inline.HostPath
	}
	return nil
}

// Publish checks the type of the path. The files are neither relabelled nor given to the pod's
// fsGroup.
func (p *Plugin) Publish(ctx context.Context, r persistent.Request) (persistent.Published, error) {
	src := source(r.Spec)
	if slices.Contains(strings.Split(src.Path, "/"), "..") {
		return persistent.Published{}, fmt.Errorf("invalid HostPath `%s`: %w", src.Path, errBackstep)
	}
	if src.Type != nil && *src.Type != v1.HostPathUnset {
		err := p.guard.Do(ctx, src.Path, "check type of host path", func() error {
			return checkType(src.Path, *src.Type)
		})
		if err != nil {
			return persistent.Published{}, err
		}
	}
	return persistent.Published{Path: src.Path, ReadOnly: r.ReadOnly}, nil
}

// Measure returns ErrNoStats: the content is not the pod's alone.
func (*Plugin) Measure(context.Context, volume.Place, string) (volume.Measured, error) {
	return volume.Measured{}, volume.ErrNoStats
}

func (*Plugin) TakesNoMountOptions() {}

func (*Plugin) Describe(context.Context, persistent.Spec) (persistent.Traits, error) {
	return persistent.Traits{}, nil
}

func (*Plugin) Stage(context.Context, persistent.Request) error  { return nil }
func (*Plugin) Unstage(context.Context, persistent.Device) error { return nil }
func (*Plugin) Unpublish(context.Context, volume.Place) error    { return nil }
func (*Plugin) Devices() ([]persistent.Device, error)            { return nil, nil }
func (*Plugin) DeviceOf(volume.Place) (persistent.Traits, error) { return persistent.Traits{}, nil }
