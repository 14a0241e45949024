package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/node/panics"
	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
)

// maxReleased is how many released pods are remembered before those whose
// directory is gone are forgotten.
const maxReleased = 64

// Release takes all volumes away from a pod whose containers are gone, as many
// attempts as that takes. It works from what is on the disk, so the pod need
// not have been known. It never blocks, and asking again changes nothing.
func (m *Manager) Release(p pod.Ref) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ps := m.pods[p.UID]
	switch {
	case ps == nil:
		ps = &volumes{ref: p, vols: map[string]*vol{}}
		m.pods[p.UID] = ps
	case ps.phase == releasing:
		ps.after = nil
		return
	case ps.phase == released:
		return
	}
	m.forgetLocked()
	ps.phase = releasing
	ps.stopTimersLocked()
	if ps.cancel != nil {
		ps.cancel()
	}
	if ps.busy == 0 { // else the last attempt to end begins it
		m.startReleaseLocked(p.UID, ps)
	}
}

// Released reports whether nothing of the pod's volumes is left, and if not,
// what the last attempt failed on.
func (m *Manager) Released(uid types.UID) (done bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ps := m.pods[uid]
	if ps == nil {
		return false, nil
	}
	return ps.phase == released, ps.err
}

// forgetLocked drops released pods that have no directory any more.
func (m *Manager) forgetLocked() {
	n := 0
	for _, ps := range m.pods {
		if ps.phase == released {
			n++
		}
	}
	if n < maxReleased {
		return
	}
	for uid, ps := range m.pods {
		if ps.phase != released {
			continue
		}
		if _, err := os.Lstat(PodDir(m.cfg.RootDir, uid)); errors.Is(err, fs.ErrNotExist) {
			delete(m.pods, uid)
		}
	}
}

func (m *Manager) startReleaseLocked(uid types.UID, ps *volumes) {
	if m.ctx == nil {
		return // Run begins it
	}
	ctx, came := m.ctx, m.came
	ps.released = nil
	m.wg.Go(func() {
		ctx, stop := context.WithTimeout(mount.Owned(ctx, ownerOf(uid)), patience)
		defer stop()
		err := panics.Try(m.cfg.Log, "volumes", func() error { return m.release(ctx, uid) })
		m.finishRelease(uid, ps, came, err)
	})
}

func (m *Manager) finishRelease(uid types.UID, ps *volumes, came uint64, err error) {
	m.mu.Lock()
	before := ps.err
	ps.err = err
	again := ps.after
	if ps.spec == nil { // it was found, and nobody wanted it
		if err == nil {
			m.metrics.orphans.Inc()
		} else {
			m.metrics.orphansFailed.Inc()
		}
	}
	if err != nil {
		ps.delay = min(max(2*ps.delay, minRetry), maxRetry)
		switch {
		case m.ctx == nil:
		case m.cameSinceLocked(came, err):
			m.startReleaseLocked(uid, ps)
		default:
			ps.released = panics.Again(m.cfg.Log, "volumes", ps.delay, func() {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.startReleaseLocked(uid, ps)
			})
		}
	} else {
		ps.phase = released
		ps.spec, ps.vols, ps.after = nil, nil, nil
		delete(m.left, uid)
	}
	m.mu.Unlock()
	if err == nil {
		for _, k := range m.cfg.Kinds {
			if t, ok := k.(Tracker); ok {
				t.Gone(uid)
			}
		}
	}
	if err != nil {
		m.cfg.Log.Warn("cannot release volumes", "pod", ps.ref.Namespace+"/"+ps.ref.Name, "uid", uid, "err", err)
		if before != nil && before.Error() == err.Error() {
			return
		}
	}
	if err == nil && again != nil {
		m.Want(again)
	}
	m.cfg.OnChange(uid)
}

