package app

import (
	"context"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/node/apiclient"
	"keelson/internal/storage/object"
	"keelson/internal/storage/volume"
	"keelson/internal/storage/volume/builtin"
)

// buildTrust has trust bundles and certificates shown in projected volumes, where
// the gates are on.
func (a *agent) buildTrust(cfg *builtin.Config) {
	if a.api == nil {
		return
	}
	if a.cfg.Gates.Enabled("ClusterTrustBundleProjection") {
		changed := func(*certificatesv1beta1.ClusterTrustBundle, bool) {
			a.volumes.SharedChanged(volume.Object{Kind: volume.TrustBundle})
		}
		a.bundles = newLazyWatch(a.api.ClusterTrustBundles.ListWatch("", fields.Everything()), &certificatesv1beta1.ClusterTrustBundle{}, changed)
		cfg.Bundles = a.bundles
	}
	if a.cfg.Gates.Enabled("PodCertificateRequest") {
		a.certificates = a.newPodCertificates()
		cfg.Certificates = a.certificates.have
		a.metrics.MustRegister(a.certificates.have)
	}
}

// podCertificates are the requests of this node's pods for certificates.
type podCertificates struct {
	api     *apiclient.Client
	answers *lazyWatch[*certificatesv1beta1.PodCertificateRequest]
	have    *object.Certificates
}

func (a *agent) newPodCertificates() *podCertificates {
	c := &podCertificates{api: a.api}
	// A node may list its own alone.
	mine := fields.OneTermEqualSelector("spec.nodeName", a.cfg.NodeName)
	c.answers = newLazyWatch(a.api.PodCertificateRequests.ListWatch("", mine), &certificatesv1beta1.PodCertificateRequest{},
		func(r *certificatesv1beta1.PodCertificateRequest, gone bool) { c.have.Seen(r, gone) })
	c.have = object.NewCertificates(object.CertificatesConfig{API: c, Node: a.node.Node, Events: a.events, Now: time.Now, Log: a.log,
		OnAnswer: func(uid types.UID, name string) {
			a.volumes.ObjectChanged([]types.UID{uid}, volume.Certificate, name)
		}})
	return c
}

// Request makes a request, once its answer can be seen.
func (c *podCertificates) Request(ctx context.Context, r *certificatesv1beta1.PodCertificateRequest) (*certificatesv1beta1.PodCertificateRequest, error) {
	if err := c.answers.await(ctx); err != nil {
		return nil, err
	}
	return c.api.PodCertificateRequests.Create(ctx, r.Namespace, r)
}

func (c *podCertificates) Look(ctx context.Context, namespace, name string) (*certificatesv1beta1.PodCertificateRequest, error) {
	return c.api.PodCertificateRequests.Get(ctx, namespace, name)
}

func (c *podCertificates) ServiceAccount(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	return c.api.ServiceAccounts.Get(ctx, namespace, name)
}
