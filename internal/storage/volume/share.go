package volume

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
)

const (
	// A walk that takes longer than this is told of, and from then on how far it
	// came.
	walkSlow  = 30 * time.Second
	walkAgain = time.Minute
)

// Sharing gives volumes to the group that a pod shares its volumes with.
type Sharing struct {
	Guard  *mount.Guard
	Events pod.Events
}

// Lasting gives a volume that outlives pods to p's group, all of it unless p's
// policy trusts the root of it. A pod without a group changes nothing.
func (s Sharing) Lasting(ctx context.Context, p *v1.Pod, path string, readOnly bool) error {
	sc := p.Spec.SecurityContext
	if sc == nil || sc.FSGroup == nil {
		return nil
	}
	g := mount.Grant{GID: int(*sc.FSGroup), ReadOnly: readOnly, Done: new(atomic.Int64)}
	trust := sc.FSGroupChangePolicy != nil && *sc.FSGroupChangePolicy == v1.FSGroupChangeOnRootMismatch
	return s.give(ctx, p, path, func() error {
		if trust {
			if has, err := mount.HasGroup(path, g.GID, readOnly); has || err != nil {
				return err
			}
		}
		return g.Apply(ctx, path)
	}, g.Done)
}

// give runs a walk, and tells of it while it takes long.
func (s Sharing) give(ctx context.Context, p *v1.Pod, path string, walk func() error, looked *atomic.Int64) error {
	result := make(chan error, 1)
	go func() { result <- s.Guard.Do(ctx, path, "give volume to its group", walk) }()
	tell := time.NewTimer(walkSlow)
	defer tell.Stop()
	last, shown := int64(-1), path
	if i := strings.Index(path, "/"+string(p.UID)+"/"); i >= 0 {
		shown = path[i+1:] // without the node's root directory, which the pod's users need not see
	}
	for said := false; ; said = true {
		select {
		case err := <-result:
			return err
		case <-tell.C:
		}
		n := looked.Load()
		if n != last { // else the file system hangs, and the attempt ends in time
			Alive(ctx)
		}
		last = n
		message := fmt.Sprintf("Setting volume ownership for %s, processed %d files.", shown, n)
		if !said {
			message = fmt.Sprintf("Setting volume ownership for %s is taking longer than expected, "+
				"consider using OnRootMismatch - "+
				"https://kubernetes.io/docs/tasks/configure-pod-container/security-context/"+
				"#configure-volume-permission-and-ownership-change-policy-for-pods", shown)
		}
		s.Events.Pod(p, "", v1.EventTypeWarning, pod.EventPermissionChange, message)
		tell.Reset(walkAgain)
	}
}
