package volume

import (
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// Failure is why a volume could not be prepared, from kinds whose work has
// several steps that users know by name.
type Failure struct {
	Step   string // MountVolume.MountDevice
	While  string // what was done when the step failed, where it does several things
	Volume string // as the step calls it, which need not be the pod's name for it
	Reason string // of the event; empty means FailedMount
	Err    error
}

func (f *Failure) Error() string { return f.because(f.Err.Error()) }

// Text is the message of the event.
func (f *Failure) Text() string { return f.because(pod.TextOf(f.Err)) }

func (f *Failure) because(cause string) string {
	failed := "failed"
	if f.While != "" {
		failed += " while " + f.While
	}
	return fmt.Sprintf("%s %s for volume %q : %s", f.Step, failed, f.Volume, cause)
}
func (f *Failure) Unwrap() error { return f.Err }

// Unresolved is why it is not known yet what a volume is: the claim it names is
// missing, or is not bound.
type Unresolved struct{ Err error }

func (u *Unresolved) Error() string { return u.Err.Error() }
func (u *Unresolved) Unwrap() error { return u.Err }

// NoDriver is the error for a volume whose driver has not registered with the node. A kind that returns it has
// [Manager.DriverCame] called when the driver has registered.
type NoDriver struct{ Name string }

func (n *NoDriver) Error() string {
	return fmt.Sprintf("driver name %s not found in the list of registered CSI drivers", n.Name)
}

// lacks reports whether an attempt failed because the driver of that name had not registered.
func lacks(err error, name string) bool {
	var none *NoDriver
	return errors.As(err, &none) && none.Name == name
}

// AttachLimit is why a volume is not attached to the node: the node has as many volumes of the driver as it can
// have. The pod cannot run here.
type AttachLimit struct{ Cause string }

func (l *AttachLimit) Error() string {
	return "Node has reached its volume attachment limit: " + l.Cause
}

// reasonAttachLimit is the reason of a pod that ended because of an AttachLimit.
const reasonAttachLimit = "VolumeAttachmentLimitExceeded"

// refusal is the rejection of a pod that waits for a volume which cannot be attached.
func (ps *volumes) refusal(v *vol, l *AttachLimit) *pod.Refusal {
	unmounted, unattached, failed := ps.missing()
	if !slices.Contains(unattached, v.spec.Name) {
		unattached = append(unattached, v.spec.Name)
		slices.Sort(unattached)
	}
	message := fmt.Sprintf("Node has reached its volume attachment limit, rejecting pod. "+
		"unmounted volumes=%v, unattached volumes=%v, failed to process volumes=%v: %s",
		unmounted, unattached, failed, l.Cause)
	return &pod.Refusal{Reason: reasonAttachLimit, Message: message}
}

// Waiting is what Prepare returns while something has to happen elsewhere first.
// It is no failure. Whoever returns it has [Manager.Again] called when that has
// happened; the volume is looked at now and then all the same.
type Waiting struct {
	For    string
	Attach bool // for the volume to be attached to the node
}

func (w *Waiting) Error() string { return "waiting for " + w.For }

// failed is the event of an attempt that failed.
func (ps *volumes) failed(v *vol, err error) (reason, message string) {
	var step *Failure
	var unresolved *Unresolved
	switch {
	case errors.As(err, &step):
		if step.Reason != "" {
			return step.Reason, step.Text()
		}
		return pod.EventFailedMount, step.Text()
	case errors.As(err, &unresolved):
		return pod.EventFailedMount, ps.waitingFor(unresolved.Err)
	}
	return pod.EventFailedMount, fmt.Sprintf("MountVolume.SetUp failed for volume %q : %s", v.spec.Name, pod.TextOf(err))
}

// isUnresolved reports whether it is not known what the volume is.
func (v *vol) isUnresolved() bool {
	var unresolved *Unresolved
	return v.kind == nil || errors.As(v.err, &unresolved)
}

// devicesOf are the block devices that the container's specification names.
func devicesOf(c *v1.Container, have map[string]Ready) ([]pod.Device, error) {
	var out []pod.Device
	for _, d := range c.VolumeDevices {
		v, ok := have[d.Name]
		if !ok || v.Device == "" {
			return nil, fmt.Errorf("cannot find volume %q to pass into container %q", d.Name, c.Name)
		}
		permissions := "mrw"
		if v.ReadOnly {
			permissions = "r"
		}
		out = append(out, pod.Device{HostPath: v.Device, ContainerPath: d.DevicePath, Permissions: permissions})
	}
	return out, nil
}
