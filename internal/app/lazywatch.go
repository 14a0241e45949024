package app

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// lazyWatch is the node's picture of all objects of a kind, T being its pointer
// type. It is watched from the first question on: a node on which nobody asks has no
// watch for it.
type lazyWatch[T runtime.Object] struct {
	store  cache.Store
	watch  *cache.Reflector
	asked  chan struct{} // closed by the first question
	ask    func()
	synced chan struct{} // closed when the objects were listed

	mu  sync.Mutex
	err error // why the last list failed
}

// newLazyWatch watches what lw lists. changed, if there is one, is called with each
// object that came or changed, or has gone; it must not block.
func newLazyWatch[T runtime.Object](lw *cache.ListWatch, empty T, changed func(obj T, gone bool)) *lazyWatch[T] {
	w := &lazyWatch[T]{asked: make(chan struct{}), synced: make(chan struct{})}
	w.ask = sync.OnceFunc(func() { close(w.asked) })
	told := &tellingStore[T]{Store: cache.NewStore(cache.MetaNamespaceKeyFunc), listed: sync.OnceFunc(func() { close(w.synced) }), changed: changed}
	w.store = told
	list := lw.ListWithContextFunc
	failing := *lw
	failing.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		got, err := list(ctx, o)
		w.mu.Lock()
		w.err = err
		w.mu.Unlock()
		return got, err
	}
	w.watch = cache.NewReflector(&failing, empty, told, 0)
	return w
}

// Run watches until ctx ends, once somebody has asked.
func (w *lazyWatch[T]) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-w.asked:
	}
	w.watch.RunWithContext(ctx)
	return nil
}

// await returns once it is known which objects there are.
func (w *lazyWatch[T]) await(ctx context.Context) error {
	w.ask()
	select {
	case <-w.synced:
		return nil
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	return ctx.Err()
}

// get is the object of the name, nil if there is none.
func (w *lazyWatch[T]) get(ctx context.Context, name string) (T, error) {
	var none T
	if err := w.await(ctx); err != nil {
		return none, err
	}
	obj, ok, err := w.store.GetByKey(name)
	if err != nil || !ok {
		return none, err
	}
	return obj.(T), nil
}

// All are all objects.
func (w *lazyWatch[T]) All(ctx context.Context) ([]T, error) {
	if err := w.await(ctx); err != nil {
		return nil, err
	}
	list := w.store.List()
	out := make([]T, len(list))
	for i, o := range list {
		out[i] = o.(T)
	}
	return out, nil
}

// tellingStore tells what changes in it, and when it was first filled.
type tellingStore[T runtime.Object] struct {
	cache.Store
	listed  func()
	changed func(obj T, gone bool) // may be nil
}

func (s *tellingStore[T]) tell(obj any, gone bool) {
	if o, ok := obj.(T); ok && s.changed != nil {
		s.changed(o, gone)
	}
}

func (s *tellingStore[T]) Add(obj any) error {
	err := s.Store.Add(obj)
	s.tell(obj, false)
	return err
}

func (s *tellingStore[T]) Update(obj any) error {
	err := s.Store.Update(obj)
	s.tell(obj, false)
	return err
}

func (s *tellingStore[T]) Delete(obj any) error {
	err := s.Store.Delete(obj)
	s.tell(obj, true)
	return err
}

// Replace takes a list. What is missing in it has gone unseen.
func (s *tellingStore[T]) Replace(objs []any, version string) error {
	before := s.Store.List()
	err := s.Store.Replace(objs, version)
	s.listed()
	if s.changed == nil {
		return err
	}
	for _, o := range before {
		if _, still, _ := s.Store.Get(o); !still {
			s.tell(o, true)
		}
	}
	for _, o := range objs {
		s.tell(o, false)
	}
	return err
}
