package desired

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"keelson/internal/host/clock"
	"keelson/internal/pods/pod"
)

// podAPI are the calls to the API server for mirror pods.
type podAPI interface {
	CreatePod(ctx context.Context, p *v1.Pod) (*v1.Pod, error)
	DeletePod(ctx context.Context, namespace, name string, opts metav1.DeleteOptions) error
}

// MirrorConfig holds what Mirrors is built from. Every field but Older is required.
type MirrorConfig struct {
	API podAPI
	// Node returns this node's object as last seen; false before it is registered.
	Node func() (*v1.Node, bool)
	// Busy reports whether a static pod of this full name (name_namespace) exists or is
	// terminating. It is called for pods that no source has any more: their mirror pods stay
	// until they have terminated.
	Busy func(fullName string) bool
	// Older reports whether a pod of this full name, other than its replacement than, is
	// terminating: its mirror pod is not replaced until it has terminated. Nil: it is replaced
	// at once.
	//
	// The implementation calls SyncMirrors when a result of either may have changed.
	Older func(fullName string, than types.UID) bool
}

// Mirrors reconciles mirror pods: the API server has one for each static pod, and deletes
// those without a static pod.
type Mirrors struct {
	cfg      MirrorConfig
	store    *Store
	nodeName string
	log      *slog.Logger
	now      func() time.Time
	wake     chan struct{} // capacity 1

	// State of the goroutine in run.
	created map[string]creation     // by full name
	deleted map[types.UID]time.Time // deleted mirror pods that the watch still shows
	failing bool
}

// creation is a mirror pod that was created and that the watch has not shown yet.
type creation struct {
	uid  types.UID
	hash string
	at   time.Time
}

const (
	// unseen is how long a created mirror pod may be missing from the watch before it is
	// created again: it may have been deleted at once.
	unseen = 10 * time.Second

	minMirrorRetry = 500 * time.Millisecond
	maxMirrorRetry = 10 * time.Second
)

func newMirrors(cfg MirrorConfig, s *Store, nodeName string, log *slog.Logger, now func() time.Time) *Mirrors {
	return &Mirrors{cfg: cfg, store: s, nodeName: nodeName, log: log, now: now,
		wake: make(chan struct{}, 1), created: map[string]creation{}, deleted: map[types.UID]time.Time{}}
}

