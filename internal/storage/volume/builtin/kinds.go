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

// Config holds what the kinds are built from. Fields are required unless their comment says
// otherwise.
type Config struct {
	Objects Objects
	Tokens  Tokens
	// Bundles and Certificates may be nil; then these projections are not served.
	Bundles      Bundles
	Certificates Certificates
	// Allocatable returns the node's allocatable resources, which bound memory-backed volumes and
	// are the downward API's default for limits.
	Allocatable func() v1.ResourceList
	// Image pulls the image of an image volume and returns the runtime's reference. It may be nil;
	// then image volumes are not served.
	Image func(ctx context.Context, p *v1.Pod, v *v1.Volume) (ref string, err error)
	Guard *mount.Guard
}

// Objects fetches ConfigMaps and Secrets.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
}

// Tokens returns service account tokens bound to a pod.
type Tokens interface {
	Token(ctx context.Context, p *v1.Pod, audiences []string, seconds *int64) (value string, renewAt time.Time, err error)
	Forgetter
}

// Forgetter keeps objects per pod in memory.
type Forgetter interface {
	// Forget drops the objects of a pod that is gone.
	Forget(types.UID)
}

func (c Config) forgetters() []Forgetter {
	if c.Certificates == nil {
		return []Forgetter{c.Tokens}
	}
	return []Forgetter{c.Tokens, c.Certificates}
}

// New returns the kinds.
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

// File modes.
const (
	volumeMode  = 0o777 // writable by containers of any user
	parentMode  = 0o755 // of a plugin's directory
	privateMode = 0o750 // of directories that are not visible to containers
)

// metaDir returns the directory of a volume's marker. Markers of all kinds are those of an
// emptyDir, which the kinds with files wrap in upstream.
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

// makeDir creates the volume's directory and reports whether it did not exist. The plugin's
// directory above is accessible to all, the pod's is not.
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
	if err == nil && !st.IsDir() { // writing through a symlink would escape
		err = &os.PathError{Op: "use as a volume", Path: p.Path, Err: unix.ENOTDIR}
	}
	return false, err
}

// makeAccessible makes the volume's directory accessible to all users, regardless of the umask and file
// system defaults. Other bits are kept: a tmpfs has the sticky bit.
func makeAccessible(path string) error {
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if st.Mode().Perm() == volumeMode {
		return nil
	}
	return os.Chmod(path, volumeMode)
}

// fsGroup returns the pod's fsGroup, if it has one.
func fsGroup(p *v1.Pod) (gid int, ok bool) {
	if sc := p.Spec.SecurityContext; sc != nil && sc.FSGroup != nil {
		return int(*sc.FSGroup), true
	}
	return 0, false
}

// release unmounts and removes a volume and its marker.
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

var errNotServed = errors.New("is not supported by this node")

// image is an image volume, which the runtime mounts.
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
