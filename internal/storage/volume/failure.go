package volume

import (
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// Failure is the failure of one of several steps of preparing a volume that have names in events.
type Failure struct {
	Step   string // for example MountVolume.MountDevice
	While  string // the operation of the step, if it has several
	Volume string // the name in the event, which may differ from the pod's name for the volume
	Reason string // of the event; empty means FailedMount
	Err    error
}

func (f *Failure) Error() string { return f.because(f.Err.Error()) }

// Text returns the message of the event.
func (f *Failure) Text() string { return f.because(pod.TextOf(f.Err)) }

func (f *Failure) because(cause string) string {
	failed := "failed"
	if f.While != "" {
		failed += " while " + f.While
	}
	return fmt.Sprintf("%s %s for volume %q : %s", f.Step, failed, f.Volume, cause)
}
func (f *Failure) Unwrap() error { return f.Err }

// Unresolved is the cause if a volume cannot be resolved yet: its claim does not exist or is not
// bound.
type Unresolved struct{ Err error }

func (u *Unresolved) Error() string { return u.Err.Error() }
func (u *Unresolved) Unwrap() error { return u.Err }

// NoDriver is the error for a volume whose driver is not registered on the node. The kind calls
// [Manager.DriverRegistered] when the driver registers.
type NoDriver struct{ Name string }

func (n *NoDriver) Error() string {
	return fmt.Sprintf("driver name %s not found in the list of registered CSI drivers", n.Name)
}

// isDriverMissing reports whether an attempt failed because the named driver was not registered.
func isDriverMissing(err error, name string) bool {
	var none *NoDriver
	return errors.As(err, &none) && none.Name == name
}

// AttachLimit is why a volume cannot be attached: the node has the maximum number of volumes of the
// driver. The pod cannot run here.
type AttachLimit struct{ Cause string }

func (l *AttachLimit) Error() string {
	return "Node has reached its volume attachment limit: " + l.Cause
}

// reasonAttachLimit is the status reason of a pod rejected because of an AttachLimit.
const reasonAttachLimit = "VolumeAttachmentLimitExceeded"

// rejection returns the rejection of a pod with a volume that cannot be attached.
func (ps *volumes) rejection(v *vol, l *AttachLimit) *pod.Rejection {
	unmounted, unattached, failed := ps.missing()
	if !slices.Contains(unattached, v.spec.Name) {
		unattached = append(unattached, v.spec.Name)
		slices.Sort(unattached)
	}
	message := fmt.Sprintf("Node has reached its volume attachment limit, rejecting pod. "+
		"unmounted volumes=%v, unattached volumes=%v, failed to process volumes=%v: %s",
		unmounted, unattached, failed, l.Cause)
	return &pod.Rejection{Reason: reasonAttachLimit, Message: message}
}

// Waiting is returned by Prepare if something else has to happen first. It is not a failure. The
// kind calls [Manager.Again] when it has happened; the manager retries periodically in any case.
type Waiting struct {
	For    string
	Attach bool // for the attachment of the volume to the node
}

func (w *Waiting) Error() string { return "waiting for " + w.For }

// failed returns the event of a failed attempt.
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
	return pod.EventFailedMount, fmt.Sprintf("MountVolume.SetUp failed for volume %q : %s", v.spec.Name,
		pod.TextOf(err))
}

// isUnresolved reports whether the volume could not be resolved.
func (v *vol) isUnresolved() bool {
	var unresolved *Unresolved
	return v.kind == nil || errors.As(v.err, &unresolved)
}

// devicesOf returns the block devices for a container.
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
