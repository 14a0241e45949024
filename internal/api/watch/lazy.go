package watch

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// Lazy is a copy of all objects of a kind, T being its pointer type. The watch starts with the first lookup. A node
// without lookups has no watch.
type Lazy[T runtime.Object] struct {
	store  *notifyingStore[T]
	watch  *cache.Reflector
	asked  chan struct{} // closed by the first lookup
	ask    func()
	synced chan struct{} // closed when the objects were listed

	mu  sync.Mutex
	err error // why the last list failed
}

// NewLazy returns a Lazy for the objects that lw lists.
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

// OnChange sets a function to call with each object that was added, changed or deleted. It must be called before Run; f
// must not block.
func (w *Lazy[T]) OnChange(f func(obj T, deleted bool)) { w.store.changed = f }

// Run watches from the first lookup until ctx ends.
func (w *Lazy[T]) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-w.asked:
	}
	w.watch.RunWithContext(ctx)
	return nil
}

// Await starts the watch if necessary, and returns when the objects were listed.
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

// Get returns the object with the name, nil if there is none.
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

// All returns all objects.
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

// Replace stores a list. Objects that are missing in it were deleted while there was no watch.
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
