package csi

import (
	"context"
	"errors"
	"io/fs"

	csiv1 "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"keelson/internal/storage/volume"
	"keelson/internal/storage/volume/persistent"
)

var _ persistent.Measurer = (*Plugin)(nil)

// Measure calls NodeGetVolumeStats, if the driver has the capability.
func (p *Plugin) Measure(ctx context.Context, place volume.Place, path string) (volume.Measured, error) {
	rec, err := p.recordOf(place)
	if errors.Is(err, fs.ErrNotExist) {
		return volume.Measured{}, volume.ErrNoStats
	}
	if err != nil {
		return volume.Measured{}, err
	}
	sess, err := p.cfg.Drivers.open(rec.Driver)
	if err != nil {
		return volume.Measured{}, err
	}
	defer sess.close()
	if able, err := sess.can(ctx, canStat); err != nil || !able {
		if err == nil {
			err = volume.ErrNoStats
		}
		return volume.Measured{}, err
	}
	got, err := sess.node.NodeGetVolumeStats(ctx, &csiv1.NodeGetVolumeStatsRequest{
		VolumeId:   rec.Handle,
		VolumePath: path,
	})
	if status.Code(err) == codes.Unimplemented {
		return volume.Measured{}, volume.ErrNoStats
	}
	if err != nil {
		return volume.Measured{}, err
	}
	m := volume.Measured{Source: rec.Driver}
	for _, u := range got.Usage {
		switch u.Unit {
		case csiv1.VolumeUsage_BYTES:
			m.Used, m.Capacity, m.Available = amount(u.Used), amount(u.Total), amount(u.Available)
		case csiv1.VolumeUsage_INODES:
			m.InodesUsed, m.Inodes, m.InodesFree = amount(u.Used), amount(u.Total), amount(u.Available)
		}
	}
	if !p.cfg.Health || got.VolumeCondition == nil {
		return m, nil
	}
	able, err := sess.can(ctx, canCondition)
	if able {
		m.Health = &volume.Health{Abnormal: got.VolumeCondition.Abnormal, Message: got.VolumeCondition.Message}
	}
	return m, err
}

// amount converts a figure of a driver. Negative ones are invalid.
func amount(n int64) uint64 { return uint64(max(n, 0)) }
