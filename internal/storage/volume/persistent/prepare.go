package persistent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
)

// stepLimit is how long one attempt may wait for its turn and take its steps; the
// plugins' own limits are shorter.
const stepLimit = 4 * time.Minute

// attachPatience is how long a volume is waited for before it is asked what keeps
// it.
const attachPatience = 5 * time.Second

// errNoController is why a volume cannot be used that only a controller attaches, on
// a node that is told to attach volumes itself.
var errNoController = errors.New("attaching volumes from the kubelet is not supported")

var errInUse = errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod")

// prepare stages a volume if it is not, and publishes it to the pod.
func (v *Volumes) prepare(ctx context.Context, p *v1.Pod, s Spec, plugin Plugin) (volume.Ready, error) {
	v.scan()
	r := Request{Spec: s, Pod: p, Place: volume.PlaceOf(v.cfg.RootDir, p.UID, plugin.Name(), s.Name, s.Block)}
	if s.Block {
		if _, ok := plugin.(Blocker); !ok {
			return volume.Ready{}, Failed(r, stepStage, fmt.Errorf("plugin %s has no block devices", plugin.Name()))
		}
	}
	traits, err := plugin.Describe(ctx, s)
	if err != nil {
		return volume.Ready{}, Failed(r, stepMount, err)
	}
	h := hold{p.UID, plugin.Name(), s.Name, s.Block}
	w, err := v.wishOf(ctx, plugin, p, s)
	if err != nil {
		return volume.Ready{}, Failed(r, stepMount, err)
	}
	d, label, err := v.hold(plugin, h, Device{Traits: traits, Name: s.Name, Block: s.Block}, w)
	if err != nil {
		return volume.Ready{}, err
	}
	r.Label = label
	if d == nil {
		if err := v.check(ctx, plugin, r); err != nil {
			return volume.Ready{}, err
		}
		out, err := v.publish(ctx, plugin, r)
		return v.ready(out, s, plugin), err
	}
	if _, ok := plugin.(Attachable); ok && traits.Attach && !v.cfg.Attach {
		return volume.Ready{}, &volume.Failure{Step: stepAttach, Volume: s.Name, Reason: pod.EventFailedAttach, Err: errNoController}
	}
	if traits.Attach && v.cfg.Attach {
		var w *volume.Waiting
		var since time.Time
		if r.AttachedAt, since, w = v.awaitAttach(d, h); w != nil {
			if err := v.attachFailure(ctx, plugin, s, time.Since(since)); err != nil {
				return volume.Ready{}, err
			}
			return volume.Ready{}, w
		}
	}
	if err := d.take(ctx); err != nil {
		return volume.Ready{}, Failed(r, stepMount, err)
	}
	defer d.give()
	if _, ok := v.published(h); !ok {
		if err := v.check(ctx, plugin, r); err != nil {
			return volume.Ready{}, err
		}
	}
	if err := v.stage(ctx, d, r); err != nil {
		return volume.Ready{}, Failed(r, stepStage, err)
	}
	if !v.claimPod(d, h, s) {
		return volume.Ready{}, Failed(r, stepOnePod, errInUse)
	}
	out, ok := v.published(h)
	did := volume.Mounted
	if ok {
		did, err = v.expandInUse(ctx, plugin, d, r)
	} else if out, err = v.mount(ctx, plugin, d, h, r); err == nil {
		v.keep(h, out)
	}
	if err != nil {
		return volume.Ready{Did: did}, err
	}
	ready := v.ready(out, s, plugin)
	ready.Did = did
	return ready, nil
}

// mount publishes the volume and then expands it, if that is due. A pod does not get one
// that could not be expanded.
func (v *Volumes) mount(ctx context.Context, plugin Plugin, d *device, h hold, r Request) (Published, error) {
	out, err := v.publish(ctx, plugin, r)
	if err != nil {
		if isNotStaged(err) {
			v.stageAgain(d)
		}
		if !IsUnknown(err) {
			v.unpublished(d, h)
		}
		return Published{}, err
	}
	return out, v.expandAtMount(ctx, plugin, d, r)
}

// publish gives the volume to the pod, and maps it if it is a device.
func (v *Volumes) publish(ctx context.Context, plugin Plugin, r Request) (Published, error) {
	if !r.Block {
		out, err := plugin.Publish(ctx, r)
		return out, Failed(r, stepMount, err)
	}
	out, err := v.publishDevice(ctx, plugin, r)
	return out, Failed(r, stepMount, err)
}

// ready is the volume as the pod gets it. A claim whose volume can grow is read
// again after a while: a node may read the claims of its pods, but not watch them.
func (v *Volumes) ready(out Published, s Spec, plugin Plugin) volume.Ready {
	ready := volume.Ready{Name: s.Name, Path: out.Path, Device: out.Device, ReadOnly: out.ReadOnly, Relabel: out.Relabel && !out.ReadOnly, RenewAt: out.RenewAt}
	ready.Group = groupOf(s.PV)
	if _, grows := plugin.(Expander); s.Claim != nil && grows {
		// Spread, so that pods that came together do not ask together.
		at := time.Now().Add(v.cfg.Recheck + rand.N(v.cfg.Recheck/2+1))
		if ready.RenewAt.IsZero() || at.Before(ready.RenewAt) {
			ready.RenewAt = at
		}
	}
	return ready
}

// groupAnnotation is how a PersistentVolume names the group that owns its files.
const groupAnnotation = "pv.beta.kubernetes.io/gid"

