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

	"keelson/internal/host/clock"
)

const (
	leaseTries = 5 // consecutive attempts without back-off
	// Bounds of the back-off after that. It is limited, so that the lease is renewed soon after the server is back.
	leasePauseFirst = 200 * time.Millisecond
	leasePauseLast  = 5 * time.Second
)

// renewLease renews the node's lease: a node with an expired lease is considered dead. The lease is created after the
// node object that owns it. Failures are logged when there were leaseTries of them, and when they have ended.
//
// The second failure and every fifth after it close all connections: after a network partition a broken connection may
// still look open, and behind a load balancer it may lead to an API server that has failed.
func (n *Node) renewLease(ctx context.Context) {
	for _, before := range []<-chan struct{}{n.registered, n.nodeExists} {
		select {
		case <-ctx.Done():
			return
		case <-before:
		}
	}
	every := n.cfg.LeaseDuration / 4
	var lease *coordinationv1.Lease
	failed, since := 0, time.Now()
	backoff := clock.Backoff(leasePauseFirst, leasePauseLast)
	for {
		begun := time.Now()
		stored, err := n.renewOnce(ctx, lease)
		lease = stored // nil after a failure, so that it is read again
		wait := jittered(every)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if failed++; failed == 1 {
				since = begun
			}
			if failed < leaseTries {
				wait = 0
			} else {
				wait = min(wait, backoff.Step())
			}
			if failed%leaseTries == 2 {
				n.closeConnections(err)
			}
			if failed == leaseTries {
				n.cfg.Log.Warn("failed to renew node lease", "node", n.cfg.Identity.Name, "err", err)
			}
		default:
			if failed >= leaseTries {
				took := time.Since(since).Round(time.Millisecond)
				n.cfg.Log.Info("renewed node lease after failures", "node", n.cfg.Identity.Name, "duration", took)
			}
			failed, backoff = 0, clock.Backoff(leasePauseFirst, leasePauseLast)
		}
		if !clock.Sleep(ctx, wait) {
			return
		}
	}
}

// renewOnce renews the stored lease, or reads it if lease is nil, and creates it if there is none. It returns the
// stored lease.
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

// freshLease returns the lease with a new renew time.
func (n *Node) freshLease(l *coordinationv1.Lease) *coordinationv1.Lease {
	l = l.DeepCopy()
	l.Spec.HolderIdentity = ptr.To(n.cfg.Identity.Name)
	l.Spec.LeaseDurationSeconds = ptr.To(int32(n.cfg.LeaseDuration / time.Second))
	l.Spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Now()))
	if node := n.current(); node != nil && node.UID != "" && len(l.OwnerReferences) == 0 {
		l.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: v1.SchemeGroupVersion.String(),
			Kind:       "Node",
			Name:       node.Name,
			UID:        node.UID,
		}}
	}
	return l
}

// closeConnections closes all connections if that may help, so that the next attempt uses another one, and maybe
// another server.
func (n *Node) closeConnections(failed error) {
	if !refused(failed) && n.cfg.API.CloseConnections != nil {
		n.cfg.API.CloseConnections()
	}
}

// refused reports whether a healthy server has rejected a request, so that another connection would not help.
func refused(err error) bool {
	var answer apierrors.APIStatus
	return errors.As(err, &answer) && answer.Status().Code/100 == 4
}