func (m *Mirrors) poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// run reconciles whenever requested, and retries with back-off after a failure.
func (m *Mirrors) run(ctx context.Context) error {
	backoff := clock.Backoff(minMirrorRetry, maxMirrorRetry)
	for {
		// Orphans and missing mirror pods are only known once every source has delivered.
		var again time.Duration
		if m.store.Ready() {
			var err error
			if again, err = m.sync(ctx); err != nil {
				m.report(err)
				again = backoff.Step()
			} else {
				m.report(nil)
				backoff = clock.Backoff(minMirrorRetry, maxMirrorRetry)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
		case <-m.untilReady():
		case <-after(again):
		}
	}
}

// untilReady fires once when the store becomes ready.
func (m *Mirrors) untilReady() <-chan struct{} {
	if m.store.Ready() {
		return nil
	}
	return m.store.ReadyC()
}

// report logs the first failure of a series and the recovery.
func (m *Mirrors) report(err error) {
	switch {
	case err != nil && !m.failing:
		m.log.Warn("failed to reconcile mirror pods; static pods are not affected", "err", err)
	case err == nil && m.failing:
		m.log.Info("reconciled mirror pods again")
	}
	m.failing = err != nil
}

// sync executes the steps that are due. again is the time until the next sync; zero for
// none.
func (m *Mirrors) sync(ctx context.Context) (again time.Duration, err error) {
	static, mirrors := m.store.staticAndMirrors()
	node, known := m.cfg.Node()
	m.forgetSeen(static, mirrors)
	steps := planMirrors(mirrorInput{
		Static: static, Mirrors: mirrors, Created: m.created, Now: m.now(), Busy: m.busy,
		NodeKnown: known && node.UID != "" && node.DeletionTimestamp == nil,
	})
	var failed []error
	for _, step := range steps.do {
		if err := m.take(ctx, step, node); err != nil && ctx.Err() == nil {
			failed = append(failed, err)
		}
	}
	return steps.wait, errors.Join(failed...)
}

// busy reports whether a pod of the name, other than the desired one, is terminating.
func (m *Mirrors) busy(name string, want *v1.Pod) bool {
	switch {
	case want == nil:
		return m.cfg.Busy(name)
	case m.cfg.Older != nil:
		return m.cfg.Older(name, want.UID)
	}
	return false
}

// forgetSeen drops creations and deletions that the watch has shown. Mirror pods whose
// deletion is in progress are removed from mirrors.
func (m *Mirrors) forgetSeen(static map[string]*v1.Pod, mirrors map[string][]*v1.Pod) {
	shown := map[types.UID]bool{}
	for name, list := range mirrors {
		for _, p := range list {
			shown[p.UID] = true
			if m.created[name].uid == p.UID {
				delete(m.created, name)
			}
		}
		mirrors[name] = slices.DeleteFunc(list, func(p *v1.Pod) bool {
			at, ok := m.deleted[p.UID]
			return ok && m.now().Before(at.Add(unseen))
		})
	}
	maps.DeleteFunc(m.deleted, func(uid types.UID, _ time.Time) bool { return !shown[uid] })
	maps.DeleteFunc(m.created, func(name string, _ creation) bool { return static[name] == nil })
}

func (m *Mirrors) take(ctx context.Context, step mirrorStep, node *v1.Node) error {
	p := step.pod
	if step.remove {
		m.log.Info("deleting mirror pod", "pod", p.Namespace+"/"+p.Name, "podUID", p.UID, "reason", step.reason)
		err := m.cfg.API.DeletePod(ctx, p.Namespace, p.Name, metav1.DeleteOptions{
			GracePeriodSeconds: ptr.To[int64](0),
			Preconditions:      &metav1.Preconditions{UID: &p.UID},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete mirror pod %s/%s: %w", p.Namespace, p.Name, err)
		}
		m.deleted[p.UID] = m.now()
		return nil
	}
	made, err := m.cfg.API.CreatePod(ctx, MirrorOf(p, node))
	if err != nil {
		return fmt.Errorf("create mirror pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	m.created[pod.FullName(p)] = creation{uid: made.UID, hash: p.Annotations[pod.AnnotationConfigHash], at: m.now()}
	return nil
}

// MirrorOf returns the mirror pod of a static pod of this node.
func MirrorOf(p *v1.Pod, node *v1.Node) *v1.Pod {
	m := &v1.Pod{
		ObjectMeta: p.ObjectMeta,
		Spec:       p.Spec,
	}
	m.UID = "" // the API server assigns it
	m.Annotations = maps.Clone(p.Annotations)
	m.Annotations[pod.AnnotationConfigMirror] = p.Annotations[pod.AnnotationConfigHash]
	m.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1.SchemeGroupVersion.String(),
		Kind:       "Node",
		Name:       node.Name,
		UID:        node.UID,
		Controller: ptr.To(true),
	}}
	return m
}

// mirrorInput is the input of planMirrors.
type mirrorInput struct {
	Static    map[string]*v1.Pod   // by full name
	Mirrors   map[string][]*v1.Pod // by full name
	Created   map[string]creation
	Busy      func(fullName string, want *v1.Pod) bool // a pod of the name other than want is terminating
	NodeKnown bool
	Now       time.Time
}

type mirrorStep struct {
	pod    *v1.Pod // the mirror pod to delete, or the static pod to mirror
	remove bool
	reason string
}

type mirrorPlan struct {
	do   []mirrorStep
	wait time.Duration // until the next sync; zero for none
}

// planMirrors decides which mirror pods to delete and create. While an older pod of a name
// is terminating, its mirror pod stays.
func planMirrors(in mirrorInput) mirrorPlan {
	var plan mirrorPlan
	for _, name := range slices.Sorted(maps.Keys(in.Mirrors)) {
		want := in.Static[name]
		for _, m := range in.Mirrors[name] {
			reason := ""
			switch {
			case want == nil:
				reason = "static pod is gone"
			case !isMirrorOf(m, want):
				reason = "mirror of an older version"
			case m.DeletionTimestamp != nil:
				reason = "mirror pod is being deleted"
			}
			if reason != "" && !in.Busy(name, want) {
				plan.do = append(plan.do, mirrorStep{pod: m, remove: true, reason: reason})
			}
		}
	}
	if !in.NodeKnown {
		return plan // SyncMirrors is called when the node is registered
	}
	for _, name := range slices.Sorted(maps.Keys(in.Static)) {
		want := in.Static[name]
		held := slices.ContainsFunc(in.Mirrors[name], func(m *v1.Pod) bool {
			return isMirrorOf(m, want) &&
				m.DeletionTimestamp == nil
		})
		if held || in.Busy(name, want) {
			continue
		}
		if c, ok := in.Created[name]; ok && c.hash == want.Annotations[pod.AnnotationConfigHash] {
			if left := c.at.Add(unseen).Sub(in.Now); left > 0 {
				if plan.wait == 0 || left < plan.wait {
					plan.wait = left
				}
				continue
			}
		}
		plan.do = append(plan.do, mirrorStep{pod: want, reason: "static pod has no mirror pod"})
	}
	return plan
}

// staticAndMirrors returns the static pods and the mirror pods by full name.
func (s *Store) staticAndMirrors() (static map[string]*v1.Pod, mirrors map[string][]*v1.Pod) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	static, mirrors = map[string]*v1.Pod{}, map[string][]*v1.Pod{}
	for _, source := range []pod.Source{pod.SourceHTTP, pod.SourceFile} {
		for _, p := range s.pods[source] {
			static[pod.FullName(p)] = p
		}
	}
	for _, m := range s.shown {
		mirrors[pod.FullName(m)] = append(mirrors[pod.FullName(m)], m)
	}
	return static, mirrors
}
