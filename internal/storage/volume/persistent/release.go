package persistent

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/node/panics"
	"keelson/internal/storage/volume"
)

const (
	minRetry = 500 * time.Millisecond
	maxRetry = 2*time.Minute + 2*time.Second
)

// release takes a volume away from a pod, and then off the node if the pod was
// the last one. The node is not waited for.
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

// gone drops what a pod held without having anything of it on the disk.
func (v *Volumes) gone(uid types.UID) {
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

// again has pods looked at that may have what they were refused.
func (v *Volumes) again(pods []types.UID) {
	for _, uid := range pods {
		v.cfg.Again(uid)
	}
}

// dropLocked ends a hold. It returns the pods to look at again: those that wanted the
// volume with another label.
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
			d.later, d.counted = nil, false
		}
		v.endLocked(d)
	}
	return free
}

// endLocked begins to unstage a device that nobody holds.
func (v *Volumes) endLocked(d *device) {
	if v.ctx == nil || len(d.holders) > 0 || d.ending || !v.settled && !d.staged {
		return
	}
	d.ending = true
	ctx := v.ctx
	v.wg.Go(func() { v.end(ctx, d) })
}

// end unstages a device as many times as it takes, unless a pod wants it again.
func (v *Volumes) end(ctx context.Context, d *device) {
	delay := time.Duration(0)
	for {
		came := v.driverCame() // before the attempt: one that registers during it counts
		over := false
		err := panics.Try(v.cfg.Log, "persistent volumes", func() (err error) {
			over, err = v.tryEnd(ctx, d)
			return err
		})
		if over {
			break
		}
		if ctx.Err() != nil {
			return
		}
		delay = min(max(2*delay, minRetry), maxRetry)
		v.cfg.Log.Warn("cannot unstage volume", "volume", d.dev.ID, "retry", delay, "err", err)
		select {
		case <-ctx.Done():
			return
		case <-came:
			delay = 0
		case <-time.After(delay):
		}
	}
	v.cfg.OnInUse()
}

// DriverCame has volumes unstaged now whose driver may not have been there.
func (v *Volumes) DriverCame() {
	v.mu.Lock()
	defer v.mu.Unlock()
	close(v.came)
	v.came = make(chan struct{})
}

// driverCame is closed when a driver registers.
func (v *Volumes) driverCame() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.came
}

// tryEnd makes one attempt. It is over when the device is gone or held again.
func (v *Volumes) tryEnd(ctx context.Context, d *device) (over bool, err error) {
	ctx, stop := context.WithTimeout(ctx, stepLimit)
	defer stop()
	if err := d.take(ctx); err != nil {
		return false, err
	}
	defer d.give()
	v.mu.Lock()
	if len(d.holders) > 0 {
		d.ending = false
		v.mu.Unlock()
		return true, nil
	}
	v.mu.Unlock()
	if err := v.unstage(ctx, d); err != nil {
		return false, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	d.ending = false
	if len(d.holders) == 0 {
		delete(v.devices, d.dev.ID)
	}
	return true, nil
}

// unstage unstages the device if that may be needed. Whoever calls it has the turn.
func (v *Volumes) unstage(ctx context.Context, d *device) error {
	v.mu.Lock()
	maybe, dev, migrated := d.staged || d.maybe, d.dev, d.migrated
	d.staged, d.maybe = false, maybe // whoever comes now stages it again
	v.mu.Unlock()
	if !maybe {
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
	d.maybe = false
	return nil
}
