package builtin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
)

// Config holds what the kinds are built from. Fields are required unless
// they say otherwise.
type Config struct {
	Objects Objects
	Tokens  Tokens
	// Bundles and Certificates may be nil, and then are not served.
	Bundles      Bundles
	Certificates Certificates
	// Allocatable is what the node's pods can have: a bound for memory volumes,
	// and what the downward API shows for limits that are not set.
	Allocatable func() v1.ResourceList
	// Image makes an image volume's image present and names it for the runtime.
	// It may be nil: then pods with such volumes wait, with that reason.
	Image func(ctx context.Context, p *v1.Pod, v *v1.Volume) (ref string, err error)
	Guard *mount.Guard
}

// Objects reads what pods refer to.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
}

// Tokens gets service account tokens that are bound to a pod.
type Tokens interface {
	Token(ctx context.Context, p *v1.Pod, audiences []string, seconds *int64) (value string, renewAt time.Time, err error)
	Forgetter
}

// A Forgetter keeps something for pods in memory.
type Forgetter interface {
	// Forget drops it for a pod that is gone.
	Forget(types.UID)
}

func (c Config) forgetters() []Forgetter {
	if c.Certificates == nil {
		return []Forgetter{c.Tokens}
	}
	return []Forgetter{c.Tokens, c.Certificates}
}

// New returns the table of kinds.
func New(cfg Config) []volume.Kind {
	return []volume.Kind{
		emptyDir{cfg},
		configMapKind(cfg),
		secretKind(cfg),
		downwardKind(cfg),
		projectedKind(cfg),
		image{cfg},
	}
}

// Permissions of what this package makes.
const (
	volumeMode  = 0o777 // containers of any user write to it
	parentMode  = 0o755 // of a plugin's directory
	privateMode = 0o750 // of directories that containers never see
)

// metaDir is where the marker of a volume lives. Volumes of files count as
// wrapped around an emptyDir, whose plugin keeps all markers.
func metaDir(p volume.Place, wrapped bool) string {
	name := p.Name
	if wrapped {
		name = "wrapped_" + name
	}
	return filepath.Join(p.Pod, "plugins", "kubernetes.io~empty-dir", name)
}

func isMarked(meta string) (bool, error) {
	_, err := os.Lstat(filepath.Join(meta, "ready"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func mark(meta string) error {
	if err := os.MkdirAll(meta, privateMode); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(meta, "ready"), os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// makeDir makes the volume's own directory, and reports whether it was missing.
// The plugin's directory above it is open to all, the pod's above that is not.
func makeDir(p volume.Place) (made bool, err error) {
	plugin := filepath.Dir(p.Path)
	if err := os.MkdirAll(filepath.Dir(plugin), privateMode); err != nil {
		return false, err
	}
	if err := os.Mkdir(plugin, parentMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	err = os.Mkdir(p.Path, volumeMode)
	if !errors.Is(err, fs.ErrExist) {
		return err == nil, err
	}
	st, err := os.Lstat(p.Path)
	if err == nil && !st.IsDir() { // a symlink would have files written where it leads
		err = &os.PathError{Op: "use as a volume", Path: p.Path, Err: unix.ENOTDIR}
	}
	return false, err
}

// letIn lets everybody into the volume's directory, whatever the umask and the
// file system made of it. Other bits stay: a tmpfs is sticky.
func letIn(path string) error {
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if st.Mode().Perm() == volumeMode {
		return nil
	}
	return os.Chmod(path, volumeMode)
}

// fsGroup is the group that shares the pod's volumes, if it has one.
func fsGroup(p *v1.Pod) (gid int, ok bool) {
	if sc := p.Spec.SecurityContext; sc != nil && sc.FSGroup != nil {
		return int(*sc.FSGroup), true
	}
	return 0, false
}

// release takes away a directory, what is mounted on it, and its marker.
func release(ctx context.Context, g *mount.Guard, p volume.Place, wrapped bool) error {
	return g.Do(ctx, p.Path, "release volume", func() error {
		if err := mount.RemoveTree(metaDir(p, wrapped)); err != nil {
			return err
		}
		if err := mount.Unmount(p.Path); err != nil {
			return err
		}
		return mount.RemoveTree(p.Path)
	})
}

var errNotServed = errors.New("is not served by this node agent")

// image is a volume that is the content of an OCI image; the runtime mounts it.
type image struct{ cfg Config }

func (image) Plugin() string                              { return "kubernetes.io/image" }
func (image) Serves(v *v1.Volume) bool                    { return v.Image != nil }
func (image) Inputs(*v1.Volume) volume.Inputs             { return volume.Inputs{} }
func (image) Release(context.Context, volume.Place) error { return nil }

func (k image) Prepare(ctx context.Context, r volume.Request) (volume.Ready, error) {
	if k.cfg.Image == nil {
		return volume.Ready{}, fmt.Errorf("image volume %w", errNotServed)
	}
	ref, err := k.cfg.Image(ctx, r.Pod, r.Volume)
	if err != nil {
		return volume.Ready{}, err
	}
	return volume.Ready{Image: ref, ReadOnly: true}, nil
}
