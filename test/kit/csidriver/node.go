package csidriver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type node struct {
	csi.UnimplementedNodeServer
	driver *Driver
}

func (n *node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	n.driver.mu.Lock()
	c := n.driver.cfg
	n.driver.mu.Unlock()
	out := &csi.NodeGetInfoResponse{NodeId: c.Node, MaxVolumesPerNode: c.Max}
	if c.Topology != nil {
		out.AccessibleTopology = &csi.Topology{Segments: c.Topology}
	}
	return out, nil
}

func (n *node) NodeGetCapabilities(
	context.Context, *csi.NodeGetCapabilitiesRequest,
) (*csi.NodeGetCapabilitiesResponse, error) {
	c := n.driver.cfg
	out := &csi.NodeGetCapabilitiesResponse{}
	add := func(has bool, what csi.NodeServiceCapability_RPC_Type) {
		if has {
			out.Capabilities = append(
				out.Capabilities,
				&csi.NodeServiceCapability{
					Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: what}},
				},
			)
		}
	}
	add(!c.NoStage, csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
	add(!c.NoExpand, csi.NodeServiceCapability_RPC_EXPAND_VOLUME)
	add(true, csi.NodeServiceCapability_RPC_GET_VOLUME_STATS)
	add(true, csi.NodeServiceCapability_RPC_VOLUME_CONDITION)
	add(c.MountGroup, csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP)
	add(c.MultiWriter, csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)
	return out, nil
}

// need reports what a request lacks.
func need(what, value string) error {
	if value == "" {
		return status.Errorf(codes.InvalidArgument, "%s is missing", what)
	}
	return nil
}

func needed(c *csi.VolumeCapability) error {
	if c == nil {
		return status.Error(codes.InvalidArgument, "volume capability is missing")
	}
	return nil
}

func (n *node) NodeStageVolume(_ context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if err := errors.Join(need("volume id", r.VolumeId), need("staging target path", r.StagingTargetPath),
		needed(r.VolumeCapability)); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if r.VolumeCapability.GetBlock() != nil {
		return &csi.NodeStageVolumeResponse{}, nil // it is attached when it is published
	}
	data, err := n.data(r.VolumeId)
	if err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, bind(data, r.StagingTargetPath, false)
}

func (n *node) NodeUnstageVolume(
	_ context.Context, r *csi.NodeUnstageVolumeRequest,
) (*csi.NodeUnstageVolumeResponse, error) {
	if err := errors.Join(need("volume id", r.VolumeId), need("staging target path", r.StagingTargetPath)); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return &csi.NodeUnstageVolumeResponse{}, unbind(r.StagingTargetPath)
}

func (n *node) NodePublishVolume(
	_ context.Context, r *csi.NodePublishVolumeRequest,
) (*csi.NodePublishVolumeResponse, error) {
	if err := errors.Join(need("volume id", r.VolumeId), need("target path", r.TargetPath),
		needed(r.VolumeCapability)); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	out := &csi.NodePublishVolumeResponse{}
	if r.VolumeCapability.GetBlock() != nil {
		return out, n.publishBlock(r)
	}
	source := r.StagingTargetPath
	if source == "" {
		var err error
		if source, err = n.data(r.VolumeId); err != nil {
			return nil, err
		}
	} else if !mounted(source) {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is not staged at %s", r.VolumeId, source)
	}
	if err := os.Mkdir(r.TargetPath, 0o750); err != nil && !os.IsExist(err) {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return out, bind(source, r.TargetPath, r.Readonly)
}

func (n *node) NodeUnpublishVolume(
	_ context.Context, r *csi.NodeUnpublishVolumeRequest,
) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := errors.Join(need("volume id", r.VolumeId), need("target path", r.TargetPath)); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if err := unbind(r.TargetPath); err != nil {
		return nil, err
	}
	if err := os.Remove(r.TargetPath); err != nil && !os.IsNotExist(err) {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodeUnpublishVolumeResponse{}, n.detach(r.VolumeId)
}

func (n *node) NodeExpandVolume(
	_ context.Context, r *csi.NodeExpandVolumeRequest,
) (*csi.NodeExpandVolumeResponse, error) {
	if err := errors.Join(need("volume id", r.VolumeId), need("volume path", r.VolumePath)); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if _, err := n.known(r.VolumeId); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(r.VolumePath); err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	size := r.CapacityRange.GetRequiredBytes()
	if err := os.WriteFile(n.driver.Data(r.VolumeId)+".size", []byte(strconv.FormatInt(size, 10)), 0o600); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: size}, nil
}

