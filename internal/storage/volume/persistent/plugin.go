package persistent

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/volume"
)

// Spec is a volume as its owner wrote it: a PersistentVolume that a claim is
// bound to, or one that a pod names itself.
type Spec struct {
	// Name is that of the volume's directories: the PersistentVolume's, or the
	// one that the pod gives it.
	Name     string
	PV       *v1.PersistentVolume      // nil if the pod names it itself
	Claim    *v1.PersistentVolumeClaim // with PV
	Inline   *v1.Volume                // nil with PV
	ReadOnly bool                      // the pod asks for it
	Block    bool                      // it comes as a block device
	Migrated bool                      // it was described as one of a cloud
}

// ForReading reports whether the pod gets the volume read-only. What its source says of
// that counts only if the pod names the volume itself: upstream ignores the readOnly of a
// PersistentVolume's source and takes that of the pod's claim alone.
func (s Spec) ForReading(source bool) bool { return s.ReadOnly || s.PV == nil && source }

// Traits are what a volume is to the node.
type Traits struct {
	// ID is the volume's name on this node: kubernetes.io/csi/driver^handle. Two
	// specifications of one ID are the same volume. Empty if nothing of it is
	// common to the pods of the node: it is neither attached nor staged.
	ID string
	// Attach is set if a controller has to attach it to the node first.
	Attach bool
	// Label is the SELinux label that the disk says it is mounted with; empty for
	// none. What a specification describes has none yet.
	Label string
}

// Device is what the disk says of a volume that may be staged.
type Device struct {
	Traits
	Name  string // of the specification, if the record has it
	Dir   string // of the record
	Block bool
}

// Request is what a step is taken from.
type Request struct {
	Spec
	Place volume.Place // in the pod
	Pod   *v1.Pod
	// AttachedAt is what the controller says the device is called on this node;
	// often nothing.
	AttachedAt string
	// Label is the SELinux label to mount the volume with, and to write down; empty
	// for none. It is set for a Labeller's volumes only.
	Label string
}

// LabelOption is the mount option by which all files have the request's label.
func (r Request) LabelOption() []string {
	if r.Label == "" {
		return nil
	}
	return []string{fmt.Sprintf("context=%q", r.Label)} // it may have a comma in it
}

// Published is a volume that the pod can use.
type Published struct {
	Path     string // to mount into containers; empty for a device
	Device   string // of the host, for a volume that comes as one
	ReadOnly bool
	Relabel  bool      // whether the runtime is to label the files for the pod, where SELinux is on
	RenewAt  time.Time // when Publish is due again; zero for never
}

// Plugin is one way to bring persistent volumes to a node. Every step is safe to
// repeat, works from whatever is there, and returns soon after ctx ended.
type Plugin interface {
	// Name is the plugin's in paths and messages: kubernetes.io/csi.
	Name() string
	// Serves reports whether the volume is the plugin's.
	Serves(s Spec) bool
	// Describe tells what the volume is to the node.
	Describe(ctx context.Context, s Spec) (Traits, error)

	// Stage does what is done once for the node. It leaves the record that Devices
	// finds before the first effect. An error that is not Unknown means that
	// nothing was done, and then the record is gone.
	Stage(ctx context.Context, r Request) error
	// Unstage undoes Stage as far as it came, and then removes the record.
	Unstage(ctx context.Context, d Device) error
	// Publish gives the volume to a pod. Before the first effect it makes the
	// place, by which Unpublish is called in the end. What was said about errors
	// of Stage holds here too. A call for a pod that has the volume renews it, and
	// must leave it usable if it fails.
	Publish(ctx context.Context, r Request) (Published, error)
	// Unpublish undoes Publish as far as it came, and then removes the place. It
	// knows no more than the disk does.
	Unpublish(ctx context.Context, p volume.Place) error

	// Devices lists what may be staged, by the disk. What it can list is returned
	// along with an error about the rest.
	Devices() ([]Device, error)
	// DeviceOf is the device that a pod's volume stands on, by the disk; none for
	// a volume without one.
	DeviceOf(p volume.Place) (Traits, error)
}

// A Blocker is a Plugin whose volumes can come as block devices.
type Blocker interface {
	// MapDir is where the volume's device is mapped for each pod, by its UID.
	MapDir(name string) string
}

// An Attachable is a Plugin whose volumes a controller attaches to the node, and
// that can learn how the controller fares.
type Attachable interface {
	// AttachFailure returns a volume.AttachLimit if the volume will never be attached to
	// this node. It returns nil while it may still be attached, and another error if that
	// is unknown.
	AttachFailure(ctx context.Context, s Spec) error
}

// A Labeller is a Plugin whose volumes can be mounted with an SELinux label.
type Labeller interface {
	// TakesLabel reports whether this volume can.
	TakesLabel(ctx context.Context, s Spec) (bool, error)
}

// Unknown marks the error of a step that may have had an effect, or still may.
func Unknown(err error) error {
	if err == nil {
		return nil
	}
	return &unknown{err}
}

type unknown struct{ err error }

func (u *unknown) Error() string { return u.err.Error() }
func (u *unknown) Unwrap() error { return u.err }

// NotStaged marks the error of a Publish whose device, which Stage had attached, is
// no longer on the node. The next attempt stages the volume again.
func NotStaged(err error) error { return &notStaged{err} }

type notStaged struct{ err error }

func (n *notStaged) Error() string { return n.err.Error() }
func (n *notStaged) Unwrap() error { return n.err }

// isNotStaged reports whether the volume must be staged again.
func isNotStaged(err error) bool {
	var n *notStaged
	return errors.As(err, &n)
}

// Undone is the error of a failed step with the result of its cleanup: if the cleanup
// failed, parts of the step may remain. Events show only the error of the step.
func Undone(failed, undoing error) error {
	if undoing == nil {
		return failed
	}
	return Unknown(pod.ShowAs(pod.TextOf(failed), errors.Join(failed, undoing)))
}

// IsUnknown reports whether the step may have had an effect.
func IsUnknown(err error) bool {
	var u *unknown
	return errors.As(err, &u) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
