package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// mirror keeps the manifests of one folder the same as those of another.
type mirror struct{ from, to string }

// settle is how long a folder must not change before it is read, because editors write a file in steps.
const settle = 50 * time.Millisecond

// sync copies files that are new or different, and removes those that are gone. It returns the names of the files it
// touched.
func (m mirror) sync() ([]string, error) {
	want, err := manifests(m.from)
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	have, err := manifests(m.to)
	if err != nil {
		return nil, fmt.Errorf("read copies of manifests: %w", err)
	}
	var touched []string
	for name, data := range want {
		if old, ok := have[name]; ok && bytes.Equal(old, data) {
			continue
		}
		if len(data) == 0 {
			continue // just created, not written yet
		}
		// Written under a name that the kubelet ignores, then renamed, so that it never reads an incomplete file.
		tmp := filepath.Join(m.to, "."+name)
		if err := os.WriteFile(tmp, data, 0o644); err != nil {
			return touched, fmt.Errorf("copy manifest: %w", err)
		}
		if err := os.Rename(tmp, filepath.Join(m.to, name)); err != nil {
			return touched, fmt.Errorf("copy manifest: %w", err)
		}
		touched = append(touched, name)
	}
	for name := range have {
		if _, ok := want[name]; ok {
			continue
		}
		if err := os.Remove(filepath.Join(m.to, name)); err != nil {
			return touched, fmt.Errorf("remove copy of manifest: %w", err)
		}
		touched = append(touched, name)
	}
	slices.Sort(touched)
	return touched, nil
}

// clear removes all copies.
func (m mirror) clear() error {
	have, err := manifests(m.to)
	if err != nil {
		return fmt.Errorf("remove copies of manifests: %w", err)
	}
	for name := range have {
		if err := os.Remove(filepath.Join(m.to, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove copies of manifests: %w", err)
		}
	}
	return nil
}

// follow syncs whenever the folder changes, until ctx ends. It calls report with the touched files or an error.
func (m mirror) follow(ctx context.Context, report func([]string, error)) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch manifests: %w", err)
	}
	defer w.Close()
	if err := w.Add(m.from); err != nil {
		return fmt.Errorf("watch manifests in %s: %w", m.from, err)
	}
	quiet := time.NewTimer(0) // what changed before the watch began
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-w.Events:
			if isManifest(filepath.Base(e.Name)) {
				quiet.Reset(settle)
			}
		case err := <-w.Errors:
			report(nil, fmt.Errorf("watch manifests: %w", err))
			quiet.Reset(settle) // events may have been lost
		case <-quiet.C:
			if touched, err := m.sync(); len(touched) > 0 || err != nil {
				report(touched, err)
			}
		}
	}
}

// manifests reads the manifests of a folder.
func manifests(dir string) (map[string][]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, e := range entries {
		if e.IsDir() || !isManifest(e.Name()) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed in the meantime
		}
		if err != nil {
			return nil, err
		}
		out[e.Name()] = data
	}
	return out, nil
}

func isManifest(name string) bool {
	return !strings.HasPrefix(name, ".") && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}
