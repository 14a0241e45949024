package persistent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/host/clock"
	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
)

// stepLimit bounds one attempt including the wait for other operations on the volume. The plugins'
// own timeouts are shorter.
const stepLimit = 4 * time.Minute

// attachCheckDelay is how long a volume is waited for before its VolumeAttachment is read.
const attachCheckDelay = 5 * time.Second

// errNoController is the error for a volume that must be attached, on a node configured to attach
// volumes itself (enableControllerAttachDetach: false).
var errNoController = errors.New("attaching volumes from the kubelet is not supported")

var errInUse = errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod")

// prepare stages a volume if necessary, and publishes it to the pod.
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
	w, err := v.labelRequestOf(ctx, plugin, p, s)
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
	if err := v.requireAttached(ctx, plugin, d, h, &r, traits.Attach); err != nil {
		return volume.Ready{}, err
	}
	return v.prepareDevice(ctx, plugin, d, h, r)
}

// requireAttached sets the device path of the request. It returns a volume.Waiting if the volume is
// not attached yet, and another error if it cannot be.
func (v *Volumes) requireAttached(
	ctx context.Context, plugin Plugin, d *device, h hold, r *Request, attach bool,
) error {
	if _, ok := plugin.(Attachable); ok && attach && !v.cfg.Attach {
		return &volume.Failure{
			Step:   stepAttach,
			Volume: r.Name,
			Reason: pod.EventFailedAttach,
			Err:    errNoController,
		}
	}
	if !attach || !v.cfg.Attach {
		return nil
	}
	path, since, w := v.awaitAttach(d, h)
	if w != nil {
		if err := v.attachFailure(ctx, plugin, r.Spec, time.Since(since)); err != nil {
			return err
		}
		return w
	}
	r.AttachedAt = path
	return nil
}

// prepareDevice stages and publishes a volume that the pod holds, or expands a published one.
func (v *Volumes) prepareDevice(
	ctx context.Context, plugin Plugin, d *device, h hold, r Request,
) (volume.Ready, error) {
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
	if !v.claimPod(d, h, r.Spec) {
		return volume.Ready{}, Failed(r, stepOnePod, errInUse)
	}
	out, ok := v.published(h)
	did := volume.Mounted
	var err error
	if ok {
		did, err = v.expandInUse(ctx, plugin, d, r)
	} else if out, err = v.mount(ctx, plugin, d, h, r); err == nil {
		v.setPublished(h, out)
	}
	if err != nil {
		return volume.Ready{Did: did}, err
	}
	ready := v.ready(out, r.Spec, plugin)
	ready.Did = did
	return ready, nil
}

// mount publishes the volume and then expands it if necessary. A failed expansion fails the mount.
func (v *Volumes) mount(ctx context.Context, plugin Plugin, d *device, h hold, r Request) (Published, error) {
	out, err := v.publish(ctx, plugin, r)
	if err != nil {
		if isNotStaged(err) {
			v.setUnstaged(d)
		}
		if !IsUnknown(err) {
			v.clearPublished(d, h)
		}
		return Published{}, err
	}
	return out, v.expandAtMount(ctx, plugin, d, r)
}

// publish publishes the volume to the pod, and maps it if it is a block volume.
func (v *Volumes) publish(ctx context.Context, plugin Plugin, r Request) (Published, error) {
	if !r.Block {
		out, err := plugin.Publish(ctx, r)
		return out, Failed(r, stepMount, err)
	}
	out, err := v.publishDevice(ctx, plugin, r)
	return out, Failed(r, stepMount, err)
}

// ready returns the volume for the pod. The claim of an expandable volume is read again
// periodically: nodes are authorized to get the claims of their pods, but not to watch them.
func (v *Volumes) ready(out Published, s Spec, plugin Plugin) volume.Ready {
	ready := volume.Ready{
		Name:     s.Name,
		Path:     out.Path,
		Device:   out.Device,
		ReadOnly: out.ReadOnly,
		Relabel:  out.Relabel && !out.ReadOnly,
		RenewAt:  out.RenewAt,
	}
	ready.Group = groupOf(s.PV)
	if _, grows := plugin.(Expander); s.Claim != nil && grows {
		// With jitter, so that reads of pods started together are spread.
		at := time.Now().Add(v.cfg.Recheck + rand.N(v.cfg.Recheck/2+1))
		ready.RenewAt = clock.Earlier(ready.RenewAt, at)
	}
	return ready
}

