package csi

import (
	"context"
	"slices"
	"strconv"

	csiv1 "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"keelson/internal/storage/volume/persistent"
)

// source identifies a volume to its driver.
type source struct {
	driver     string
	handle     string
	fsType     string
	attributes map[string]string
	readOnly   bool
	modes      []v1.PersistentVolumeAccessMode
	options    []string
	lifecycle  string
	block      bool
}

func sourceOf(r persistent.Request) source {
	if in := r.Inline; in != nil {
		s := source{
			driver:     in.CSI.Driver,
			handle:     inlineHandle(r.Pod.UID, in.Name),
			attributes: in.CSI.VolumeAttributes,
			lifecycle:  ephemeral,
		}
		if in.CSI.FSType != nil {
			s.fsType = *in.CSI.FSType
		}
		s.readOnly = in.CSI.ReadOnly != nil && *in.CSI.ReadOnly
		return s
	}
	c := r.PV.Spec.CSI
	return source{
		driver:     c.Driver,
		handle:     c.VolumeHandle,
		fsType:     c.FSType,
		attributes: c.VolumeAttributes,
		readOnly:   r.ReadOnly,
		modes:      r.PV.Spec.AccessModes,
		options:    slices.Concat(r.PV.Spec.MountOptions, r.LabelOption()),
		lifecycle:  lasting,
		block:      r.Block,
	}
}

// mode returns the access mode to send to the driver.
func (s source) mode() v1.PersistentVolumeAccessMode {
	if len(s.modes) == 0 {
		return v1.ReadWriteOnce
	}
	return s.modes[0]
}

// capability returns the VolumeCapability of the volume.
func (p *Plugin) capability(
	ctx context.Context, sess *session, s source, pod *v1.Pod,
) (*csiv1.VolumeCapability, error) {
	multi, err := sess.can(ctx, canMultiWriter)
	if err != nil {
		return nil, err
	}
	c := &csiv1.VolumeCapability{AccessMode: &csiv1.VolumeCapability_AccessMode{Mode: accessMode(s.mode(), multi)}}
	if s.block {
		c.AccessType = &csiv1.VolumeCapability_Block{Block: &csiv1.VolumeCapability_BlockVolume{}}
		return c, nil
	}
	m := &csiv1.VolumeCapability_MountVolume{FsType: s.fsType, MountFlags: s.options}
	c.AccessType = &csiv1.VolumeCapability_Mount{Mount: m}
	if gid, ok := groupOf(pod); ok {
		delegated, err := sess.can(ctx, canGroup)
		if err != nil {
			return nil, err
		}
		if delegated {
			m.VolumeMountGroup = strconv.FormatInt(gid, 10)
		}
	}
	return c, nil
}

// accessMode maps access modes as upstream does. Drivers with SINGLE_NODE_MULTI_WRITER distinguish
// one writer from several on one node.
func accessMode(mode v1.PersistentVolumeAccessMode, multiWriter bool) csiv1.VolumeCapability_AccessMode_Mode {
	switch mode {
	case v1.ReadWriteOnce:
		if multiWriter {
			return csiv1.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
		}
		return csiv1.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	case v1.ReadWriteOncePod:
		if multiWriter {
			return csiv1.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
		}
		return csiv1.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	case v1.ReadOnlyMany:
		return csiv1.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case v1.ReadWriteMany:
		return csiv1.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	}
	return csiv1.VolumeCapability_AccessMode_UNKNOWN
}

func groupOf(p *v1.Pod) (int64, bool) {
	if sc := p.Spec.SecurityContext; sc != nil && sc.FSGroup != nil {
		return *sc.FSGroup, true
	}
	return 0, false
}

// appliesFSGroup reports whether the agent applies the fsGroup, by the driver's fsGroupPolicy.
func appliesFSGroup(d *storagev1.CSIDriver, s source) bool {
	policy := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	if d != nil && d.Spec.FSGroupPolicy != nil {
		policy = *d.Spec.FSGroupPolicy
	}
	switch policy {
	case storagev1.FileFSGroupPolicy:
		return true
	case storagev1.NoneFSGroupPolicy:
		return false
	}
	// A volume with other access modes may be in use on other nodes, so its ownership is not
	// changed.
	return s.fsType != "" && (s.lifecycle == ephemeral ||
		slices.Contains(s.modes, v1.ReadWriteOnce) || slices.Contains(s.modes, v1.ReadWriteOncePod))
}
