package object

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"

	"keelson/internal/node/panics"
)

const (
	// silence is how long a fresh watch may say nothing before the object is
	// read to learn whether it exists. The current object is the first thing a
	// watch sends, so this is waited out only for objects that do not.
	silence = 100 * time.Millisecond

	// The authoriser of the API server learns of a new pod a little after this
	// node, so the first refusals are to be expected and soon over.
	minRetry = 50 * time.Millisecond
	maxRetry = 30 * time.Second
	// steady is how long a watch must have lasted for its end to be normal.
	steady = 10 * time.Second
)

var errWatchEnded = errors.New("watch ended")

// follow keeps e current until ctx ends or the object can change no more.
func (s *Store) follow(ctx context.Context, e *entry) {
	log := s.cfg.Log.With("kind", e.ref.Kind, "namespace", e.ref.Namespace, "name", e.ref.Name)
	delay, reported := minRetry, ""
	for {
		began := time.Now()
		final, err := s.contain(e, func() (bool, error) { return s.watch(ctx, e) })
		if final || ctx.Err() != nil {
			return
		}
		if time.Since(began) >= steady {
			delay, reported = minRetry, ""
		} else {
			// A cause is said once, and not while it is the expected refusal.
			if said := err.Error(); said != reported && delay > 4*minRetry && !errors.Is(err, errWatchEnded) {
				log.Warn("cannot watch object", "err", err)
				reported = said
			}
			s.fail(e, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay/2 + rand.N(delay)):
		}
		delay = min(2*delay, maxRetry)
	}
}

// contain runs what keeps one object current. A panic in it is a failure to read that object. The next answer
// counts as a change, since not all users of the object may have seen this one.
func (s *Store) contain(e *entry, f func() (final bool, err error)) (final bool, err error) {
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

// watch opens one watch and takes its events until it ends. It reports true
// when the object will never change.
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

// take applies one event.
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
		// A watch may begin at a server that is behind. Its storage is not.
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

// ask reads the object from the API server's storage.
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
