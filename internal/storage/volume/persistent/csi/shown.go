package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeAPI is this node at the API server.
type NodeAPI interface {
	Node(ctx context.Context) (*v1.Node, error)
	// PatchNode applies a strategic merge patch.
	PatchNode(ctx context.Context, patch []byte) error
	CSINode(ctx context.Context) (*storagev1.CSINode, error)
	CreateCSINode(ctx context.Context, n *storagev1.CSINode) error
	UpdateCSINode(ctx context.Context, n *storagev1.CSINode) error
}

const (
	showTries    = 5 // of one update, as others write the objects too
	minShowRetry = 100 * time.Millisecond
	maxShowRetry = 30 * time.Second
)

// Shown is what the API server is told of the node's drivers: the CSINode object,
// and an annotation and labels of the node.
type Shown struct {
	api        NodeAPI
	name       string
	registered <-chan struct{} // closed when the node object exists
	onReady    func()
	log        *slog.Logger

	write chan struct{} // capacity 1; who has put in may write

	mu    sync.Mutex
	ready bool
}

// NewShown builds a Shown. onReady is called once the CSINode is there.
func NewShown(api NodeAPI, name string, registered <-chan struct{}, onReady func(), log *slog.Logger) *Shown {
	return &Shown{api: api, name: name, registered: registered, onReady: onReady, log: log, write: make(chan struct{}, 1)}
}

// Run sees to it that there is a CSINode, and then ends.
func (s *Shown) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.registered:
	}
	said := false
	for delay := minShowRetry; ; delay = min(2*delay, maxShowRetry) {
		err := s.update(ctx, func(*storagev1.CSINode) {})
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil
		}
		if !said {
			said = true
			s.log.Warn("cannot make CSINode, will keep trying", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(delay):
		}
	}
	s.mu.Lock()
	s.ready = true
	s.mu.Unlock()
	s.onReady()
	<-ctx.Done()
	return nil
}

// Problem is why the node may not be ready yet: pods that use drivers would be
// placed by a CSINode that is not true.
func (s *Shown) Problem() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready {
		return nil
	}
	return errors.New("CSINode is not yet initialized")
}

// Show tells what a driver says of the node.
func (s *Shown) Show(ctx context.Context, info NodeInfo) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.registered:
	}
	if err := s.updateNode(ctx, func(n *v1.Node) (map[string]any, error) { return nodePatch(n, info) }); err != nil {
		return err
	}
	return s.update(ctx, func(n *storagev1.CSINode) { setDriver(n, info) })
}

// Hide takes back what Show told; labels of the topology stay, since pods have
// been placed by them.
func (s *Shown) Hide(ctx context.Context, driver string) error {
	err := s.updateNode(ctx, func(n *v1.Node) (map[string]any, error) {
		ids, err := nodeIDs(n)
		if err != nil {
			return nil, err
		}
		if _, ok := ids[driver]; !ok {
			return nil, nil
		}
		delete(ids, driver)
		return annotationPatch(ids)
	})
	if err != nil {
		return err
	}
	return s.update(ctx, func(n *storagev1.CSINode) { dropDriver(n, driver) })
}

// update changes the CSINode, or makes it.
func (s *Shown) update(ctx context.Context, change func(*storagev1.CSINode)) error {
	return s.try(ctx, func() error {
		have, err := s.api.CSINode(ctx)
		if apierrors.IsNotFound(err) {
			node, err := s.api.Node(ctx)
			if err != nil {
				return err
			}
			fresh := newCSINode(node)
			change(fresh)
			return s.api.CreateCSINode(ctx, fresh)
		}
		if err != nil {
			return err
		}
		next := have.DeepCopy()
		next.Annotations = with(next.Annotations, annotationMigrated, migrated)
		change(next)
		if equalCSINode(have, next) {
			return nil
		}
		return s.api.UpdateCSINode(ctx, next)
	})
}

func (s *Shown) updateNode(ctx context.Context, change func(*v1.Node) (map[string]any, error)) error {
	return s.try(ctx, func() error {
		n, err := s.api.Node(ctx)
		if err != nil {
			return err
		}
		metadata, err := change(n)
		if err != nil || metadata == nil {
			return err
		}
		metadata["resourceVersion"] = n.ResourceVersion // what was read is what is changed
		patch, err := json.Marshal(map[string]any{"metadata": metadata})
		if err != nil {
			return err
		}
		return s.api.PatchNode(ctx, patch)
	})
}

