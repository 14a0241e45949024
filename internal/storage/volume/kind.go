package volume

import (
	"context"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Kind is one way for a volume to come to a pod. Kinds are entries of a table:
// a new one changes nothing here.
type Kind interface {
	// Plugin is the kind's name in paths and messages: kubernetes.io/empty-dir.
	Plugin() string
	// Serves reports whether the volume is of this kind.
	Serves(v *v1.Volume) bool
	// Inputs tells what the volume's content is made from; a change of it leads
	// to another Prepare.
	Inputs(v *v1.Volume) Inputs
	// Prepare makes the volume ready, or brings a ready one up to date, from
	// whatever is there of it. It must return soon after ctx ended.
	Prepare(ctx context.Context, r Request) (Ready, error)
	// Release takes away whatever there is of a volume. It knows no more of it
	// than the disk does. Nothing being left is no error.
	Release(ctx context.Context, p Place) error
}

// Place is where a volume lives.
type Place struct {
	UID  types.UID
	Name string // of the volume
	// Pod is the pod's directory, Path the volume's own below it. Neither need
	// exist.
	Pod  string
	Path string
	// Block is set if the pod has the volume as a device: then Path is below
	// volumeDevices, and a link or nothing.
	Block bool
}

// Request is what a volume is prepared from.
type Request struct {
	Place
	Pod    *v1.Pod
	Volume *v1.Volume
}

// Inputs is what a volume's content is made from.
type Inputs struct {
	Objects []Object
	// Pod is set if fields of the pod itself are shown.
	Pod bool
	// Mounts is set if the volume has mount points for others that containers mount
	// below it.
	Mounts bool
}

// Object is a ConfigMap or a Secret of the pod's namespace, a trust bundle of the
// cluster (without a name, any), or a certificate of the pod by the name of its
// volume.
type Object struct{ Kind, Name string }

// The kinds of objects.
const (
	ConfigMap = "configmap"
	Secret    = "secret"

	TrustBundle = "clustertrustbundle"
	Certificate = "podcertificate"
)

// Ready is a volume that containers can mount.
type Ready struct {
	Name     string    // of its directories, where the pod calls it otherwise; else empty
	Path     string    // on the host; empty for an image or a device
	Device   string    // on the host, of a volume that comes as a block device
	ReadOnly bool      // whatever a container's mount says
	Relabel  bool      // whether the runtime is to label the files for the pod, where SELinux is on
	Group    *int64    // that owns the files, as whoever made the volume says
	Image    string    // the runtime's reference of an image that is the volume
	RenewAt  time.Time // when the content grows old; zero for never
	// Counted is the volume's plugin in metrics, where that is not the kind's: also of
	// one that could not be prepared.
	Counted string
	// Migrated says in metrics that the volume was described as one of a cloud, and is
	// served by a driver.
	Migrated bool
	// Did is the operation in metrics, also of a volume that could not be prepared.
	Did Operation
}

// Operation is what an attempt at preparing a volume did.
type Operation int

// The operations.
const (
	Mounted Operation = iota
	Mapped            // it is a block device
	Resized           // it was mounted already, and was expanded
	Nothing           // it was mounted already, and nothing had to be done
)

// Counted is a Kind whose volumes are counted under other names than its own.
type Counted interface {
	// CountedAs is the plugin in metrics of a volume that is on the disk.
	CountedAs(p Place) string
}

// A Tracker is a Kind that remembers pods.
type Tracker interface {
	// Gone is called once nothing of the pod's volumes is left on the disk. It
	// must not block.
	Gone(types.UID)
}

// PlaceOf is where the named volume of a plugin lives.
func PlaceOf(root string, uid types.UID, plugin, name string, block bool) Place {
	dir, sub := PodDir(root, uid), volumesDir
	if block {
		sub = devicesDir
	}
	return Place{UID: uid, Name: name, Pod: dir, Path: filepath.Join(dir, sub, escape(plugin), name), Block: block}
}