// release makes one attempt at taking everything away: bind mounts of sub-paths
// first, because they keep their volumes busy, then the volumes side by side.
func (m *Manager) release(ctx context.Context, uid types.UID) error {
	dir := PodDir(m.cfg.RootDir, uid)
	if err := m.releaseSubPaths(ctx, dir); err != nil {
		return err
	}
	places, err := m.found(uid)
	if err != nil {
		return err
	}
	errs := make([]error, len(places))
	var wg sync.WaitGroup
	for i, f := range places {
		wg.Go(func() {
			if f.kind != nil {
				plugin := f.kind.Plugin()
				if c, ok := f.kind.(Counted); ok {
					plugin = c.CountedAs(f.place) // told by what Release takes away
				}
				began := time.Now()
				errs[i] = panics.Try(m.cfg.Log, "volumes", func() error { return f.kind.Release(ctx, f.place) })
				operation := opUnmount
				if f.place.Block {
					operation = opUnmap
				}
				m.metrics.did(plugin, m.wasMigrated(uid, f.place.Name), operation, time.Since(began), errs[i])
			} else {
				errs[i] = m.releaseUnknown(ctx, f.place)
				m.metrics.counters.forced.Inc()
				if errs[i] != nil {
					m.metrics.counters.forcedFailed.Inc()
				}
			}
			if errs[i] != nil {
				errs[i] = fmt.Errorf("release volume %q: %w", f.place.Name, errs[i])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

type foundVolume struct {
	kind  Kind // nil if nobody serves it
	place Place
}

// found lists the volumes that a pod has on the disk.
func (m *Manager) found(uid types.UID) ([]foundVolume, error) {
	kinds := map[string]Kind{}
	for _, k := range m.cfg.Kinds {
		kinds[k.Plugin()] = k
	}
	var out []foundVolume
	for _, block := range []bool{false, true} {
		places, err := FoundOn(m.cfg.RootDir, uid, block)
		if err != nil {
			return nil, err
		}
		for _, p := range places {
			out = append(out, foundVolume{kinds[p.plugin], p.Place})
		}
	}
	return out, nil
}

// Found is a volume that a pod has on the disk, and whose it is.
type Found struct {
	Place
	plugin string
}

// Plugin is the name of the plugin that made it.
func (f Found) Plugin() string { return f.plugin }

// FoundOn lists what a pod has on the disk: file systems, or block devices.
func FoundOn(root string, uid types.UID, block bool) ([]Found, error) {
	sub := volumesDir
	if block {
		sub = devicesDir
	}
	base := filepath.Join(PodDir(root, uid), sub)
	plugins, err := readDir(base)
	if err != nil {
		return nil, err
	}
	var out []Found
	for _, escaped := range plugins {
		names, err := readDir(filepath.Join(base, escaped))
		if err != nil {
			return nil, err
		}
		plugin := strings.ReplaceAll(escaped, "~", "/")
		for _, name := range names {
			out = append(out, Found{PlaceOf(root, uid, plugin, name, block), plugin})
		}
	}
	return out, nil
}

// readDir names what is in a directory; no directory is an empty one.
func readDir(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// releaseUnknown takes away a volume of a kind that this node does not serve. It
// is unmounted, but what then remains is not known to be worthless.
func (m *Manager) releaseUnknown(ctx context.Context, p Place) error {
	return m.cfg.Guard.Do(ctx, p.Path, "release volume", func() error {
		if err := unmountAll(p.Path); err != nil {
			return err
		}
		if err := os.Remove(p.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w for what is left there: %w", ErrNoPlugin, err)
		}
		return nil
	})
}

// unmountAll takes off what is mounted at and below a directory.
func unmountAll(dir string) error {
	points, err := mount.At(dir)
	if err != nil {
		return err
	}
	for _, p := range points {
		if err := mount.Unmount(p); err != nil {
			return err
		}
	}
	return nil
}

// Orphans lists the pods that have a directory on this node and are not known.
// Whoever winds up pods should wind them up, once every source has delivered.
func (m *Manager) Orphans(known func(types.UID) bool) ([]types.UID, error) {
	uids, err := PodsOn(m.cfg.RootDir)
	return slices.DeleteFunc(uids, known), err
}

// PodsOn lists the pods that have a directory.
func PodsOn(root string) ([]types.UID, error) {
	names, err := readDir(filepath.Join(root, "pods"))
	if err != nil {
		return nil, err
	}
	uids := make([]types.UID, len(names))
	for i, name := range names {
		uids[i] = types.UID(name)
	}
	return uids, nil
}

// RemoveDir removes the directory of a pod whose volumes are released. It stops
// at mounts rather than remove what is behind them.
func (m *Manager) RemoveDir(ctx context.Context, uid types.UID) error {
	m.mu.Lock()
	if ps := m.pods[uid]; ps != nil && ps.phase != released {
		m.mu.Unlock()
		return fmt.Errorf("remove directory of pod %s: its volumes are not released", uid)
	}
	m.mu.Unlock()
	dir := PodDir(m.cfg.RootDir, uid)
	if err := m.cfg.Guard.Do(mount.Owned(ctx, ownerOf(uid)), dir, "remove pod directory", func() error { return mount.RemoveTree(dir) }); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if ps := m.pods[uid]; ps != nil && ps.phase == released {
		delete(m.pods, uid)
	}
	return nil
}
