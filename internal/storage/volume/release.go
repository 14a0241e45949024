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

	"keelson/internal/pods/panics"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/reconcile"
	"keelson/internal/storage/mount"
)

// maxReleased is the number of released pods at which those without a directory are dropped.
const maxReleased = 64

// Release releases all volumes of a pod whose containers have exited, and retries until it
// succeeds. It works from what is on the disk, so the pod need not be known. It never blocks and is
// idempotent.
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
	ps.stopOverdueLocked()
	if ps.cancel != nil {
		ps.cancel()
	}
	for name := range ps.vols {
		if key := (volumeKey{p.UID, name}); !m.prepares.RunningLocked(key) {
			m.prepares.ForgetLocked(key)
		}
	}
	if !m.preparingLocked(p.UID, ps) { // otherwise the last attempt to end begins it
		m.releases.RequestLocked(p.UID)
	}
}

// Released reports whether all of the pod's volumes are released, and if not, the last error.
func (m *Manager) Released(uid types.UID) (done bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ps := m.pods[uid]
	if ps == nil {
		return false, nil
	}
	return ps.phase == released, ps.err
}

// forgetLocked drops released pods without a directory.
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

// beginReleaseLocked returns an attempt to release all volumes of a pod.
func (m *Manager) beginReleaseLocked(uid types.UID) reconcile.Attempt {
	ps, came := m.pods[uid], m.registrations
	return reconcile.Attempt{
		Do: func(ctx context.Context) error {
			ctx, stop := context.WithTimeout(mount.Owned(ctx, ownerOf(uid)), attemptTimeout)
			defer stop()
			return m.release(ctx, uid)
		},
		End: func(r reconcile.Result) reconcile.Next { return m.endReleaseLocked(uid, ps, came, r.Err) },
	}
}

func (m *Manager) endReleaseLocked(uid types.UID, ps *volumes, came uint64, err error) reconcile.Next {
	before, again := ps.err, ps.after
	ps.err = err
	m.countOrphanLocked(ps, err)
	if err != nil {
		return reconcile.Next{
			Again: m.registeredSinceLocked(came, err),
			Retry: true,
			Then: func() {
				m.cfg.Log.Warn("failed to release volumes", "pod", ps.ref.Namespace+"/"+ps.ref.Name, "podUID", uid,
					"err", err)
				if before == nil || before.Error() != err.Error() {
					m.cfg.OnChange(uid)
				}
			},
		}
	}
	ps.phase = released
	ps.spec, ps.vols, ps.after = nil, nil, nil
	delete(m.left, uid)
	return reconcile.Next{
		Forget: true,
		Then: func() {
			for _, k := range m.cfg.Kinds {
				if t, ok := k.(Tracker); ok {
					t.Gone(uid)
				}
			}
			if again != nil {
				m.Want(again)
			}
			m.cfg.OnChange(uid)
		},
	}
}

// countOrphanLocked counts an attempt to release the volumes of an orphaned pod.
func (m *Manager) countOrphanLocked(ps *volumes, err error) {
	switch {
	case ps.spec != nil:
	case err == nil:
		m.metrics.orphans.Inc()
	default:
		m.metrics.orphansFailed.Inc()
	}
}

// release makes one attempt to release everything: first the bind mounts of sub-paths, which keep
// their volumes busy, then the volumes in parallel.
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
					plugin = c.CountedAs(f.place) // read before it is released
				}
				began := time.Now()
				errs[i] = panics.Try(m.cfg.Log, part, func() error { return f.kind.Release(ctx, f.place) })
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
	kind  Kind // nil if unsupported
	place Place
}

// found lists the volumes of a pod on the disk.
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

// Found is a volume of a pod on the disk.
type Found struct {
	Place
	plugin string
}

// Plugin returns the name of the volume's plugin.
func (f Found) Plugin() string { return f.plugin }

// FoundOn lists the volumes of a pod on the disk: file system volumes, or block volumes.
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

// readDir returns the entries of a directory, none if it does not exist.
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

// releaseUnknown releases a volume of an unsupported kind. It is unmounted, but content is not
// removed, since it may be valuable.
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

// unmountAll unmounts all mounts at and beneath a directory.
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

// Orphans lists the pods that have a directory on this node and are not known. The caller must wait
// for all pod sources before it cleans them up.
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

// RemoveDir removes the directory of a pod whose volumes are released. It fails if the directory
// still contains a mount.
func (m *Manager) RemoveDir(ctx context.Context, uid types.UID) error {
	m.mu.Lock()
	if ps := m.pods[uid]; ps != nil && ps.phase != released {
		m.mu.Unlock()
		return fmt.Errorf("remove directory of pod %s: its volumes are not released", uid)
	}
	m.mu.Unlock()
	dir := PodDir(m.cfg.RootDir, uid)
	if err := m.cfg.Guard.Do(mount.Owned(ctx, ownerOf(uid)), dir, "remove pod directory",
		func() error { return mount.RemoveTree(dir) }); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if ps := m.pods[uid]; ps != nil && ps.phase == released {
		delete(m.pods, uid)
	}
	return nil
}
