package objectcache

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"

	"keelson/internal/host/clock"
	"keelson/internal/pods/panics"
)

const (
	// silence is how long a new watch waits for an event before the object is read to find out whether it exists. An
	// existing object is the first event of a watch.
	silence = 100 * time.Millisecond

	// The node authorizer of the API server sees a new pod slightly later than this node, so the first requests may be
	// forbidden.
	minRetry = 50 * time.Millisecond
	maxRetry = 30 * time.Second
	// steady is the duration after which the end of a watch is normal.
	steady = 10 * time.Second
)

// watchBackoff is the back-off of a watch, of 50 ms to 30 s on average. Two thirds of a pause are random.
var watchBackoff = clock.Jittered(clock.Backoff(minRetry/2, maxRetry/2), 2)

var errWatchEnded = errors.New("watch ended")

// follow watches e until ctx ends or the object is immutable.
func (s *Store) follow(ctx context.Context, e *entry) {
	log := s.cfg.Log.With("kind", e.ref.Kind, "namespace", e.ref.Namespace, "name", e.ref.Name)
	backoff, reported := watchBackoff, ""
	for {
		began := time.Now()
		final, err := s.guard(e, func() (bool, error) { return s.watch(ctx, e) })
		if final || ctx.Err() != nil {
			return
		}
		if time.Since(began) >= steady {
			backoff, reported = watchBackoff, ""
		} else {
			// An error is logged once, and not while it may be the expected Forbidden.
			if text := err.Error(); text != reported && backoff.Duration > 2*minRetry && !errors.Is(err, errWatchEnded) {
				log.Warn("failed to watch object", "err", err)
				reported = text
			}
			s.fail(e, err)
		}
		if !clock.Sleep(ctx, backoff.Step()) {
			return
		}
	}
}

// guard runs f for one object. A panic becomes an error of that object. The next answer counts as a change, because not
// all users of the object may have seen this one.
func (s *Store) guard(e *entry, f func() (final bool, err error)) (final bool, err error) {
	err = panics.Try(s.cfg.Log, "objects", func() (err error) {
		final, err = f()
		return err
	})
	var panicked *panics.Error
	if errors.As(err, &panicked) {
		s.mu.Lock()
		defer s.mu.Unlock()
		e.missed = true
	}
	return final, err
}

// watch opens one watch and processes its events until it ends. It returns true if the object is immutable.
func (s *Store) watch(ctx context.Context, e *entry) (final bool, err error) {
	w, err := s.cfg.Client.Get().
		Namespace(e.ref.Namespace).
		Resource(e.ref.resource()).
		Param("watch", "true").
		Param("fieldSelector", "metadata.name="+e.ref.Name).
		Watch(ctx)
	if err != nil {
		return false, err
	}
	defer w.Stop()
	quiet := time.NewTimer(silence)
	defer quiet.Stop()
	for {
		select {
		case <-quiet.C:
			if final, err = s.ask(ctx, e); final || err != nil {
				return final, err
			}
		case ev, ok := <-w.ResultChan():
			quiet.Stop()
			if !ok {
				return false, errWatchEnded
			}
			if final, err = s.take(ctx, e, ev); final || err != nil {
				return final, err
			}
		}
	}
}

// take processes one event.
func (s *Store) take(ctx context.Context, e *entry, ev watch.Event) (final bool, err error) {
	switch ev.Type {
	case watch.Error:
		return false, apierrors.FromObject(ev.Object)
	case watch.Added, watch.Modified, watch.Deleted:
	default:
		return false, nil
	}
	obj, ok := ev.Object.(object)
	if !ok {
		return false, fmt.Errorf("watch %s: server sent a %T", e.ref, ev.Object)
	}
	if obj.GetName() != e.ref.Name || obj.GetNamespace() != e.ref.Namespace {
		return false, fmt.Errorf("watch %s: server sent %s/%s", e.ref, obj.GetNamespace(), obj.GetName())
	}
	rv := obj.GetResourceVersion()
	if old := s.seen(e); old != "" {
		// A watch may start at a server with an old state. A read does not.
		if n, err := resourceversion.CompareResourceVersion(rv, old); err == nil && n < 0 {
			return s.ask(ctx, e)
		}
	}
	if ev.Type == watch.Deleted {
		s.put(e, nil, rv)
		return false, nil
	}
	s.put(e, obj, rv)
	return immutable(obj), nil
}

// ask reads the object from the storage of the API server.
func (s *Store) ask(ctx context.Context, e *entry) (final bool, err error) {
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	got, err := s.cfg.Client.Get().
		Namespace(e.ref.Namespace).
		Resource(e.ref.resource()).
		Name(e.ref.Name).
		Do(ctx).Get()
	if apierrors.IsNotFound(err) {
		s.put(e, nil, s.seen(e))
		return false, nil
	}
	if err != nil {
		return false, err
	}
	obj, ok := got.(object)
	if !ok {
		return false, fmt.Errorf("get %s: server sent a %T", e.ref, got)
	}
	s.put(e, obj, obj.GetResourceVersion())
	return immutable(obj), nil
}

func (r Ref) resource() string { return string(r.Kind) + "s" }

func immutable(o object) bool {
	var set *bool
	switch o := o.(type) {
	case *v1.ConfigMap:
		set = o.Immutable
	case *v1.Secret:
		set = o.Immutable
	}
	return set != nil && *set
}
