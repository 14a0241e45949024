package volume

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// Mounts returns the container's volume mounts in the order of its specification. Sub-paths are
// bind mounted first, so the volumes must be ready. expand expands $(NAME) in subPathExpr.
func (m *Manager) Mounts(
	ctx context.Context, p *v1.Pod, c *v1.Container, expand func(string) (string, error),
) ([]pod.Mount, error) {
	have, err := m.readyVolumes(p, c)
	if err != nil {
		return nil, err
	}
	mounts := make([]pod.Mount, 0, len(c.VolumeMounts))
	for i := range c.VolumeMounts {
		vm := &c.VolumeMounts[i]
		v := have[vm.Name]
		sub, err := subPathOf(vm, expand)
		if err != nil {
			return nil, err
		}
		out := pod.Mount{
			Volume:        vm.Name,
			HostPath:      v.Path,
			ContainerPath: vm.MountPath,
			ReadOnly:      vm.ReadOnly || v.ReadOnly,
			Image:         v.Image,

			SELinuxRelabel: v.Relabel,
		}
		if !filepath.IsAbs(out.ContainerPath) {
			out.ContainerPath = "/" + out.ContainerPath
		}
		if vm.MountPropagation != nil {
			out.Propagation = *vm.MountPropagation
		}
		if out.RecursiveReadOnly, err = recursiveReadOnly(vm,
			func() bool { return m.cfg.RecursiveReadOnly(p) }); err != nil {
			return nil, fmt.Errorf("failed to resolve recursive read-only mode: %w", err)
		}
		switch {
		case v.Image != "":
			out.ImageSubPath = sub
		case sub != "":
			if out.HostPath, err = m.subPath(ctx, p.UID, c.Name, cmp.Or(v.Name, vm.Name), i, v.Path, sub); err != nil {
				return nil, subPathFailed(vm.Name, c.Name, err)
			}
		}
		mounts = append(mounts, out)
	}
	return mounts, nil
}

// Groups returns the supplemental groups of the pod's volumes. They are known when the volumes are
// ready.
func (m *Manager) Groups(p *v1.Pod) []int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	ps := m.pods[p.UID]
	if ps == nil {
		return nil
	}
	var has []int64
	if sc := p.Spec.SecurityContext; sc != nil {
		has = sc.SupplementalGroups
	}
	var out []int64
	for _, spec := range needed(p) {
		v := ps.vols[spec.Name]
		if v == nil || !v.ready || v.have.Group == nil {
			continue
		}
		if g := *v.have.Group; !slices.Contains(has, g) && !slices.Contains(out, g) {
			out = append(out, g)
		}
	}
	return out
}

// Devices returns the container's block devices from volumes.
func (m *Manager) Devices(p *v1.Pod, c *v1.Container) ([]pod.Device, error) {
	if len(c.VolumeDevices) == 0 {
		return nil, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	have := map[string]Ready{}
	if ps := m.pods[p.UID]; ps != nil && ps.phase == wanted {
		for name, v := range ps.vols {
			if v.ready {
				have[name] = v.have
			}
		}
	}
	return devicesOf(c, have)
}

// readyVolumes returns the volumes that the container mounts.
func (m *Manager) readyVolumes(p *v1.Pod, c *v1.Container) (map[string]Ready, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	have := map[string]Ready{}
	ps := m.pods[p.UID]
	for i := range c.VolumeMounts {
		name := c.VolumeMounts[i].Name
		if ps == nil || ps.phase != wanted || ps.vols[name] == nil || !ps.vols[name].ready {
			return nil, fmt.Errorf("cannot find volume %q to mount into container %q", name, c.Name)
		}
		have[name] = ps.vols[name].have
	}
	return have, nil
}

// subPathOf returns the sub-path of a mount, "" for the whole volume.
func subPathOf(vm *v1.VolumeMount, expand func(string) (string, error)) (string, error) {
	sub := vm.SubPath
	if vm.SubPathExpr != "" {
		var err error
		if sub, err = expand(vm.SubPathExpr); err != nil {
			return "", err
		}
	}
	if filepath.IsAbs(sub) {
		return "", fmt.Errorf("error SubPath `%s` must not be an absolute path", sub)
	}
	if slices.Contains(strings.Split(sub, "/"), "..") {
		return "", fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", sub)
	}
	return sub, nil
}

// recursiveReadOnly decides whether the mount is recursively read-only.
func recursiveReadOnly(vm *v1.VolumeMount, supported func() bool) (bool, error) {
	if vm.RecursiveReadOnly == nil || *vm.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	if !vm.ReadOnly {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not read-only", vm.Name)
	}
	if p := vm.MountPropagation; p != nil && *p != v1.MountPropagationNone {
		return false, fmt.Errorf(
			"volume %q requested recursive read-only mode, but it is not compatible with propagation %q",
			vm.Name, *p)
	}
	switch *vm.RecursiveReadOnly {
	case v1.RecursiveReadOnlyIfPossible:
		return supported(), nil
	case v1.RecursiveReadOnlyEnabled:
		if !supported() {
			return false, fmt.Errorf(
				"volume %q requested recursive read-only mode, but it is not supported by the runtime",
				vm.Name)
		}
		return true, nil
	}
	return false, fmt.Errorf("unknown recursive read-only mode %q", *vm.RecursiveReadOnly)
}
