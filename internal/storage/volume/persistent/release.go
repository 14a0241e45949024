package persistent

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/reconcile"
	"keelson/internal/storage/volume"
)

// release unpublishes a volume, and starts to unstage it if the pod was the last one. It does not
// wait for the latter.
func (v *Volumes) release(ctx context.Context, plugin Plugin, p volume.Place) error {
	v.scan()
	h := hold{p.UID, plugin.Name(), p.Name, p.Block}
	v.mu.Lock()
	d := v.devices[v.holds[h]]
	v.mu.Unlock()
	if d != nil {
		if err := d.take(ctx); err != nil {
			return err
		}
		defer d.give()
	}
	if p.Block {
		if err := v.unmapDevice(ctx, plugin, p); err != nil {
			return err
		}
	}
	if err := plugin.Unpublish(ctx, p); err != nil {
		return err
	}
	v.mu.Lock()
	free := v.dropLocked(h)
	v.mu.Unlock()
	v.again(free)
	return nil
}

// dropHolds drops the holds of a pod with nothing on the disk.
func (v *Volumes) dropHolds(uid types.UID) {
	v.mu.Lock()
	var free []types.UID
	for h := range v.holds {
		if h.uid == uid {
			free = append(free, v.dropLocked(h)...)
		}
	}
	for _, d := range v.devices {
		delete(d.refused, uid)
	}
	v.mu.Unlock()
	v.again(free)
}

// again retries pods that may now get a volume that they were refused.
func (v *Volumes) again(pods []types.UID) {
	for _, uid := range pods {
		v.cfg.Again(uid)
	}
}

// dropLocked ends a hold. It returns the pods that were refused the volume because of its label.
func (v *Volumes) dropLocked(h hold) (free []types.UID) {
	id, ok := v.holds[h]
	delete(v.holds, h)
	delete(v.have, h)
	if d := v.devices[id]; ok && d != nil {
		delete(d.holders, h)
		delete(d.waiting, h.uid)
		if len(d.holders) == 0 {
			free = slices.Collect(maps.Keys(d.refused))
			clear(d.refused)
			d.wantedLabel, d.counted = nil, false
		}
		v.requestUnstageLocked(d)
	}
	return free
}

// requestUnstageLocked has a device unstaged that no pod holds.
func (v *Volumes) requestUnstageLocked(d *device) {
	if v.mayUnstageLocked(d) && !v.unstages.ActiveLocked(d.dev.ID) {
		v.unstages.RequestLocked(d.dev.ID)
	}
}

// mayUnstageLocked reports whether no pod needs a device. That is unknown for those of an earlier agent before all
// wanted pods are known.
func (v *Volumes) mayUnstageLocked(d *device) bool {
	return len(d.holders) == 0 && (v.settled || d.staging == staged)
}

// beginUnstageLocked returns an attempt to unstage a device, unless a pod holds it again.
func (v *Volumes) beginUnstageLocked(id string) reconcile.Attempt {
	d := v.devices[id]
	return reconcile.Attempt{
		Do:  func(ctx context.Context) error { return v.tryUnstage(ctx, d) },
		End: func(r reconcile.Result) reconcile.Next { return v.endUnstageLocked(d, r) },
	}
}

func (v *Volumes) endUnstageLocked(d *device, r reconcile.Result) reconcile.Next {
	switch {
	case r.Err != nil && r.Cancelled:
		return reconcile.Next{}
	case r.Err != nil:
		return reconcile.Next{
			Retry: !r.Again, // a driver has registered: the back-off starts again
			Then: func() {
				v.cfg.Log.Warn("failed to unstage volume", "volumeName", d.dev.ID, "retryAfter", r.Pause, "err", r.Err)
			},
		}
	case len(d.holders) == 0 && d.staging == unstaged:
		delete(v.devices, d.dev.ID)
	case v.mayUnstageLocked(d): // a pod held it during the attempt, and does not any more
		return reconcile.Next{Again: true}
	}
	return reconcile.Next{Forget: true, Then: v.cfg.OnInUse}
}

// DriverRegistered retries to unstage volumes whose driver may have been missing.
func (v *Volumes) DriverRegistered() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id := range v.devices {
		if v.unstages.ActiveLocked(id) {
			v.unstages.ResetLocked(id)
			v.unstages.RequestLocked(id)
		}
	}
}

// tryUnstage unstages the device unless a pod holds it.
func (v *Volumes) tryUnstage(ctx context.Context, d *device) error {
	ctx, stop := context.WithTimeout(ctx, stepLimit)
	defer stop()
	if err := d.take(ctx); err != nil {
		return err
	}
	defer d.give()
	v.mu.Lock()
	held := len(d.holders) > 0
	v.mu.Unlock()
	if held {
		return nil
	}
	return v.unstage(ctx, d)
}

// unstage unstages the device if it may be staged. The caller has the device's turn.
func (v *Volumes) unstage(ctx context.Context, d *device) error {
	v.mu.Lock()
	before, dev, migrated := d.staging, d.dev, d.migrated
	d.staging = min(before, maybeStaged) // the next pod stages it again
	v.mu.Unlock()
	if before == unstaged {
		return nil
	}
	began := time.Now()
	err := d.plugin.Unstage(ctx, dev)
	if v.cfg.Count != nil {
		operation := volume.OpUnmountDevice
		if dev.Block {
			operation = volume.OpUnmapDevice
		}
		v.cfg.Count(stagedAs(d.plugin, dev), migrated, operation, time.Since(began), err)
	}
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	d.staging = unstaged
	return nil
}
