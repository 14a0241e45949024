package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	csiv1 "github.com/container-storage-interface/spec/lib/go/csi"

	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume/persistent"
)

// Stage calls NodeStageVolume. A record is also written for drivers that do not stage, since
// volumesInUse is derived from it.
func (p *Plugin) Stage(ctx context.Context, r persistent.Request) error {
	s := sourceOf(r)
	sess, err := p.cfg.Drivers.openFor(s.driver, r.Migrated)
	if err != nil {
		what := "attacher.MountDevice failed to create newCsiDriverClient"
		if s.block {
			what = "blockMapper.SetUpDevice failed to get CSI client"
		}
		return failed(what, err)
	}
	defer sess.close()
	stages, err := sess.can(ctx, canStage)
	switch {
	case err != nil && s.block:
		return failed("blockMapper.stageVolumeForBlock failed to check STAGE_UNSTAGE_VOLUME capability", err)
	case err != nil:
		return err
	}
	req, err := p.stageRequest(ctx, sess, r, s)
	if err != nil {
		return err
	}
	dir := p.recordDirOf(s, r.Name)
	had, err := hasRecord(dir)
	if err != nil {
		return err
	}
	rec := record{Driver: s.driver, Handle: s.handle, SELinux: r.Label}
	if s.block {
		rec.Name, rec.Node, rec.AttachmentID = r.Name, p.cfg.Node, AttachmentName(s.handle, s.driver, p.cfg.Node)
	}
	if err := p.putRecord(dir, rec); err != nil {
		if s.block {
			err = failed("csi.NewBlockVolumeMapper failed to save volume info data", err)
			return persistent.Failed(r, persistent.StepInit, err)
		}
		return failed("failed to save volume info data", err)
	}
	if !stages {
		return nil
	}
	if err := makePoint(req.StagingTargetPath); err != nil {
		what := fmt.Sprintf("attacher.MountDevice failed to create dir %q", req.StagingTargetPath)
		if s.block {
			what = "blockMapper.stageVolumeForBlock failed to create dir " + req.StagingTargetPath
		}
		return persistent.Unknown(failed(what, err)) // there is a record
	}
	_, err = sess.node.NodeStageVolume(ctx, req)
	switch err = markUnknown(err); {
	case err == nil, persistent.IsUnknown(err):
		return err
	case had: // the outcome of an earlier call is unknown
		return persistent.Unknown(err)
	}
	return persistent.Undone(err, p.sweep(ctx, dir, req.StagingTargetPath))
}

func (p *Plugin) recordDirOf(s source, name string) string {
	if s.block {
		return p.paths.blockRecord(name)
	}
	return p.paths.device(s.driver, s.handle)
}

func (p *Plugin) stagingPath(s source, name string) string {
	if s.block {
		return p.paths.blockStaging(name)
	}
	return filepath.Join(p.paths.device(s.driver, s.handle), globalMount)
}

func hasRecord(dir string) (bool, error) {
	_, err := os.Lstat(filepath.Join(dir, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (p *Plugin) stageRequest(
	ctx context.Context, sess *session, r persistent.Request, s source,
) (*csiv1.NodeStageVolumeRequest, error) {
	published, err := p.publishContext(ctx, r, s)
	if err != nil {
		return nil, err
	}
	secrets, err := p.stageSecrets(ctx, r)
	if err != nil {
		return nil, err
	}
	capability, err := p.capability(ctx, sess, s, r.Pod)
	if err != nil {
		return nil, failed("attacher.MountDevice failed to determine "+
			"if the node service has VOLUME_MOUNT_GROUP capability", err)
	}
	return &csiv1.NodeStageVolumeRequest{
		VolumeId:          s.handle,
		PublishContext:    published,
		StagingTargetPath: p.stagingPath(s, r.Name),
		VolumeCapability:  capability,
		Secrets:           secrets,
		VolumeContext:     s.attributes,
	}, nil
}

// Unstage calls NodeUnstageVolume for the volume of the record.
func (p *Plugin) Unstage(ctx context.Context, d persistent.Device) error {
	dir := d.Dir
	if dir == "" { // staged by this process
		s, err := splitName(d.ID)
		if err != nil {
			return err
		}
		s.block = d.Block
		dir = p.recordDirOf(s, d.Name)
	}
	rec, err := p.deviceRecord(recordDir{dir, d.Name, d.Block})
	if errors.Is(err, fs.ErrNotExist) {
		return p.sweep(ctx, dir, "")
	}
	if err != nil {
		return err
	}
	staging := filepath.Join(dir, globalMount)
	if d.Block {
		staging = p.paths.blockStaging(d.Name)
	}
	sess, err := p.cfg.Drivers.open(rec.Driver)
	if err != nil {
		return failed("attacher.UnmountDevice failed to create newCsiDriverClient", err)
	}
	defer sess.close()
	stages, err := sess.can(ctx, canStage)
	if err != nil {
		return err
	}
	if stages {
		if _, err := sess.node.NodeUnstageVolume(ctx, &csiv1.NodeUnstageVolumeRequest{
			VolumeId:          rec.Handle,
			StagingTargetPath: staging,
		}); err != nil {
			return markUnknown(err)
		}
	}
	return p.sweep(ctx, dir, staging)
}

// sweep removes the staging directories. Only empty directories are removed. One with content or a
// mount stays, and so does the record.
func (p *Plugin) sweep(ctx context.Context, dir, staging string) error {
	return p.cfg.Guard.Do(ctx, dir, "remove staging directory", func() error {
		if staging != "" {
			if err := removePoint(staging); err != nil {
				return err
			}
		}
		if err := removeRecord(dir); err != nil {
			return err
		}
		if filepath.Base(dir) == "data" {
			_ = os.Remove(filepath.Dir(dir)) // shared with other volumes
		}
		return nil
	})
}

// makePoint creates a mount point. If it is mounted already it may hang, so it is not accessed.
func makePoint(path string) error {
	if on, err := mount.IsListed(path); on || err != nil {
		return err
	}
	return os.MkdirAll(path, dirMode)
}

// removePoint removes a mount point, directory or file, which must not be mounted.
func removePoint(path string) error {
	on, err := mount.IsPoint(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case on:
		return fmt.Errorf("remove %s: %w", path, mount.ErrMounted)
	}
	return remove(path)
}
