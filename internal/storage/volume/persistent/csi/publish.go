package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	csiv1 "github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"

	"keelson/internal/storage/volume"
	"keelson/internal/storage/volume/persistent"
)

// Publish calls NodePublishVolume.
func (p *Plugin) Publish(ctx context.Context, r persistent.Request) (persistent.Published, error) {
	s := sourceOf(r)
	sess, err := p.cfg.Drivers.openFor(s.driver, r.Migrated)
	if err != nil {
		what := "mounter.SetUpAt failed to get CSI client"
		if s.block {
			what = "blockMapper.MapPodDevice failed to get CSI client"
		}
		return persistent.Published{}, failed(what, err)
	}
	defer sess.close()
	d, err := p.driver(ctx, s.driver)
	if err != nil {
		return persistent.Published{}, err
	}
	if err := checkMode(d, s.driver, s.lifecycle); err != nil && !s.block {
		return persistent.Published{}, failed("mounter.SetupAt failed to check volume lifecycle mode", err)
	}
	req, err := p.publishRequest(ctx, sess, r, s, d)
	if err != nil {
		return persistent.Published{}, err
	}
	had := p.published(r.Place)
	if err := p.preparePlace(r, s); err != nil {
		return persistent.Published{}, err
	}
	if _, err := sess.node.NodePublishVolume(ctx, req); err != nil {
		err = markUnknown(err)
		switch {
		case persistent.IsUnknown(err):
		case had: // the pod may be using it; the next call will update it
			err = persistent.Unknown(err)
		default:
			err = persistent.Undone(err, p.clear(ctx, r.Place, req.TargetPath))
		}
		return persistent.Published{}, err
	}
	if err := p.group(ctx, sess, r, s, d, req.TargetPath); err != nil {
		return persistent.Published{}, persistent.Unknown(fmt.Errorf("applyFSGroup failed for vol %s: %w", s.handle,
			err))
	}
	out := persistent.Published{Path: req.TargetPath, ReadOnly: s.readOnly}
	if s.block {
		out.Path, out.Device = "", req.TargetPath
	} else if out.Relabel, err = p.cfg.HasLabels(req.TargetPath); err != nil {
		return persistent.Published{}, persistent.Unknown(fmt.Errorf("error checking for SELinux support: %w", err))
	}
	if r.Label != "" && out.Relabel {
		// The pod can use it, as if the driver did not support mounting with a label.
		p.cfg.Log.Warn("CSI driver did not mount volume with the requested SELinux label", "pod",
			r.Pod.Namespace+"/"+r.Pod.Name, "podUID", r.Pod.UID,
			"driver", s.driver, "volumeName", r.Name, "label", r.Label)
	}
	if d != nil && d.Spec.RequiresRepublish != nil && *d.Spec.RequiresRepublish {
		out.RenewAt = time.Now().Add(p.cfg.Republish)
	}
	return out, nil
}

func (p *Plugin) publishRequest(
	ctx context.Context, sess *session, r persistent.Request, s source, d *storagev1.CSIDriver,
) (*csiv1.NodePublishVolumeRequest, error) {
	req := &csiv1.NodePublishVolumeRequest{
		VolumeId:      s.handle,
		TargetPath:    p.target(r.Place),
		Readonly:      s.readOnly,
		VolumeContext: volumeContext(d, s, r.Pod),
	}
	stages := false
	var err error
	if s.lifecycle == lasting {
		if stages, err = sess.can(ctx, canStage); err != nil {
			return nil, failed("mounter.SetUpAt failed to check for STAGE_UNSTAGE_VOLUME capability", err)
		}
	}
	if stages {
		req.StagingTargetPath = p.stagingPath(s, r.Name)
	}
	if req.PublishContext, err = p.publishContext(ctx, r, s); err != nil {
		return nil, err
	}
	if req.VolumeCapability, err = p.capability(ctx, sess, s, r.Pod); err != nil {
		return nil, failed("mounter.SetUpAt failed to determine if the node service has VOLUME_MOUNT_GROUP capability",
			err)
	}
	if req.Secrets, err = p.publishSecrets(ctx, r); err != nil {
		return nil, err
	}
	tokens, err := p.tokens(ctx, d, r.Pod)
	switch {
	case err != nil:
		return nil, failed("mounter.SetUpAt failed to get service accoount token attributes", err) // sic, as upstream
	case tokens != "" && inSecrets(d):
		req.Secrets = with(req.Secrets, keyTokens, tokens)
	case tokens != "":
		req.VolumeContext = with(req.VolumeContext, keyTokens, tokens)
	}
	return req, nil
}