// groupAnnotation is the annotation of a PersistentVolume with the group that owns its files.
const groupAnnotation = "pv.beta.kubernetes.io/gid"

// groupOf returns the group that owns the volume's files, nil if the annotation is missing or
// invalid.
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

// hold records that the pod is about to use the volume, which is in use from now on, and returns
// the label to mount it with. It fails if other pods hold it with another label. The device is nil
// for a volume that pods do not share.
func (v *Volumes) hold(plugin Plugin, h hold, dev Device, w labelRequest) (*device, string, error) {
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
		d.holders[h] = reserved
	}
	v.mu.Unlock()
	if news && dev.Attach {
		v.cfg.OnInUse()
	}
	return d, label, nil
}

// awaitAttach returns the device path of an attached volume, or records that the pod is waiting,
// and since when.
func (v *Volumes) awaitAttach(d *device, h hold) (string, time.Time, *volume.Waiting) {
	v.mu.Lock()
	defer v.mu.Unlock()
	// Recorded before the check, since the node status may change in between.
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

// attachFailure returns an error if the volume can never be attached, nil if it may still be. To
// save API requests, the attachment is read after attachCheckDelay only.
func (v *Volumes) attachFailure(ctx context.Context, plugin Plugin, s Spec, waited time.Duration) error {
	a, ok := plugin.(Attachable)
	if !ok || waited < attachCheckDelay {
		return nil
	}
	err := a.AttachFailure(ctx, s)
	var full *volume.AttachLimit
	if err != nil && !errors.As(err, &full) {
		v.cfg.Log.Warn("failed to read attachment state of volume", "volumeName", s.Name, "err", err)
		return nil
	}
	return err
}

// stage stages the volume, unless this process has already done so.
func (v *Volumes) stage(ctx context.Context, d *device, r Request) error {
	v.mu.Lock()
	other := d.staging != unstaged && d.stagedLabel != d.label
	v.mu.Unlock()
	if other {
		// It was staged with another label for pods that are gone.
		if err := v.unstage(ctx, d); err != nil {
			return err
		}
	}
	v.mu.Lock()
	before := d.staging
	d.staging, d.stagedLabel, d.migrated = max(before, maybeStaged), d.label, r.Migrated
	v.mu.Unlock()
	if before == staged {
		return nil
	}
	err := d.plugin.Stage(ctx, r)
	v.mu.Lock()
	switch {
	case err == nil:
		d.staging = staged
	case !IsUnknown(err):
		d.staging = before
	}
	attached := err == nil && before == unstaged && d.dev.Attach && !v.cfg.Attach
	v.mu.Unlock()
	if attached { // the attach/detach controller records no such event on the pod
		v.cfg.Events.Pod(r.Pod, "", v1.EventTypeNormal, pod.EventAttached,
			fmt.Sprintf("%s succeeded for volume %q ", stepAttach, r.Name))
	}
	if errors.Is(err, mount.ErrOtherFS) && r.PV != nil && v.cfg.VolumeEvent != nil {
		message := fmt.Sprintf("MountVolume failed for volume %q %s", r.Name, pod.TextOf(err))
		v.cfg.VolumeEvent(r.PV, v1.EventTypeWarning, pod.EventOtherFS, message)
	}
	return err
}

// setUnstaged records that the device of a staged volume has disappeared.
func (v *Volumes) setUnstaged(d *device) {
	v.mu.Lock()
	defer v.mu.Unlock()
	d.staging = maybeStaged // it may be partly staged
}

// claimPod records that the pod may use the volume. It returns false for a ReadWriteOncePod volume
// that another pod has.
func (v *Volumes) claimPod(d *device, h hold, s Spec) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if isReadWriteOncePod(s) {
		for other, how := range d.holders {
			if how == published && other.uid != h.uid {
				return false
			}
		}
	}
	d.holders[h] = published
	return true
}

// published returns the pod's published volume, unless it needs a refresh.
func (v *Volumes) published(h hold) (Published, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	out, ok := v.have[h]
	return out, ok && (out.RenewAt.IsZero() || time.Now().Before(out.RenewAt))
}

// setPublished records that the volume is published to the pod.
func (v *Volumes) setPublished(h hold, out Published) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.have[h] = out
}

// clearPublished records that the volume is not published to the pod.
func (v *Volumes) clearPublished(d *device, h hold) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.have, h)
	if _, ok := d.holders[h]; ok {
		d.holders[h] = reserved
	}
}
