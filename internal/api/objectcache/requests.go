package objectcache

import (
	"context"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"

	"keelson/internal/api/client"
	"keelson/internal/api/watch"
)

// CertificateRequests are the PodCertificateRequests of this node's pods at the API server.
type CertificateRequests struct {
	api     *client.Client
	answers *watch.Lazy[*certificatesv1beta1.PodCertificateRequest]
}

// NewCertificateRequests returns the requests of a node. The watch starts with the first request. It has a field
// selector, because a node is only authorized to list its own requests.
func NewCertificateRequests(api *client.Client, node string) *CertificateRequests {
	own := fields.OneTermEqualSelector("spec.nodeName", node)
	return &CertificateRequests{
		api: api,
		answers: watch.NewLazy(api.PodCertificateRequests.ListWatch("", own),
			&certificatesv1beta1.PodCertificateRequest{}),
	}
}

// OnAnswer sets a function to call with each change of a request; see [Certificates.Seen]. It must be called before
// Run.
func (c *CertificateRequests) OnAnswer(f func(r *certificatesv1beta1.PodCertificateRequest, deleted bool)) {
	c.answers.OnChange(f)
}

// Run watches until ctx ends.
func (c *CertificateRequests) Run(ctx context.Context) error { return c.answers.Run(ctx) }

// Request creates a request after the watch has started, so that the answer is not missed.
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