func (n *node) NodeGetVolumeStats(
	_ context.Context, r *csi.NodeGetVolumeStatsRequest,
) (*csi.NodeGetVolumeStatsResponse, error) {
	if err := errors.Join(need("volume id", r.VolumeId), need("volume path", r.VolumePath)); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if _, err := n.known(r.VolumeId); err != nil {
		return nil, err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(r.VolumePath, &st); err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	size := int64(st.Bsize)
	return &csi.NodeGetVolumeStatsResponse{
		Usage: []*csi.VolumeUsage{
			{
				Unit:      csi.VolumeUsage_BYTES,
				Total:     int64(st.Blocks) * size,
				Available: int64(st.Bavail) * size,
				Used:      int64(st.Blocks-st.Bfree) * size,
			},
			{
				Unit:      csi.VolumeUsage_INODES,
				Total:     int64(st.Files),
				Available: int64(st.Ffree),
				Used:      int64(st.Files - st.Ffree),
			},
		},
		VolumeCondition: &csi.VolumeCondition{Abnormal: n.driver.cfg.Abnormal, Message: "as it is"},
	}, nil
}

// known is where a volume's data is, if there is such a volume.
func (n *node) known(id string) (string, error) {
	data := n.driver.Data(id)
	if _, err := os.Stat(data); err != nil {
		return "", status.Errorf(codes.NotFound, "volume %s not found", id)
	}
	return data, nil
}

// data is like known, but creates a volume whose ID shows that CreateVolume is not called for
// it: the ID of an inline volume begins with csi-, that of a volume of a test with test-.
func (n *node) data(id string) (string, error) {
	data := n.driver.Data(id)
	if strings.HasPrefix(id, "csi-") || strings.HasPrefix(id, "test-") {
		if err := os.MkdirAll(data, 0o777); err != nil {
			return "", status.Error(codes.Internal, err.Error())
		}
	}
	return n.known(id)
}

func mounted(path string) bool {
	var own, parent unix.Stat_t
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || unix.Lstat(path, &own) != nil || unix.Lstat(filepath.Dir(path), &parent) != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && strings.ReplaceAll(f[4], `\040`, " ") == path {
			return true
		}
	}
	return false
}

func bind(source, target string, readOnly bool) error {
	if mounted(target) {
		return nil
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return status.Errorf(codes.Internal, "bind %s at %s: %v", source, target, err)
	}
	if readOnly {
		if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return status.Errorf(codes.Internal, "make %s read-only: %v", target, err)
		}
	}
	return nil
}

func unbind(target string) error {
	for mounted(target) {
		if err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW); err != nil {
			return status.Errorf(codes.Internal, "unmount %s: %v", target, err)
		}
	}
	return nil
}

// publishBlock attaches the volume's file to a loop device and binds that.
func (n *node) publishBlock(r *csi.NodePublishVolumeRequest) error {
	if mounted(r.TargetPath) {
		return nil
	}
	image := n.driver.Data(r.VolumeId) + ".img"
	f, err := os.OpenFile(image, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	defer f.Close()
	if err := os.MkdirAll(filepath.Dir(image), 0o750); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	if err := f.Truncate(4 << 20); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	dev, err := loopOf(image)
	if err == nil && dev == "" {
		dev, err = attach(f)
	}
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	t, err := os.OpenFile(r.TargetPath, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	t.Close()
	return bind(dev, r.TargetPath, false)
}

func attach(f *os.File) (string, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer control.Close()
	num, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return "", err
	}
	dev := fmt.Sprintf("/dev/loop%d", num)
	loop, err := os.OpenFile(dev, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer loop.Close()
	return dev, unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_SET_FD, int(f.Fd()))
}

func loopOf(image string) (string, error) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return "", err
	}
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.TrimSpace(string(b)) == image {
			return "/dev/" + strings.Split(f, "/")[3], nil
		}
	}
	return "", nil
}

// detach detaches a block volume from its loop device.
func (n *node) detach(id string) error {
	dev, err := loopOf(n.driver.Data(id) + ".img")
	if dev == "" || err != nil {
		return err
	}
	loop, err := os.OpenFile(dev, os.O_RDONLY, 0)
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	defer loop.Close()
	if err := unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}
