package watch

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// Lazy is a copy of all objects of a kind, T being its pointer type. The watch begins with the first question: a node
// that never asks has none.
type Lazy[T runtime.Object] struct {
	store  *notifyingStore[T]
	watch  *cache.Reflector
	asked  chan struct{} // closed by the first question
	ask    func()
	synced chan struct{} // closed when the objects were listed

	mu  sync.Mutex
	err error // why the last list failed
}

// NewLazy makes a Lazy of what lw lists.
func NewLazy[T runtime.Object](lw *cache.ListWatch, empty T) *Lazy[T] {
	w := &Lazy[T]{asked: make(chan struct{}), synced: make(chan struct{})}
	w.ask = sync.OnceFunc(func() { close(w.asked) })
	w.store = &notifyingStore[T]{
		Store:  cache.NewStore(cache.MetaNamespaceKeyFunc),
		listed: sync.OnceFunc(func() { close(w.synced) }),
	}
	list := lw.ListWithContextFunc
	failing := *lw
	failing.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		got, err := list(ctx, o)
		w.mu.Lock()
		w.err = err
		w.mu.Unlock()
		return got, err
	}
	w.watch = cache.NewReflector(&failing, empty, w.store, 0)
	return w
}

// OnChange has f called with each object that was added, changed or deleted. It is called before Run; f must not block.
func (w *Lazy[T]) OnChange(f func(obj T, deleted bool)) { w.store.changed = f }

// Run watches from the first question until ctx ends.
func (w *Lazy[T]) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-w.asked:
	}
	w.watch.RunWithContext(ctx)
	return nil
}

// Await returns once the objects were listed.
func (w *Lazy[T]) Await(ctx context.Context) error {
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

// Get is the object of the name, nil if there is none.
func (w *Lazy[T]) Get(ctx context.Context, name string) (T, error) {
	var none T
	if err := w.Await(ctx); err != nil {
		return none, err
	}
	obj, ok, err := w.store.GetByKey(name)
	if err != nil || !ok {
		return none, err
	}
	return obj.(T), nil
}

// All are all objects.
func (w *Lazy[T]) All(ctx context.Context) ([]T, error) {
	if err := w.Await(ctx); err != nil {
		return nil, err
	}
	list := w.store.List()
	out := make([]T, len(list))
	for i, o := range list {
		out[i] = o.(T)
	}
	return out, nil
}

// notifyingStore calls listed when it was first filled, and changed with each change.
type notifyingStore[T runtime.Object] struct {
	cache.Store
	listed  func()
	changed func(obj T, deleted bool) // may be nil
}

func (s *notifyingStore[T]) notify(obj any, deleted bool) {
	if o, ok := obj.(T); ok && s.changed != nil {
		s.changed(o, deleted)
	}
}

func (s *notifyingStore[T]) Add(obj any) error {
	err := s.Store.Add(obj)
	s.notify(obj, false)
	return err
}

func (s *notifyingStore[T]) Update(obj any) error {
	err := s.Store.Update(obj)
	s.notify(obj, false)
	return err
}

func (s *notifyingStore[T]) Delete(obj any) error {
	err := s.Store.Delete(obj)
	s.notify(obj, true)
	return err
}

// Replace takes a list. What is missing in it was deleted unseen.
func (s *notifyingStore[T]) Replace(objs []any, version string) error {
	before := s.Store.List()
	err := s.Store.Replace(objs, version)
	s.listed()
	if s.changed == nil {
		return err
	}
	for _, o := range before {
		if _, still, _ := s.Store.Get(o); !still {
			s.notify(o, true)
		}
	}
	for _, o := range objs {
		s.notify(o, false)
	}
	return err
}
