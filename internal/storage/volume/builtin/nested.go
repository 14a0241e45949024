package builtin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// nestedMountPoints returns the paths, relative to the volume, at which containers mount other
// volumes in it. The runtime cannot create a mount point in a read-only volume. Only the topmost of
// nested mount points are returned, since the others are in the volume mounted there.
func nestedMountPoints(p *v1.Pod, volume string) ([]string, error) {
	var out []string
	for _, c := range pod.Containers(p) {
		var all, own []string
		for i := range c.VolumeMounts {
			path := filepath.Clean(c.VolumeMounts[i].MountPath)
			all = append(all, path)
			if c.VolumeMounts[i].Name == volume {
				own = append(own, path)
			}
		}
		slices.Sort(all)
		for _, at := range own {
			if strings.HasPrefix(at, "../") {
				return nil, fmt.Errorf("invalid container mount point %v", at)
			}
			out = append(out, uppermost(all, at+"/")...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// uppermost returns the paths below a prefix, relative to it, without those below other paths of
// the list. The paths are sorted.
func uppermost(sorted []string, prefix string) []string {
	var out []string
	for _, path := range sorted {
		rest, below := strings.CutPrefix(path, prefix)
		covered := slices.ContainsFunc(out, func(upper string) bool {
			return rest == upper || strings.HasPrefix(rest, upper+"/")
		})
		if below && !covered {
			out = append(out, rest)
		}
	}
	return out
}

// makeMountPoints creates directories in a volume and reports whether one did not exist. It does
// not follow symlinks out of the volume.
func makeMountPoints(dir string, points []string) (made bool, err error) {
	if len(points) == 0 {
		return false, nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false, err
	}
	defer root.Close()
	for _, point := range points {
		for i := range len(point) + 1 {
			if i < len(point) && point[i] != '/' {
				continue
			}
			new, err := makeMountPoint(root, point[:i])
			if err != nil {
				return made, fmt.Errorf("unable to create nested volume mountpoints: %w", err)
			}
			made = made || new
		}
	}
	return made, nil
}

func makeMountPoint(root *os.Root, path string) (made bool, err error) {
	if st, err := root.Stat(path); err == nil && st.IsDir() {
		return false, nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err := root.Mkdir(path, parentMode); err != nil {
		return false, err
	}
	return true, root.Chmod(path, parentMode) // regardless of the umask
}