// try makes one change after the other, and each again when it meets another's.
func (s *Shown) try(ctx context.Context, change func() error) error {
	select {
	case s.write <- struct{}{}:
		defer func() { <-s.write }()
	case <-ctx.Done():
		return ctx.Err()
	}
	var err error
	for range showTries {
		if err = change(); !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return err
}

func newCSINode(n *v1.Node) *storagev1.CSINode {
	return &storagev1.CSINode{
		TypeMeta: metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "CSINode"},
		ObjectMeta: metav1.ObjectMeta{
			Name:            n.Name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}},
			Annotations:     map[string]string{annotationMigrated: migrated},
		},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{}},
	}
}

// setDriver puts a driver into the list.
func setDriver(n *storagev1.CSINode, info NodeInfo) {
	d := storagev1.CSINodeDriver{Name: info.Driver, NodeID: info.NodeID, TopologyKeys: slices.Sorted(maps.Keys(info.Topology))}
	if info.Max > 0 {
		count := int32(min(info.Max, math.MaxInt32))
		d.Allocatable = &storagev1.VolumeNodeResources{Count: &count}
	}
	for i := range n.Spec.Drivers {
		if n.Spec.Drivers[i].Name == d.Name {
			n.Spec.Drivers[i] = d
			return
		}
	}
	n.Spec.Drivers = append(n.Spec.Drivers, d)
}

func dropDriver(n *storagev1.CSINode, driver string) {
	n.Spec.Drivers = slices.DeleteFunc(n.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == driver })
}

func equalCSINode(a, b *storagev1.CSINode) bool {
	return maps.Equal(a.Annotations, b.Annotations) && slices.EqualFunc(a.Spec.Drivers, b.Spec.Drivers, func(x, y storagev1.CSINodeDriver) bool {
		return x.Name == y.Name && x.NodeID == y.NodeID && slices.Equal(x.TopologyKeys, y.TopologyKeys) && equalCount(x.Allocatable, y.Allocatable)
	})
}

func equalCount(a, b *storagev1.VolumeNodeResources) bool {
	if a == nil || b == nil || a.Count == nil || b.Count == nil {
		return (a == nil || a.Count == nil) == (b == nil || b.Count == nil)
	}
	return *a.Count == *b.Count
}

// nodeIDs are the drivers' names for the node, by its annotation.
func nodeIDs(n *v1.Node) (map[string]string, error) {
	ids := map[string]string{}
	if text := n.Annotations[AnnotationNodeID]; text != "" {
		if err := json.Unmarshal([]byte(text), &ids); err != nil {
			return nil, fmt.Errorf("read annotation %s: %w", AnnotationNodeID, err)
		}
	}
	return ids, nil
}

func annotationPatch(ids map[string]string) (map[string]any, error) {
	var value any // none takes the annotation away
	if len(ids) > 0 {
		text, err := json.Marshal(ids)
		if err != nil {
			return nil, err
		}
		value = string(text)
	}
	return map[string]any{"annotations": map[string]any{AnnotationNodeID: value}}, nil
}

// nodePatch is the change of the node's metadata that a driver asks for; nil for
// none. A label that says something else is a mistake that nobody here can mend.
func nodePatch(n *v1.Node, info NodeInfo) (map[string]any, error) {
	labels := map[string]string{}
	for k, value := range info.Topology {
		have, ok := n.Labels[k]
		if ok && have != value {
			return nil, fmt.Errorf("detected topology value collision: driver reported %q:%q but existing label is %q:%q", k, value, k, have)
		}
		if !ok {
			labels[k] = value
		}
	}
	ids, err := nodeIDs(n)
	if err != nil {
		return nil, err
	}
	patch := map[string]any{}
	if ids[info.Driver] != info.NodeID {
		ids[info.Driver] = info.NodeID
		if patch, err = annotationPatch(ids); err != nil {
			return nil, err
		}
	}
	if len(labels) > 0 {
		patch["labels"] = labels
	}
	if len(patch) == 0 {
		return nil, nil
	}
	return patch, nil
}
