package app

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"keelson/internal/node/apiclient"
)

// services is the node's picture of all services, for environment variables.
type services struct {
	store cache.Indexer
	watch *cache.Reflector
}

func newServices(api *apiclient.Client) *services {
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	return &services{store: store, watch: cache.NewReflector(api.Services.ListWatch("", fields.Everything()), &v1.Service{}, store, 0)}
}

// Run watches until ctx ends.
func (s *services) Run(ctx context.Context) error {
	s.watch.RunWithContext(ctx)
	return nil
}

// List are the services of a namespace.
func (s *services) List(namespace string) []*v1.Service {
	objs, err := s.store.ByIndex(cache.NamespaceIndex, namespace)
	if err != nil {
		panic(err) // the index is made above
	}
	list := make([]*v1.Service, 0, len(objs))
	for _, o := range objs {
		list = append(list, o.(*v1.Service))
	}
	return list
}

// Synced reports whether the services were listed once.
func (s *services) Synced() bool { return s.watch.LastSyncResourceVersion() != "" }

// runtimeClasses resolves the names of RuntimeClasses to the runtime's handlers.
type runtimeClasses struct {
	store cache.Store
	watch *cache.Reflector
}

func newRuntimeClasses(api *apiclient.Client) *runtimeClasses {
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	return &runtimeClasses{store: store, watch: cache.NewReflector(api.RuntimeClasses.ListWatch("", fields.Everything()), &nodev1.RuntimeClass{}, store, 0)}
}

// Run watches until ctx ends.
func (r *runtimeClasses) Run(ctx context.Context) error {
	r.watch.RunWithContext(ctx)
	return nil
}

// Handler is the runtime's handler for the pod; empty for the default one. A nil
// receiver knows no classes.
func (r *runtimeClasses) Handler(p *v1.Pod) (string, error) {
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
