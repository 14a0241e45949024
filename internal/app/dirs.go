package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/node/checkpoint"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/podsync"
	"keelson/internal/resources/device"
	"keelson/internal/runtime/logs"
)

// rootDir is a directory of the agent's own.
type rootDir struct {
	path string
	mode fs.FileMode
	// plugins says that sockets of containers appear in it, or are looked for.
	plugins bool
}

// places are where the agent's directories are.
type places struct{ root, devicePlugins, certs, podLogs, containerLogs string }

// rootDirs are the agent's directories with the modes that others rely on. Those of logs
// are upstream's: who is not root cannot list the pods.
func (at places) rootDirs() []rootDir {
	root := at.root
	return []rootDir{
		{root, 0o750, false},
		{filepath.Join(root, "pods"), 0o750, false},
		{filepath.Join(root, "plugins"), 0o750, true},
		{filepath.Join(root, "plugins_registry"), 0o750, true},
		{filepath.Join(root, "pod-resources"), 0o750, false},
		{filepath.Join(root, "checkpoints"), 0o700, false},
		{filepath.Join(root, "image_manager"), 0o700, false},
		{at.devicePlugins, 0o750, true},
		{at.certs, 0o755, false},
		{at.podLogs, 0o750, false},
		{at.containerLogs, 0o755, false},
	}
}

// devicePluginDir is where device plugins look for the agent. They know one place,
// which does not follow the root directory; a root directory that has one of that name
// is one of a node beside the machine's.
func devicePluginDir(root string) (string, error) {
	own := filepath.Join(root, filepath.Base(device.DefaultDir))
	st, err := os.Stat(own)
	switch {
	case err == nil && st.IsDir():
		return own, nil
	case err == nil:
		return "", fmt.Errorf("look for device plugins: %s is no directory", own)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR): // what the root directory is, is another's to judge
		return device.DefaultDir, nil
	}
	return "", fmt.Errorf("look for device plugins: %w", err)
}

// pluginLabel lets containers reach what is in a directory where SELinux guards.
const pluginLabel = "system_u:object_r:container_file_t:s0"

// makeRootDirs makes the agent's directories. label, if not nil, sets the SELinux
// label of a directory; one that cannot be set is told.
func makeRootDirs(at places, label func(path, label string) error, log *slog.Logger) error {
	for _, d := range at.rootDirs() {
		if err := makeDir(d.path, d.mode); err != nil {
			return fmt.Errorf("make directory %s: %w", d.path, err)
		}
		if d.plugins && label != nil {
			if err := label(d.path, pluginLabel); err != nil {
				log.Warn("cannot label directory, plugins in containers will not reach it", "path", d.path, "label", pluginLabel, "err", err)
			}
		}
	}
	return nil
}

