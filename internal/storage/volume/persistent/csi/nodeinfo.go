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

	"keelson/internal/host/clock"
)

// NodeAPI accesses this node's objects at the API server.
type NodeAPI interface {
	Node(ctx context.Context) (*v1.Node, error)
	// PatchNode applies a strategic merge patch.
	PatchNode(ctx context.Context, patch []byte) error
	CSINode(ctx context.Context) (*storagev1.CSINode, error)
	CreateCSINode(ctx context.Context, n *storagev1.CSINode) error
	UpdateCSINode(ctx context.Context, n *storagev1.CSINode) error
}

const (
	updateTries  = 5 // of one update, since other clients write the objects, too
	minShowRetry = 100 * time.Millisecond
	maxShowRetry = 30 * time.Second
)

// NodeInfoManager publishes the node's drivers at the API server: the CSINode object, and an annotation and
// labels of the Node.
type NodeInfoManager struct {
	api        NodeAPI
	name       string
	registered <-chan struct{} // closed when the Node object exists
	onReady    func()
	log        *slog.Logger

	write chan struct{} // capacity 1; a semaphore for updates

	mu    sync.Mutex
	ready bool
}

// NewNodeInfoManager makes a NodeInfoManager. onReady is called when the CSINode exists.
func NewNodeInfoManager(
	api NodeAPI, name string, registered <-chan struct{}, onReady func(), log *slog.Logger,
) *NodeInfoManager {
	return &NodeInfoManager{
		api:        api,
		name:       name,
		registered: registered,
		onReady:    onReady,
		log:        log,
		write:      make(chan struct{}, 1),
	}
}

// Run waits until the node is registered and then creates or updates the CSINode, with retries
// until it succeeds. It returns when ctx ends.
func (s *NodeInfoManager) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.registered:
	}
	logged := false
	for backoff := clock.Backoff(minShowRetry, maxShowRetry); ; {
		err := s.update(ctx, func(*storagev1.CSINode) {})
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil
		}
		if !logged {
			logged = true
			s.log.Warn("failed to create CSINode, will retry", "err", err)
		}
		if !clock.Sleep(ctx, backoff.Step()) {
			return nil
		}
	}
	s.mu.Lock()
	s.ready = true
	s.mu.Unlock()
	s.onReady()
	<-ctx.Done()
	return nil
}

// Problem returns why the node is not ready yet: with an outdated CSINode, the scheduler would
// misplace pods that use drivers.
func (s *NodeInfoManager) Problem() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready {
		return nil
	}
	return errors.New("CSINode is not yet initialized")
}

// InstallDriver publishes the node info of a driver.
func (s *NodeInfoManager) InstallDriver(ctx context.Context, info NodeInfo) error {
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

// UninstallDriver reverts InstallDriver. Topology labels stay, since pods were scheduled by them.
func (s *NodeInfoManager) UninstallDriver(ctx context.Context, driver string) error {
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

// update changes the CSINode, or creates it.
func (s *NodeInfoManager) update(ctx context.Context, change func(*storagev1.CSINode)) error {
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

func (s *NodeInfoManager) updateNode(ctx context.Context, change func(*v1.Node) (map[string]any, error)) error {
	return s.try(ctx, func() error {
		n, err := s.api.Node(ctx)
		if err != nil {
			return err
		}
		metadata, err := change(n)
		if err != nil || metadata == nil {
			return err
		}
		metadata["resourceVersion"] = n.ResourceVersion // fails if the object has changed since it was read
		patch, err := json.Marshal(map[string]any{"metadata": metadata})
		if err != nil {
			return err
		}
		return s.api.PatchNode(ctx, patch)
	})
}

// try makes updates one at a time and retries after conflicts.
func (s *NodeInfoManager) try(ctx context.Context, change func() error) error {
	select {
	case s.write <- struct{}{}:
		defer func() { <-s.write }()
	case <-ctx.Done():
		return ctx.Err()
	}
	var err error
	for range updateTries {
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

// setDriver adds a driver to the CSINode.
func setDriver(n *storagev1.CSINode, info NodeInfo) {
	d := storagev1.CSINodeDriver{
		Name:         info.Driver,
		NodeID:       info.NodeID,
		TopologyKeys: slices.Sorted(maps.Keys(info.Topology)),
	}
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
	return maps.Equal(a.Annotations, b.Annotations) &&
		slices.EqualFunc(a.Spec.Drivers, b.Spec.Drivers, func(x, y storagev1.CSINodeDriver) bool {
			return x.Name == y.Name && x.NodeID == y.NodeID && slices.Equal(x.TopologyKeys, y.TopologyKeys) &&
				equalCount(x.Allocatable, y.Allocatable)
		})
}

func equalCount(a, b *storagev1.VolumeNodeResources) bool {
	if a == nil || b == nil || a.Count == nil || b.Count == nil {
		return (a == nil || a.Count == nil) == (b == nil || b.Count == nil)
	}
	return *a.Count == *b.Count
}

// nodeIDs returns the drivers' IDs of the node from its annotation.
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
	var value any // nil removes the annotation
	if len(ids) > 0 {
		text, err := json.Marshal(ids)
		if err != nil {
			return nil, err
		}
		value = string(text)
	}
	return map[string]any{"annotations": map[string]any{AnnotationNodeID: value}}, nil
}

// nodePatch returns the metadata patch of the Node for a driver, nil if there is no change. An
// existing label with another value is an error.
func nodePatch(n *v1.Node, info NodeInfo) (map[string]any, error) {
	labels := map[string]string{}
	for k, value := range info.Topology {
		have, ok := n.Labels[k]
		if ok && have != value {
			return nil,
				fmt.Errorf("detected topology value collision: driver reported %q:%q but existing label is %q:%q", k,
					value, k, have)
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