// target returns the target path for the pod.
func (p *Plugin) target(place volume.Place) string {
	if place.Block {
		return p.paths.blockPublish(place.Name, place.UID)
	}
	return filepath.Join(place.Path, publishedDir)
}

// published reports whether the volume may be published already.
func (p *Plugin) published(place volume.Place) bool {
	if place.Block {
		_, err := os.Lstat(p.target(place))
		return err == nil
	}
	had, err := hasRecord(place.Path)
	return had || err != nil
}

// preparePlace writes the record, and creates the parent directory of the target path.
func (p *Plugin) preparePlace(r persistent.Request, s source) error {
	if s.block {
		dir := filepath.Dir(p.target(r.Place))
		if err := os.MkdirAll(dir, dirMode); err != nil {
			return failed("blockMapper.publishVolumeForBlock failed to create dir "+dir, err)
		}
		return nil
	}
	rec := record{
		Driver:       s.driver,
		Handle:       s.handle,
		Name:         r.Name,
		Node:         p.cfg.Node,
		Lifecycle:    s.lifecycle,
		SELinux:      r.Label,
		AttachmentID: AttachmentName(s.handle, s.driver, p.cfg.Node),
	}
	return p.putRecord(r.Place.Path, rec)
}

// group applies the fsGroup, unless the driver does.
func (p *Plugin) group(
	ctx context.Context, sess *session, r persistent.Request, s source, d *storagev1.CSIDriver, path string,
) error {
	_, wants := groupOf(r.Pod)
	if !wants || s.block || s.readOnly || !appliesFSGroup(d, s) {
		return nil
	}
	delegated, err := sess.can(ctx, canGroup)
	if err != nil || delegated {
		return err
	}
	return p.cfg.Sharing.SetFSGroup(ctx, r.Pod, path, s.readOnly)
}

// Unpublish calls NodeUnpublishVolume. Without a record NodePublishVolume was never called.
func (p *Plugin) Unpublish(ctx context.Context, place volume.Place) error {
	target := p.target(place)
	rec, err := p.recordOf(place)
	if errors.Is(err, fs.ErrNotExist) {
		return p.clear(ctx, place, target)
	}
	if err != nil {
		return err
	}
	sess, err := p.cfg.Drivers.open(rec.Driver)
	if err != nil {
		return failed("Unmounter.TearDownAt failed to get CSI client", err)
	}
	defer sess.close()
	if _, err := sess.node.NodeUnpublishVolume(ctx, &csiv1.NodeUnpublishVolumeRequest{
		VolumeId:   rec.Handle,
		TargetPath: target,
	}); err != nil {
		return failed("Unmounter.TearDownAt failed", markUnknown(err))
	}
	if err := p.clear(ctx, place, target); err != nil {
		return err
	}
	if p.cfg.Tokens != nil {
		p.cfg.Tokens.Forget(place.UID)
	}
	return nil
}

// clear removes the pod's directories, the record last. It fails if the driver left a mount, and is
// retried.
func (p *Plugin) clear(ctx context.Context, place volume.Place, target string) error {
	return p.cfg.Guard.Do(ctx, place.Path, "remove volume directory", func() error {
		if err := removePoint(target); err != nil {
			return err
		}
		if !place.Block {
			return removeRecord(place.Path)
		}
		_ = os.Remove(filepath.Dir(target)) // shared with other pods
		return remove(place.Path)
	})
}