// makeDir makes a directory with the mode meant, whatever the umask. One that is
// there keeps the mode that somebody has given it.
func makeDir(path string, mode fs.FileMode) error {
	if _, err := os.Stat(path); err == nil {
		return os.MkdirAll(path, mode) // says so if it is a file
	}
	if err := os.MkdirAll(path, mode); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// shareMounts has mounts below the root directory seen by the containers that
// mount parts of it with propagation. Where the file system is not shared, as
// without systemd, the directory becomes a shared mount of its own.
func shareMounts(root string) error {
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

// podDirs makes and removes the directories of pods.
type podDirs struct {
	root    string
	logRoot string
	links   string // the directory of symlinks to container logs, /var/log/containers
	// removeDir removes the pod's directory; it stops at mounts, because the data
	// behind them is somebody's.
	removeDir func(ctx context.Context, uid types.UID) error
}

// Make makes the directories that every pod has.
func (d podDirs) Make(uid types.UID) error {
	for _, sub := range []string{"volumes", "plugins", "containers"} {
		if err := os.MkdirAll(filepath.Join(d.root, "pods", string(uid), sub), 0o750); err != nil {
			return fmt.Errorf("make pod directory: %w", err)
		}
	}
	return nil
}

// Remove removes the pod's log directories and its directory. That comes last: by it
// an agent after this one finds what is left to remove.
func (d podDirs) Remove(ctx context.Context, ref pod.Ref) error {
	dirs := []string{logs.PodDir(d.logRoot, ref)}
	if ref.Name == "" {
		var err error
		if dirs, err = d.logDirs(ref.UID); err != nil {
			return err
		}
	}
	for _, dir := range dirs {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove log directory %s: %w", dir, err)
		}
		if err := d.unlink(dir); err != nil {
			return fmt.Errorf("remove links to %s: %w", dir, err)
		}
	}
	return d.removeDir(ctx, ref.UID)
}

// unlink removes the symlinks to logs in a pod's log directory: the symlink of a container
// stays when the container is removed and its logs are kept.
func (d podDirs) unlink(logDir string) error {
	entries, err := os.ReadDir(d.links)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range entries {
		link := filepath.Join(d.links, e.Name())
		if log, err := os.Readlink(link); err != nil || !strings.HasPrefix(log, logDir+"/") {
			continue // another pod's
		}
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// restartsFile is the file in a pod's directory that tells which restarts of its
// containers are under way. Most pods have none.
const restartsFile = "restarts"

// NoteRestarts writes down which restarts are under way. A power cut may undo it:
// it ends containers in another way.
func (d podDirs) NoteRestarts(uid types.UID, r podsync.Restarts) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode restarts: %w", err)
	}
	return checkpoint.Write(filepath.Join(d.root, "pods", string(uid), restartsFile), text)
}

// Restarts reads what NoteRestarts has written.
func (d podDirs) Restarts(uid types.UID) (podsync.Restarts, error) {
	path := filepath.Join(d.root, "pods", string(uid), restartsFile)
	text, err := checkpoint.Read(path)
	if err == nil && text == nil {
		return podsync.Restarts{}, nil
	}
	var r podsync.Restarts
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return podsync.Restarts{}, checkpoint.PutAside(path, err)
	}
	return r, nil
}

// endFile is the file in a pod's directory that tells that the pod was put out.
const endFile = "end"

// NoteEnd writes down that the pod was put out. A power cut may undo it: it ends
// containers in another way.
func (d podDirs) NoteEnd(uid types.UID, e podsync.End) error {
	text, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode end of pod: %w", err)
	}
	return checkpoint.Write(filepath.Join(d.root, "pods", string(uid), endFile), text)
}

// End reads what NoteEnd has written.
func (d podDirs) End(uid types.UID) (e podsync.End, ended bool, err error) {
	path := filepath.Join(d.root, "pods", string(uid), endFile)
	text, err := checkpoint.Read(path)
	if err == nil && text == nil {
		return e, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &e)
	}
	if err != nil {
		return podsync.End{}, false, checkpoint.PutAside(path, err)
	}
	return e, true, nil
}

// logDirs finds the log directories of a pod whose name nobody knows any more.
func (d podDirs) logDirs(uid types.UID) ([]string, error) {
	entries, err := os.ReadDir(d.logRoot)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list log directories: %w", err)
	}
	var dirs []string
	for _, e := range entries {
		if e.IsDir() && strings.HasSuffix(e.Name(), "_"+string(uid)) {
			dirs = append(dirs, filepath.Join(d.logRoot, e.Name()))
		}
	}
	return dirs, nil
}

// Logged lists the UIDs of unknown pods that have a log directory. A directory that is not named like one of
// a pod is skipped.
func (d podDirs) Logged(knows func(types.UID) bool) ([]types.UID, error) {
	entries, err := os.ReadDir(d.logRoot)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list log directories: %w", err)
	}
	var uids []types.UID
	for _, e := range entries {
		parts := strings.Split(e.Name(), "_") // namespace, name, UID
		if !e.IsDir() || len(parts) != 3 || slices.Contains(parts, "") {
			continue
		}
		if uid := types.UID(parts[2]); !knows(uid) {
			uids = append(uids, uid)
		}
	}
	return uids, nil
}
