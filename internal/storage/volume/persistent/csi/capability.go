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

// source is a volume as its driver is told of it.
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
		s := source{driver: in.CSI.Driver, handle: inlineHandle(r.Pod.UID, in.Name), attributes: in.CSI.VolumeAttributes, lifecycle: ephemeral}
		if in.CSI.FSType != nil {
			s.fsType = *in.CSI.FSType
		}
		s.readOnly = in.CSI.ReadOnly != nil && *in.CSI.ReadOnly
		return s
	}
	c := r.PV.Spec.CSI
	return source{driver: c.Driver, handle: c.VolumeHandle, fsType: c.FSType, attributes: c.VolumeAttributes, readOnly: r.ReadOnly,
		modes: r.PV.Spec.AccessModes, options: slices.Concat(r.PV.Spec.MountOptions, r.LabelOption()), lifecycle: lasting, block: r.Block}
}

// mode is the one access mode that the driver is told of.
func (s source) mode() v1.PersistentVolumeAccessMode {
	if len(s.modes) == 0 {
		return v1.ReadWriteOnce
	}
	return s.modes[0]
}

// capability is what the volume is to be usable as.
func (p *Plugin) capability(ctx context.Context, sess *session, s source, pod *v1.Pod) (*csiv1.VolumeCapability, error) {
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

// accessMode is upstream's mapping. A driver that can tell several writers on one
// node from a single one is told which it is.
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

// groupIsOurs reports whether the agent gives the volume to the pod's group, by
// the driver's policy.
func groupIsOurs(d *storagev1.CSIDriver, s source) bool {
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
	// Others may use a volume that is not of one node: it is not changed for one pod.
	return s.fsType != "" && (s.lifecycle == ephemeral ||
		slices.Contains(s.modes, v1.ReadWriteOnce) || slices.Contains(s.modes, v1.ReadWriteOncePod))
}
