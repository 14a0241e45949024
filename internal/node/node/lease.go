package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	leaseTries = 5
	// leaseRetry is the longest time between rounds while the server is away: the
	// lease is fresh again soon after its return.
	leaseRetry = 5 * time.Second
)

// renewLease keeps the node's lease fresh: a node whose lease runs out is taken
// for dead. Trouble is said when it begins and when it ends.
func (n *Node) renewLease(ctx context.Context) {
	select { // the lease belongs to the node object
	case <-ctx.Done():
		return
	case <-n.registered:
	}
	every := n.cfg.LeaseDuration / 4
	var lease *coordinationv1.Lease
	var since time.Time // of the trouble
	for {
		renewed, err := n.renewRound(ctx, lease)
		lease = renewed
		wait := jittered(every)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			wait = min(wait, leaseRetry)
			if since.IsZero() {
				since = time.Now()
				n.cfg.Log.Warn("cannot renew node lease, will keep trying", "node", n.cfg.Identity.Name, "err", err)
			}
		case !since.IsZero():
			n.cfg.Log.Info("node lease is renewed again", "node", n.cfg.Identity.Name, "after", time.Since(since).Round(time.Millisecond))
			since = time.Time{}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// renewRound tries a few times in a row. The second failure drops all connections:
// after a partition they look alive and answer nothing, and of several servers behind
// one address they may lead to the one that is ill. It returns the lease as stored, to
// be renewed without reading it, or nil if that is not known.
func (n *Node) renewRound(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	var err error
	for try := 1; try <= leaseTries; try++ {
		var stored *coordinationv1.Lease
		if stored, err = n.renewOnce(ctx, lease); err == nil {
			return stored, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
		lease = nil // what was known may be old: read it
		if try == 2 {
			n.tryElsewhere(err)
		}
	}
	return nil, err
}

func (n *Node) renewOnce(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	api, name := n.cfg.API.Leases, n.cfg.Identity.Name
	if lease == nil {
		existing, err := api.Get(ctx, LeaseNamespace, name)
		if apierrors.IsNotFound(err) {
			created, err := api.Create(ctx, LeaseNamespace, n.freshLease(&coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: LeaseNamespace},
			}))
			if err != nil {
				return nil, fmt.Errorf("create lease %s: %w", name, err)
			}
			return created, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read lease %s: %w", name, err)
		}
		lease = existing
	}
	stored, err := api.Update(ctx, LeaseNamespace, name, n.freshLease(lease))
	if err != nil {
		return nil, fmt.Errorf("update lease %s: %w", name, err)
	}
	return stored, nil
}

// freshLease is the lease as it is to be now.
func (n *Node) freshLease(l *coordinationv1.Lease) *coordinationv1.Lease {
	l = l.DeepCopy()
	l.Spec.HolderIdentity = ptr.To(n.cfg.Identity.Name)
	l.Spec.LeaseDurationSeconds = ptr.To(int32(n.cfg.LeaseDuration / time.Second))
	l.Spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Now()))
	if node := n.current(); node != nil && node.UID != "" && len(l.OwnerReferences) == 0 {
		l.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: v1.SchemeGroupVersion.String(), Kind: "Node", Name: node.Name, UID: node.UID,
		}}
	}
	return l
}

// tryElsewhere has the next try go over another connection, and perhaps to another
// server, if that may help.
func (n *Node) tryElsewhere(failed error) {
	if !refused(failed) && n.cfg.API.CloseConnections != nil {
		n.cfg.API.CloseConnections()
	}
}

// refused reports whether a server that is well said no: another connection would
// lead to the same answer.
func refused(err error) bool {
	var answer apierrors.APIStatus
	return errors.As(err, &answer) && answer.Status().Code/100 == 4
}
