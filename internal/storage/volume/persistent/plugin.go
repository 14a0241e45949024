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

// Spec is the specification of a volume: a PersistentVolume bound to a claim, or an inline volume
// of a pod.
type Spec struct {
	// Name is the name of the volume's directories: that of the PersistentVolume, or the pod's name
	// for an inline volume.
	Name     string
	PV       *v1.PersistentVolume      // nil for an inline volume
	Claim    *v1.PersistentVolumeClaim // set with PV
	Inline   *v1.Volume                // nil with PV
	ReadOnly bool                      // requested by the pod
	Block    bool                      // a block volume
	Migrated bool                      // translated from an in-tree cloud volume
}

// ForReading reports whether the pod gets the volume read-only. readOnly of the source only counts
// for inline volumes: as upstream, that of a PersistentVolume is ignored and only the claim
// reference in the pod counts.
func (s Spec) ForReading(source bool) bool { return s.ReadOnly || s.PV == nil && source }

// Traits identify a volume on the node.
type Traits struct {
	// ID is the volume's unique name: kubernetes.io/csi/driver^handle. Specifications with the same
	// ID are the same volume. It is empty for a volume that pods do not share: it is neither
	// attached nor staged.
	ID string
	// Attach is set if the attach/detach controller has to attach it first.
	Attach bool
	// Label is the SELinux label of a volume that is mounted, from its record; empty for none, and
	// for a volume known by specification only.
	Label string
}

// Device is a volume that may be staged, from its record.
type Device struct {
	Traits
	Name  string // of the PersistentVolume or inline volume, if recorded
	Dir   string // of the record
	Block bool
}

// Request is the input of a step.
type Request struct {
	Spec
	Place volume.Place // in the pod
	Pod   *v1.Pod
	// AttachedAt is the device path in the node status, often empty.
	AttachedAt string
	// Label is the SELinux label to mount and record the volume with; empty for none. Only set for
	// a Labeller.
	Label string
}

// LabelOption returns the mount option that gives all files the label.
func (r Request) LabelOption() []string {
	if r.Label == "" {
		return nil
	}
	return []string{fmt.Sprintf("context=%q", r.Label)} // quoted, since the label may contain a comma
}

// Published is a volume that the pod can use.
type Published struct {
	Path     string // to mount into containers; empty for a block volume
	Device   string // on the host, of a block volume
	ReadOnly bool
	Relabel  bool      // whether the runtime relabels the files if SELinux is enabled
	RenewAt  time.Time // when to call Publish again; zero for never
}

// Plugin is a volume plugin. Every step is idempotent, works from any state, and returns soon after
// ctx ends.
type Plugin interface {
	// Name returns the plugin's name in paths and messages, for example kubernetes.io/csi.
	Name() string
	// Serves reports whether the plugin serves the volume.
	Serves(s Spec) bool
	// Describe returns the identity of the volume on the node.
	Describe(ctx context.Context, s Spec) (Traits, error)

	// Stage prepares the volume for the node. It writes the record that Devices reads before the
	// first effect. An error that is not Unknown means that there was no effect and the record was
	// removed.
	Stage(ctx context.Context, r Request) error
	// Unstage undoes a Stage, even an incomplete one, and then removes the record.
	Unstage(ctx context.Context, d Device) error
	// Publish makes the volume available to a pod. Before the first effect it creates the place,
	// for which Unpublish will be called. Its errors are like those of Stage. For a pod that
	// already has the volume it is a refresh, after whose failure the volume must still be usable.
	Publish(ctx context.Context, r Request) (Published, error)
	// Unpublish undoes a Publish, even an incomplete one, and then removes the place. It works from
	// what is on the disk.
	Unpublish(ctx context.Context, p volume.Place) error

	// Devices returns what may be staged, from the records. If some cannot be read, it returns the
	// others and an error.
	Devices() ([]Device, error)
	// DeviceOf returns the device of a pod's volume, from what is on the disk; zero for a volume
	// without one.
	DeviceOf(p volume.Place) (Traits, error)
}

// Blocker is a Plugin that supports block volumes.
type Blocker interface {
	// MapDir returns the directory in which the volume's device is mapped for each pod, by UID.
	MapDir(name string) string
}

// Attachable is a Plugin whose volumes the attach/detach controller attaches, and that can find out
// why it fails.
type Attachable interface {
	// AttachFailure returns a volume.AttachLimit if the volume can never be attached to this node,
	// nil while it may still be attached, and another error if that is unknown.
	AttachFailure(ctx context.Context, s Spec) error
}

// Labeller is a Plugin whose volumes can be mounted with an SELinux label.
type Labeller interface {
	// TakesLabel reports whether this volume can be mounted with a label.
	TakesLabel(ctx context.Context, s Spec) (bool, error)
}

// Unknown marks the error of a step that may have had an effect, or may still have one.
func Unknown(err error) error {
	if err == nil {
		return nil
	}
	return &unknown{err}
}

type unknown struct{ err error }

func (u *unknown) Error() string { return u.err.Error() }
func (u *unknown) Unwrap() error { return u.err }

// NotStaged marks the error of a Publish whose device is no longer on the node. The next attempt
// stages the volume again.
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
