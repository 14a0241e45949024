package client

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Resource is a kind of object at the API server. T is its pointer type. Kinds without a namespace are used with an
// empty one. Errors are those of the server, for the predicates of k8s.io/apimachinery/pkg/api/errors.
type Resource[T runtime.Object] struct {
	rest  rest.Interface
	name  string // plural, as in the path
	limit time.Duration
	empty func() T
}

// Get gets an object.
func (r Resource[T]) Get(ctx context.Context, namespace, name string) (T, error) {
	return r.do(ctx, r.rest.Get().NamespaceIfScoped(namespace, namespace != "").Name(name))
}

// Create creates an object and returns the stored one.
func (r Resource[T]) Create(ctx context.Context, namespace string, obj T) (T, error) {
	return r.do(ctx, r.rest.Post().NamespaceIfScoped(namespace, namespace != "").Body(obj))
}

// Update replaces an object with the same resource version.
func (r Resource[T]) Update(ctx context.Context, namespace, name string, obj T) (T, error) {
	return r.do(ctx, r.rest.Put().NamespaceIfScoped(namespace, namespace != "").Name(name).Body(obj))
}

// Patch patches an object or one of its subresources.
func (r Resource[T]) Patch(
	ctx context.Context, namespace, name string, kind types.PatchType, patch []byte, subresources ...string,
) (T, error) {
	return r.do(ctx,
		r.rest.Patch(kind).NamespaceIfScoped(namespace, namespace != "").
			Name(name).SubResource(subresources...).Body(patch))
}

// Delete deletes an object.
func (r Resource[T]) Delete(ctx context.Context, namespace, name string, opts metav1.DeleteOptions) error {
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	return r.rest.Delete().Resource(r.name).NamespaceIfScoped(namespace,
		namespace != "").Name(name).Body(&opts).Do(ctx).Error()
}

// ListWatch returns a source for a reflector over the objects of a namespace (empty: all) that match the field selector
// (nil: all).
func (r Resource[T]) ListWatch(namespace string, selector fields.Selector) *cache.ListWatch {
	return newListWatch(r.rest, r.name, namespace, selector)
}

// do sends a request and decodes the response.
func (r Resource[T]) do(ctx context.Context, req *rest.Request) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	out := r.empty()
	if err := req.Resource(r.name).Do(ctx).Into(out); err != nil {
		var none T
		return none, err
	}
	return out, nil
}

func newListWatch(c rest.Interface, resource, namespace string, selector fields.Selector) *cache.ListWatch {
	if selector == nil {
		selector = fields.Everything()
	}
	return cache.NewListWatchFromClient(c, resource, namespace, selector)
}
