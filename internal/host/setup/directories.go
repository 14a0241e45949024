package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	goselinux "github.com/opencontainers/selinux/go-selinux"
	"golang.org/x/sys/unix"
)

// Directories are the directories of the agent.
type Directories struct {
	Root, DevicePlugins, Certificates, PodLogs, ContainerLogs string
	// Label sets the SELinux label of a directory; nil on a node without SELinux.
	Label func(path, label string) error
	Log   *slog.Logger
}

// directory is one of the directories.
type directory struct {
	path string
	mode fs.FileMode
	// plugins is set if containers create or open sockets in the directory.
	plugins bool
}

// list is the directories with the modes that other programs rely on. Those of logs are upstream's: only root can list
// the pods.
func (d Directories) list() []directory {
	root := d.Root
	return []directory{
		{root, 0o750, false},
		{filepath.Join(root, "pods"), 0o750, false},
		{filepath.Join(root, "plugins"), 0o750, true},
		{filepath.Join(root, "plugins_registry"), 0o750, true},
		{filepath.Join(root, "pod-resources"), 0o750, false},
		{filepath.Join(root, "checkpoints"), 0o700, false},
		{filepath.Join(root, "image_manager"), 0o700, false},
		{d.DevicePlugins, 0o750, true},
		{d.Certificates, 0o755, false},
		{d.PodLogs, 0o750, false},
		{d.ContainerLogs, 0o755, false},
	}
}

// DevicePluginDir returns the directory in which device plugins look for the agent. They use one fixed directory,
// usual, which does not depend on the root directory. If the root directory has a subdirectory of that name, it
// is used instead, so that a second agent on the machine can have device plugins of its own.
func DevicePluginDir(root, usual string) (string, error) {
	own := filepath.Join(root, filepath.Base(usual))
	st, err := os.Stat(own)
	switch {
	case err == nil && st.IsDir():
		return own, nil
	case err == nil:
		return "", fmt.Errorf("look for device plugins: %s is not a directory", own)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR): // Make reports a root directory that is a file
		return usual, nil
	}
	return "", fmt.Errorf("look for device plugins: %w", err)
}

// pluginLabel is the SELinux label with which containers can access the files in a directory.
const pluginLabel = "system_u:object_r:container_file_t:s0"

// Make creates the directories. A label that cannot be set is logged.
func (d Directories) Make() error {
	for _, dir := range d.list() {
		if err := makeDir(dir.path, dir.mode); err != nil {
			return fmt.Errorf("make directory %s: %w", dir.path, err)
		}
		if dir.plugins && d.Label != nil {
			if err := d.Label(dir.path, pluginLabel); err != nil {
				d.Log.Warn("failed to label directory, plugins in containers cannot reach it",
					"path", dir.path, "label", pluginLabel, "err", err)
			}
		}
	}
	return nil
}

// Labeller sets the SELinux label of a file; nil on a node without SELinux.
func Labeller() func(path, label string) error {
	if !goselinux.GetEnabled() {
		return nil
	}
	return goselinux.SetFileLabel
}

// makeDir makes a directory with this mode, regardless of the umask. A directory that exists keeps its mode.
func makeDir(path string, mode fs.FileMode) error {
	if _, err := os.Stat(path); err == nil {
		return os.MkdirAll(path, mode) // fails if it is a file
	}
	if err := os.MkdirAll(path, mode); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// ShareMounts propagates mounts below the root directory to the containers that mount parts of it with propagation.
// Where the file system is not shared, as without systemd, the directory becomes a shared mount of its own.
func ShareMounts(root string) error {
	mounts, err := mountinfo.GetMounts(mountinfo.ParentsFilter(root))
	if err != nil {
		return fmt.Errorf("read mounts above %s: %w", root, err)
	}
	var nearest *mountinfo.Info
	for _, m := range mounts {
		if nearest == nil || len(m.Mountpoint) >= len(nearest.Mountpoint) {
			nearest = m
		}
	}
	if nearest != nil && strings.Contains(nearest.Optional, "shared:") {
		return nil
	}
	if nearest == nil || nearest.Mountpoint != root {
		if err := unix.Mount(root, root, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s onto itself: %w", root, err)
		}
	}
	if err := unix.Mount("", root, "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("share mounts below %s: %w", root, err)
	}
	return nil
}
