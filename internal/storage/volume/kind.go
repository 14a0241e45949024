package volume

import (
	"context"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Kind is a volume plugin. Kinds are entries of a table.
type Kind interface {
	// Plugin returns the plugin's name in paths and messages, for example kubernetes.io/empty-dir.
	Plugin() string
	// Serves reports whether the volume is of this kind.
	Serves(v *v1.Volume) bool
	// Inputs returns what the volume's content depends on. When it changes, Prepare is called
	// again.
	Inputs(v *v1.Volume) Inputs
	// Prepare makes the volume ready, or updates a ready one, from any state on the disk. It must
	// return soon after ctx ends.
	Prepare(ctx context.Context, r Request) (Ready, error)
	// Release removes a volume, given only what is on the disk. It is not an error if nothing is
	// left.
	Release(ctx context.Context, p Place) error
}

// Place is the location of a volume.
type Place struct {
	UID  types.UID
	Name string // of the volume
	// Pod is the pod's directory, Path the volume's below it. They may not exist.
	Pod  string
	Path string
	// Block is set for a block volume: then Path is below volumeDevices, and is a symlink or does
	// not exist.
	Block bool
}

// Request is the input of Prepare.
type Request struct {
	Place
	Pod    *v1.Pod
	Volume *v1.Volume
}

// Inputs is what a volume's content depends on.
type Inputs struct {
	Objects []Object
	// Pod is set if the content includes fields of the pod.
	Pod bool
	// Mounts is set if the volume contains mount points for nested volumes.
	Mounts bool
}

// Object is a ConfigMap or Secret of the pod's namespace, a ClusterTrustBundle (without a name,
// any), or a certificate of the pod, by the name of its volume.
type Object struct{ Kind, Name string }

// Kinds of objects.
const (
	ConfigMap = "configmap"
	Secret    = "secret"

	TrustBundle = "clustertrustbundle"
	Certificate = "podcertificate"
)

// Ready is a volume that is ready to be mounted into containers.
type Ready struct {
	Name     string    // name of its directories if not the pod's name for it
	Path     string    // on the host; empty for an image or a block device
	Device   string    // on the host, for a block volume
	ReadOnly bool      // in addition to the container's readOnly
	Relabel  bool      // whether the runtime relabels the files if SELinux is enabled
	Group    *int64    // supplemental group of the volume, for example from an annotation of the PersistentVolume
	Image    string    // the runtime's reference for an image volume
	RenewAt  time.Time // when to refresh the content; zero for never
	// Counted is the plugin name in metrics if it differs from the kind's. It is also set when
	// Prepare failed.
	Counted string
	// Migrated is the label in metrics for an in-tree volume that a CSI driver serves.
	Migrated bool
	// Did is the operation to count in metrics. It is also set when Prepare failed.
	Did Operation
}

// Operation is what an attempt to prepare a volume did.
type Operation int

// Operations.
const (
	Mounted Operation = iota
	Mapped            // mapped a block device
	Resized           // expanded a mounted volume
	Nothing           // the volume was mounted already
)

// Counted is a Kind whose volumes have other plugin names in metrics.
type Counted interface {
	// CountedAs returns the plugin name in metrics of a volume on the disk.
	CountedAs(p Place) string
}

// Tracker is a Kind that has state per pod.
type Tracker interface {
	// Gone is called when all of the pod's volumes are released. It must not block.
	Gone(types.UID)
}

// PlaceOf returns the location of a plugin's volume.
func PlaceOf(root string, uid types.UID, plugin, name string, block bool) Place {
	dir, sub := PodDir(root, uid), volumesDir
	if block {
		sub = devicesDir
	}
	return Place{UID: uid, Name: name, Pod: dir, Path: filepath.Join(dir, sub, escape(plugin), name), Block: block}
}
