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
	leaseTries = 5 // in a row, before there are pauses
	// Pauses between further tries grow from the first to the last: a server that comes
	// back is not met by all nodes at once, and the lease is fresh again soon after.
	leasePauseFirst = 200 * time.Millisecond
	leasePauseLast  = 5 * time.Second
)

// leasePause is how long to wait after so many failed tries in a row.
func leasePause(failed int) time.Duration {
	if failed < leaseTries {
		return 0
	}
	return min(leasePauseFirst<<min(failed-leaseTries, 16), leasePauseLast)
}

// renewLease keeps the node's lease fresh: a node whose lease expires is considered dead.
// The lease is not created before the node object that owns it exists. A failure is logged
// when it has lasted for leaseTries, and when it is over.
//
// The second failure and every fifth after it close all connections: after a network
// partition a connection may look alive without delivering anything, and behind a load
// balancer it may lead to an API server that has failed.
func (n *Node) renewLease(ctx context.Context) {
	for _, before := range []<-chan struct{}{n.registered, n.heardOf} {
		select {
		case <-ctx.Done():
			return
		case <-before:
		}
	}
	every := n.cfg.LeaseDuration / 4
	var lease *coordinationv1.Lease
	failed, since := 0, time.Now()
	for {
		begun := time.Now()
		stored, err := n.renewOnce(ctx, lease)
		lease = stored // nil after a failure: the copy at hand may be old, read it
		wait := jittered(every)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if failed++; failed == 1 {
				since = begun
			}
			wait = min(wait, leasePause(failed))
			if failed%leaseTries == 2 {
				n.tryElsewhere(err)
			}
			if failed == leaseTries {
				n.cfg.Log.Warn("cannot renew node lease, will keep trying", "node", n.cfg.Identity.Name, "err", err)
			}
		default:
			if failed >= leaseTries {
				took := time.Since(since).Round(time.Millisecond)
				n.cfg.Log.Info("node lease is renewed again", "node", n.cfg.Identity.Name, "after", took)
			}
			failed = 0
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// renewOnce renews the lease as last stored, or as read if that is not known, and creates
// it if there is none. It returns the lease as stored.
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
