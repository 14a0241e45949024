package poddir

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/host/checkpoint"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/internal/pods/podsync"
	"keelson/internal/runtime/logs"
)

// Dirs makes and removes the directories of pods.
type Dirs struct {
	Root    string // of the agent
	LogRoot string // the directory of the pods' logs
	Links   string // the directory of symlinks to container logs, /var/log/containers
	// RemoveDir removes the pod's directory. It stops at mounts: the data behind them is not the agent's.
	RemoveDir func(ctx context.Context, uid types.UID) error
}

// Make makes the directories that every pod has.
func (d Dirs) Make(uid types.UID) error {
	for _, sub := range []string{"volumes", "plugins", "containers"} {
		if err := os.MkdirAll(filepath.Join(d.Root, "pods", string(uid), sub), 0o750); err != nil {
			return fmt.Errorf("make pod directory: %w", err)
		}
	}
	return nil
}

// Remove removes the pod's log directories, and its directory last: by that, a later agent finds what is left to
// remove.
func (d Dirs) Remove(ctx context.Context, ref pod.Ref) error {
	dirs := []string{logs.PodDir(d.LogRoot, ref)}
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
	return d.RemoveDir(ctx, ref.UID)
}

// unlink removes the symlinks to logs in a pod's log directory: the symlink of a container
// stays when the container is removed and its logs are kept.
func (d Dirs) unlink(logDir string) error {
	entries, err := os.ReadDir(d.Links)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range entries {
		link := filepath.Join(d.Links, e.Name())
		if log, err := os.Readlink(link); err != nil || !strings.HasPrefix(log, logDir+"/") {
			continue // another pod's
		}
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// restartsFile is the file in a pod's directory that names the restarts of its containers that are under way. Most
// pods have none.
const restartsFile = "restarts"

// NoteRestarts records which restarts are under way. It is not synced to disk: a power cut ends all containers.
func (d Dirs) NoteRestarts(uid types.UID, r podsync.Restarts) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode restarts: %w", err)
	}
	return checkpoint.Write(filepath.Join(d.Root, "pods", string(uid), restartsFile), text)
}

// Restarts reads what NoteRestarts recorded.
func (d Dirs) Restarts(uid types.UID) (podsync.Restarts, error) {
	path := filepath.Join(d.Root, "pods", string(uid), restartsFile)
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

// evictionFile is the file in a pod's directory with the record of its eviction.
const evictionFile = "end"

// NoteEviction records that the pod was evicted. It is not synced to disk: a power cut ends all containers.
func (d Dirs) NoteEviction(uid types.UID, e podplan.EvictionRecord) error {
	text, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode eviction record: %w", err)
	}
	return checkpoint.Write(filepath.Join(d.Root, "pods", string(uid), evictionFile), text)
}

// Eviction reads the record of an eviction.
func (d Dirs) Eviction(uid types.UID) (e podplan.EvictionRecord, evicted bool, err error) {
	path := filepath.Join(d.Root, "pods", string(uid), evictionFile)
	text, err := checkpoint.Read(path)
	if err == nil && text == nil {
		return e, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &e)
	}
	if err != nil {
		return podplan.EvictionRecord{}, false, checkpoint.PutAside(path, err)
	}
	return e, true, nil
}

// logDirs finds the log directories of a pod whose name is not known any more.
func (d Dirs) logDirs(uid types.UID) ([]string, error) {
	entries, err := os.ReadDir(d.LogRoot)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list log directories: %w", err)
	}
	var dirs []string
	for _, e := range entries {
		if e.IsDir() && strings.HasSuffix(e.Name(), "_"+string(uid)) {
			dirs = append(dirs, filepath.Join(d.LogRoot, e.Name()))
		}
	}
	return dirs, nil
}

// Logged lists the UIDs of unknown pods that have a log directory. A directory that is not named like one of
// a pod is skipped.
func (d Dirs) Logged(knows func(types.UID) bool) ([]types.UID, error) {
	entries, err := os.ReadDir(d.LogRoot)
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
