package watch

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
)

// RuntimeClasses resolves the names of RuntimeClasses to the runtime's handlers.
type RuntimeClasses struct {
	store cache.Store
	watch *cache.Reflector
}

// NewRuntimeClasses returns RuntimeClasses for the objects that lw lists.
func NewRuntimeClasses(lw *cache.ListWatch) *RuntimeClasses {
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	return &RuntimeClasses{store: store, watch: cache.NewReflector(lw, &nodev1.RuntimeClass{}, store, 0)}
}

// Run watches until ctx ends.
func (r *RuntimeClasses) Run(ctx context.Context) error {
	r.watch.RunWithContext(ctx)
	return nil
}

// Handler returns the runtime handler of the pod; empty for the default one. With a nil receiver every RuntimeClass is
// an error.
func (r *RuntimeClasses) Handler(p *v1.Pod) (string, error) {
	if p.Spec.RuntimeClassName == nil || *p.Spec.RuntimeClassName == "" {
		return "", nil
	}
	name := *p.Spec.RuntimeClassName
	if r == nil {
		return "", fmt.Errorf("find RuntimeClass %q: %w", name, errors.New("no API server configured"))
	}
	obj, ok, err := r.store.GetByKey(name)
	if err != nil {
		return "", fmt.Errorf("find RuntimeClass %q: %w", name, err)
	}
	if !ok {
		return "", apierrors.NewNotFound(nodev1.Resource("runtimeclass"), name)
	}
	return obj.(*nodev1.RuntimeClass).Handler, nil
}