// groupOf is the group that owns the volume's files; nil for one that does not
// say, or says no number.
func groupOf(pv *v1.PersistentVolume) *int64 {
	if pv == nil {
		return nil
	}
	gid, err := strconv.ParseInt(pv.Annotations[groupAnnotation], 10, 64)
	if err != nil || gid < 0 {
		return nil
	}
	return &gid
}

// hold notes that the pod is about to use the volume, so that it is in use from
// now on, and tells the label to mount it with. It refuses a volume that others hold
// with another one. The device is nil for a volume that is not shared by pods.
func (v *Volumes) hold(plugin Plugin, h hold, dev Device, w wish) (*device, string, error) {
	v.mu.Lock()
	if dev.ID == "" {
		v.holds[h] = ""
		v.mu.Unlock()
		return nil, "", nil
	}
	if err := v.mayHoldLocked(dev.ID, h, w); err != nil {
		v.mu.Unlock()
		return nil, "", err
	}
	before := v.devices[dev.ID]
	d := v.deviceLocked(plugin, dev)
	if err := v.labelLocked(d, h, w); err != nil {
		v.mu.Unlock()
		return nil, "", err
	}
	label := d.label
	v.holds[h] = dev.ID
	news := d != before || d.dev.Attach != dev.Attach
	d.dev.Attach, d.dev.Name = dev.Attach, dev.Name
	if _, ok := d.holders[h]; !ok {
		d.holders[h] = false
	}
	v.mu.Unlock()
	if news && dev.Attach {
		v.cfg.OnInUse()
	}
	return d, label, nil
}

// awaitAttach tells where the volume is attached, or notes that the pod waits, and
// since when it does.
func (v *Volumes) awaitAttach(d *device, h hold) (string, time.Time, *volume.Waiting) {
	v.mu.Lock()
	defer v.mu.Unlock()
	// Before the look, since what is looked for may come in between.
	since, ok := d.waiting[h.uid]
	if !ok {
		since = time.Now()
		d.waiting[h.uid] = since
	}
	path, w := attachment(v.cfg.Node(), d.dev.ID)
	if w == nil {
		delete(d.waiting, h.uid)
	}
	return path, since, w
}

// attachFailure is why a pod must not wait any longer; nil if it may. Attaching
// takes a while, so that the API server is not asked about it at once.
func (v *Volumes) attachFailure(ctx context.Context, plugin Plugin, s Spec, waited time.Duration) error {
	a, ok := plugin.(Attachable)
	if !ok || waited < attachPatience {
		return nil
	}
	err := a.AttachFailure(ctx, s)
	var full *volume.AttachLimit
	if err != nil && !errors.As(err, &full) {
		v.cfg.Log.Warn("cannot tell how the attaching of a volume goes", "volume", s.Name, "err", err)
		return nil
	}
	return err
}

// stage stages the volume, unless that was done in this agent's life.
func (v *Volumes) stage(ctx context.Context, d *device, r Request) error {
	v.mu.Lock()
	other := (d.staged || d.maybe) && d.has != d.label
	v.mu.Unlock()
	if other {
		// Whoever had it so is gone, or nobody would be here with another label.
		if err := v.unstage(ctx, d); err != nil {
			return err
		}
	}
	v.mu.Lock()
	staged, before := d.staged, d.maybe
	d.maybe, d.has, d.migrated = true, d.label, r.Migrated
	v.mu.Unlock()
	if staged {
		return nil
	}
	err := d.plugin.Stage(ctx, r)
	v.mu.Lock()
	switch {
	case err == nil:
		d.staged = true
	case !IsUnknown(err):
		d.maybe = before
	}
	attached := err == nil && !before && d.dev.Attach && !v.cfg.Attach
	v.mu.Unlock()
	if attached { // nobody else did, and nobody else says so
		v.cfg.Events.Pod(r.Pod, "", v1.EventTypeNormal, pod.EventAttached, fmt.Sprintf("%s succeeded for volume %q ", stepAttach, r.Name))
	}
	if errors.Is(err, mount.ErrOtherFS) && r.PV != nil && v.cfg.VolumeEvent != nil {
		message := fmt.Sprintf("MountVolume failed for volume %q %s", r.Name, pod.TextOf(err))
		v.cfg.VolumeEvent(r.PV, v1.EventTypeWarning, pod.EventOtherFS, message)
	}
	return err
}

// stageAgain notes that the device of a staged volume has disappeared.
func (v *Volumes) stageAgain(d *device) {
	v.mu.Lock()
	defer v.mu.Unlock()
	d.staged = false // it may be partly staged
}

// claimPod notes that the pod may have the volume from now on. It refuses a
// volume for one pod that another pod has.
func (v *Volumes) claimPod(d *device, h hold, s Spec) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if onePodOnly(s) {
		for other, has := range d.holders {
			if has && other.uid != h.uid {
				return false
			}
		}
	}
	d.holders[h] = true
	return true
}

// published is what the pod has of the volume, if that need not be renewed.
func (v *Volumes) published(h hold) (Published, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	out, ok := v.have[h]
	return out, ok && (out.RenewAt.IsZero() || time.Now().Before(out.RenewAt))
}

// keep notes that the pod has the volume.
func (v *Volumes) keep(h hold, out Published) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.have[h] = out
}

// unpublished notes that the pod does not have the volume.
func (v *Volumes) unpublished(d *device, h hold) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.have, h)
	if _, ok := d.holders[h]; ok {
		d.holders[h] = false
	}
}

// take waits for the turn to speak about the volume.
func (d *device) take(ctx context.Context) error {
	select {
	case d.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for another operation on volume %s: %w", d.dev.ID, ctx.Err())
	}
}

func (d *device) give() { <-d.turn }
