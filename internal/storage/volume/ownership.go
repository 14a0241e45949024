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
	// Progress of a walk that takes longer than this is reported in events.
	walkSlow  = 30 * time.Second
	walkAgain = time.Minute
)

// Ownership sets the group ownership of volumes (fsGroup).
type Ownership struct {
	Guard  *mount.Guard
	Events pod.Events
}

// SetFSGroup gives a volume that outlives pods to the pod's fsGroup: the whole tree, unless
// fsGroupChangePolicy is OnRootMismatch and the root has the group already. Without an fsGroup it
// does nothing.
func (s Ownership) SetFSGroup(ctx context.Context, p *v1.Pod, path string, readOnly bool) error {
	sc := p.Spec.SecurityContext
	if sc == nil || sc.FSGroup == nil {
		return nil
	}
	g := mount.Grant{GID: int(*sc.FSGroup), ReadOnly: readOnly, Done: new(atomic.Int64)}
	trust := sc.FSGroupChangePolicy != nil && *sc.FSGroupChangePolicy == v1.FSGroupChangeOnRootMismatch
	return s.report(ctx, p, path, func() error {
		if trust {
			if has, err := mount.HasGroup(path, g.GID, readOnly); has || err != nil {
				return err
			}
		}
		return g.Apply(ctx, path)
	}, g.Done)
}

// report runs a walk and records events about its progress if it takes long.
func (s Ownership) report(ctx context.Context, p *v1.Pod, path string, walk func() error, looked *atomic.Int64) error {
	result := make(chan error, 1)
	go func() { result <- s.Guard.Do(ctx, path, "set volume ownership", walk) }()
	due := time.NewTimer(walkSlow)
	defer due.Stop()
	last, shown := int64(-1), path
	if i := strings.Index(path, "/"+string(p.UID)+"/"); i >= 0 {
		shown = path[i+1:] // without the root directory, which is of no interest to users
	}
	for reported := false; ; reported = true {
		select {
		case err := <-result:
			return err
		case <-due.C:
		}
		n := looked.Load()
		if n != last { // otherwise the file system hangs, and the attempt times out
			Alive(ctx)
		}
		last = n
		message := fmt.Sprintf("Setting volume ownership for %s, processed %d files.", shown, n)
		if !reported {
			message = fmt.Sprintf("Setting volume ownership for %s is taking longer than expected, "+
				"consider using OnRootMismatch - "+
				"https://kubernetes.io/docs/tasks/configure-pod-container/security-context/"+
				"#configure-volume-permission-and-ownership-change-policy-for-pods", shown)
		}
		s.Events.Pod(p, "", v1.EventTypeWarning, pod.EventPermissionChange, message)
		due.Reset(walkAgain)
	}
}
