package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"keelson/internal/host/clock"
)

const (
	watchFirst   = 100 * time.Millisecond
	watchLast    = 10 * time.Second
	watchTimeout = 5 * time.Minute // the server ends a watch after this long, up to twice
)

// watch updates the copy of the node object. A single object does not need a reflector. Failures are logged once.
func (n *Node) watch(ctx context.Context) {
	backoff, logged := clock.Backoff(watchFirst, watchLast), false
	for ctx.Err() == nil {
		err := n.watchOnce(ctx, func() {
			if logged {
				n.cfg.Log.Info("watching node again", "node", n.cfg.Identity.Name)
			}
			backoff, logged = clock.Backoff(watchFirst, watchLast), false
		})
		if err != nil && !logged && ctx.Err() == nil {
			n.cfg.Log.Warn("failed to watch node", "node", n.cfg.Identity.Name, "err", err)
			logged = true
		}
		clock.Sleep(ctx, backoff.Step())
	}
}

// watchOnce lists and watches the node until the server ends the watch, which is not an error.
func (n *Node) watchOnce(ctx context.Context, works func()) error {
	lw := n.cfg.API.Nodes.ListWatch(n.cfg.Identity.Name)
	list, err := lw.ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list node: %w", err)
	}
	nodes, ok := list.(*v1.NodeList)
	if !ok {
		return fmt.Errorf("list node: the server sent %T", list)
	}
	for i := range nodes.Items {
		n.setNode(&nodes.Items[i])
	}
	access, err := meta.ListAccessor(list)
	if err != nil {
		return fmt.Errorf("list node: %w", err)
	}
	limit := watchTimeout + time.Duration(rand.Float64()*float64(watchTimeout))
	w, err := lw.WatchWithContext(ctx, metav1.ListOptions{
		ResourceVersion: access.GetResourceVersion(),
		TimeoutSeconds:  ptr.To(int64(limit / time.Second)),
	})
	if err != nil {
		return fmt.Errorf("watch node: %w", err)
	}
	defer w.Stop()
	works()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, open := <-w.ResultChan():
			if !open {
				return nil
			}
			if err := n.handleEvent(e); err != nil {
				return err
			}
		}
	}
}

func (n *Node) handleEvent(e watch.Event) error {
	switch e.Type {
	case watch.Added, watch.Modified:
		node, ok := e.Object.(*v1.Node)
		if !ok {
			return fmt.Errorf("watch node: the server sent %T", e.Object)
		}
		n.setNode(node)
		if !n.cfg.Identity.healed(node) {
			n.Wake()
		}
	case watch.Deleted:
		n.cfg.Log.Error("node object was deleted, it is not registered again before a restart",
			"node", n.cfg.Identity.Name)
	case watch.Error:
		err := apierrors.FromObject(e.Object)
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			return nil // start over
		}
		return errors.Join(errors.New("watch node"), err)
	}
	return nil
}

// older compares resource versions, which are ascending numbers.
func older(a, b *v1.Node) bool {
	x, err1 := strconv.ParseUint(a.ResourceVersion, 10, 64)
	y, err2 := strconv.ParseUint(b.ResourceVersion, 10, 64)
	return err1 == nil && err2 == nil && x < y
}
