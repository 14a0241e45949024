package watch

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// Services is a copy of all services, for the environment variables of containers.
type Services struct {
	store cache.Indexer
	watch *cache.Reflector
}

// NewServices returns Services for the objects that lw lists.
func NewServices(lw *cache.ListWatch) *Services {
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	return &Services{store: store, watch: cache.NewReflector(lw, &v1.Service{}, store, 0)}
}

// Run watches until ctx ends.
func (s *Services) Run(ctx context.Context) error {
	s.watch.RunWithContext(ctx)
	return nil
}

// List returns the services of a namespace.
func (s *Services) List(namespace string) []*v1.Service {
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
func (s *Services) Synced() bool { return s.watch.LastSyncResourceVersion() != "" }
