package builtin

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
)

// emptyDir is a directory with the lifetime of the pod: on the node's disk, in memory, or in huge
// pages.
type emptyDir struct{ cfg Config }

func (emptyDir) Plugin() string                  { return "kubernetes.io/empty-dir" }
func (emptyDir) Serves(v *v1.Volume) bool        { return v.EmptyDir != nil }
func (emptyDir) Inputs(*v1.Volume) volume.Inputs { return volume.Inputs{} }

func (k emptyDir) Release(ctx context.Context, p volume.Place) error {
	return release(ctx, k.cfg.Guard, p, false)
}

func (k emptyDir) Prepare(ctx context.Context, r volume.Request) (volume.Ready, error) {
	err := k.cfg.Guard.Do(ctx, r.Path, "make emptyDir", func() error { return k.make(r) })
	return volume.Ready{Path: r.Path, Relabel: true}, err
}

func (k emptyDir) make(r volume.Request) error {
	made, err := makeDir(r.Place)
	if err != nil {
		return err
	}
	meta := metaDir(r.Place, false)
	marked, err := isMarked(meta)
	if err != nil {
		return err
	}
	src := r.Volume.EmptyDir
	mounted, err := mount.IsPoint(r.Path)
	if err != nil {
		return err
	}
	// A complete memory-backed volume without its mount was lost in a reboot.
	if marked && !made && (mounted || src.Medium == v1.StorageMediumDefault) {
		return nil // containers may have changed its permissions
	}
	if !mounted {
		if err := k.mount(r.Pod, src, r.Path); err != nil {
			return err
		}
	}
	if err := makeAccessible(r.Path); err != nil {
		return err
	}
	if gid, ok := fsGroup(r.Pod); ok {
		if err := mount.SetGroup(r.Path, gid, false); err != nil {
			return err
		}
	}
	return mark(meta)
}

func (k emptyDir) mount(p *v1.Pod, src *v1.EmptyDirVolumeSource, path string) error {
	switch {
	case src.Medium == v1.StorageMediumDefault:
		return nil
	case src.Medium == v1.StorageMediumMemory:
		return mount.Tmpfs(path, memorySize(p, src.SizeLimit, k.cfg.Allocatable()))
	case src.Medium == v1.StorageMediumHugePages, strings.HasPrefix(string(src.Medium),
		string(v1.StorageMediumHugePagesPrefix)):
		size, err := pageSize(p, src.Medium)
		if err != nil {
			return err
		}
		return mount.Hugetlbfs(path, size)
	}
	return fmt.Errorf("unknown storage medium %q", src.Medium)
}
