package objectcache

import (
	"context"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"

	"keelson/internal/api/client"
	"keelson/internal/api/watch"
)

// CertificateRequests are the requests of this node's pods for certificates, at the API server.
type CertificateRequests struct {
	api     *client.Client
	answers *watch.Lazy[*certificatesv1beta1.PodCertificateRequest]
}

// NewCertificateRequests watches the requests of a node, from the first request on: a node may list its own only.
func NewCertificateRequests(api *client.Client, node string) *CertificateRequests {
	own := fields.OneTermEqualSelector("spec.nodeName", node)
	return &CertificateRequests{
		api: api,
		answers: watch.NewLazy(api.PodCertificateRequests.ListWatch("", own),
			&certificatesv1beta1.PodCertificateRequest{}),
	}
}

// OnAnswer has f called with each change of a request; see [Certificates.Seen]. It is called before Run.
func (c *CertificateRequests) OnAnswer(f func(r *certificatesv1beta1.PodCertificateRequest, deleted bool)) {
	c.answers.OnChange(f)
}

// Run watches until ctx ends.
func (c *CertificateRequests) Run(ctx context.Context) error { return c.answers.Run(ctx) }

// Request creates a request, once its answer can be seen.
func (c *CertificateRequests) Request(
	ctx context.Context, r *certificatesv1beta1.PodCertificateRequest,
) (*certificatesv1beta1.PodCertificateRequest, error) {
	if err := c.answers.Await(ctx); err != nil {
		return nil, err
	}
	return c.api.PodCertificateRequests.Create(ctx, r.Namespace, r)
}

// Look reads a request.
func (c *CertificateRequests) Look(
	ctx context.Context, namespace, name string,
) (*certificatesv1beta1.PodCertificateRequest, error) {
	return c.api.PodCertificateRequests.Get(ctx, namespace, name)
}

// ServiceAccount reads a service account.
func (c *CertificateRequests) ServiceAccount(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	return c.api.ServiceAccounts.Get(ctx, namespace, name)
}
