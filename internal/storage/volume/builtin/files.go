package builtin

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
)

// objectTimeout bounds the wait for the first response for an object. A later response is a change
// and leads to another attempt.
const objectTimeout = 3 * time.Second

// filesKind is a kind of volume with files that the agent writes and containers only read.
type filesKind struct {
	cfg    Config
	plugin string
	memory bool // whether the files must not be written to a disk
	serves func(*v1.Volume) bool
	inputs func(*v1.Volume) volume.Inputs
	// collect returns the files, and when they need a refresh.
	collect    func(ctx context.Context, p *v1.Pod, v *v1.Volume) (map[string]file, time.Time, error)
	forgetters []Forgetter // drop the pod's objects when the pod is gone
}

func (k filesKind) Plugin() string           { return k.plugin }
func (k filesKind) Serves(v *v1.Volume) bool { return k.serves(v) }

func (k filesKind) Inputs(v *v1.Volume) volume.Inputs {
	in := k.inputs(v)
	in.Mounts = true
	return in
}

func (k filesKind) Prepare(ctx context.Context, r volume.Request) (volume.Ready, error) {
	files, renewAt, err := k.collect(ctx, r.Pod, r.Volume)
	if err != nil {
		return volume.Ready{}, err
	}
	err = k.cfg.Guard.Do(ctx, r.Path, "write files", func() error { return k.write(r, files) })
	return volume.Ready{Path: r.Path, ReadOnly: true, Relabel: true, RenewAt: renewAt}, err
}

func (k filesKind) Release(ctx context.Context, p volume.Place) error {
	return release(ctx, k.cfg.Guard, p, true)
}

// Gone unregisters the pod's objects, even if the volume was never prepared.
func (k filesKind) Gone(uid types.UID) {
	for _, s := range k.forgetters {
		s.Forget(uid)
	}
}

func (k filesKind) write(r volume.Request, files map[string]file) error {
	made, err := makeDir(r.Place)
	if err != nil {
		return err
	}
	meta := metaDir(r.Place, true)
	marked, err := isMarked(meta)
	if err != nil {
		return err
	}
	marked = marked && !made
	if k.memory {
		mounted, err := mount.IsPoint(r.Path)
		if err != nil {
			return err
		}
		if !mounted {
			if err := mount.Tmpfs(r.Path, memorySize(r.Pod, nil, k.cfg.Allocatable())); err != nil {
				return err
			}
			marked = false
		}
	}
	var gid *int
	if g, ok := fsGroup(r.Pod); ok {
		gid = &g
	}
	if !marked {
		if err := makeAccessible(r.Path); err != nil {
			return err
		}
	}
	nested, err := nestedMountPoints(r.Pod, r.Name)
	if err != nil {
		return err
	}
	more, err := makeMountPoints(r.Path, nested)
	if err != nil {
		return err
	}
	if gid != nil && (!marked || more) {
		if err := mount.SetGroup(r.Path, *gid, true); err != nil {
			return err
		}
	}
	if err := writeFiles(r.Path, files, nested, gid, time.Now()); err != nil {
		return err
	}
	if marked {
		return nil
	}
	return mark(meta)
}

// commonUser returns the user of all containers if the specification sets the same one. Files
// readable only by their owner are then owned by it.
func commonUser(p *v1.Pod) *int {
	var common *int
	for kind, c := range pod.Containers(p) {
		if kind == pod.Ephemeral {
			continue // ephemeral containers do not change the owner
		}
		var uid *int64
		if p.Spec.SecurityContext != nil {
			uid = p.Spec.SecurityContext.RunAsUser
		}
		if c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil {
			uid = c.SecurityContext.RunAsUser
		}
		if uid == nil || common != nil && *common != int(*uid) {
			return nil
		}
		n := int(*uid)
		common = &n
	}
	return common
}
