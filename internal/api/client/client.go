package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/client-go/util/flowcontrol"
)

const (
	callTimeout      = 30 * time.Second
	heartbeatTimeout = 10 * time.Second // a quarter of the lease duration, when the next renewal is due
	dialTimeout      = 10 * time.Second
)

// Config is the configuration of a Client. Zero values select the given defaults.
type Config struct {
	Kubeconfig  string        // path; required
	QPS         float32       // 50; negative: no limit
	Burst       int           // 100
	EventQPS    float32       // 50; negative: no limit
	EventBurst  int           // 100
	ContentType string        // protobuf
	Version     string        // of the agent, for the user agent; required
	Heartbeat   time.Duration // timeout of calls for nodes and leases; 10s

	// Identity provides a rotated client certificate. It replaces the credentials of the kubeconfig. Optional.
	Identity Identity

	// Wrap wraps the transport. Optional.
	Wrap func(http.RoundTripper) http.RoundTripper
}

// Client is a client of the API server with a Resource for each kind.
type Client struct {
	Pods            Pods
	Nodes           Nodes
	ServiceAccounts ServiceAccounts

	Leases                     Resource[*coordinationv1.Lease]
	Services                   Resource[*corev1.Service]
	ConfigMaps                 Resource[*corev1.ConfigMap]
	Secrets                    Resource[*corev1.Secret]
	PersistentVolumes          Resource[*corev1.PersistentVolume]
	PersistentVolumeClaims     Resource[*corev1.PersistentVolumeClaim]
	CSINodes                   Resource[*storagev1.CSINode]
	CSIDrivers                 Resource[*storagev1.CSIDriver]
	VolumeAttachments          Resource[*storagev1.VolumeAttachment]
	RuntimeClasses             Resource[*nodev1.RuntimeClass]
	CertificateSigningRequests Resource[*certificatesv1.CertificateSigningRequest]
	ClusterTrustBundles        Resource[*certificatesv1beta1.ClusterTrustBundle]
	PodCertificateRequests     Resource[*certificatesv1beta1.PodCertificateRequest]

	tokenReviews  Resource[*authenticationv1.TokenReview]
	accessReviews Resource[*authorizationv1.SubjectAccessReview]
	events        Resource[*corev1.Event]

	host   string
	claims rest.Interface
	groups map[schema.GroupVersion]rest.Interface
	dialer *connrotation.Dialer
}

// New reads the kubeconfig and returns a client. It does not connect.
func New(cfg Config) (*Client, error) {
	rc, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: cfg.Kubeconfig}, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("load kubeconfig %s: %w", cfg.Kubeconfig, err)
	}
	return NewFor(rc, cfg)
}

// NewFor returns a client for the given server and credentials. It does not modify rc.
func NewFor(rc *rest.Config, cfg Config) (*Client, error) {
	if rc.Dial != nil {
		return nil, errors.New("make API client: the configuration has a dialer")
	}
	rc = rest.CopyConfig(rc)
	rc.UserAgent = UserAgent(cfg.Version)
	rc.ContentType = orElse(cfg.ContentType, ContentProtobuf)
	if rc.ContentType == ContentProtobuf {
		// For types without a protobuf encoding.
		rc.AcceptContentTypes = ContentProtobuf + ",application/json"
	}
	rc.NegotiatedSerializer = Codecs.WithoutConversion()
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext)
	rc.Dial = dialer.DialContext

	httpc, err := httpClient(rc, cfg.Identity, cfg.Wrap)
	if err != nil {
		return nil, fmt.Errorf("make API client for %s: %w", rc.Host, err)
	}
	callRate := limiter(orElse(cfg.QPS, 50), orElse(cfg.Burst, 100)) // shared by all groups except two
	eventRate := limiter(orElse(cfg.EventQPS, 50), orElse(cfg.EventBurst, 100))
	c := &Client{host: rc.Host, dialer: dialer, groups: map[schema.GroupVersion]rest.Interface{}}
	beat := orElse(cfg.Heartbeat, heartbeatTimeout)

	for gv := range kinds {
		rate := callRate
		switch gv {
		case authenticationv1.SchemeGroupVersion, authorizationv1.SchemeGroupVersion:
			// Reviews of requests to the node have a limit of their own, because any client can cause them. They do
			// not delay calls for pods.
			rate = limiter(orElse(cfg.QPS, 50), orElse(cfg.Burst, 100))
		}
		if c.groups[gv], err = groupClient(rc, httpc, gv, rate); err != nil {
			return nil, err
		}
	}
	beats := map[schema.GroupVersion]rest.Interface{}
	for _, gv := range []schema.GroupVersion{corev1.SchemeGroupVersion, coordinationv1.SchemeGroupVersion} {
		if beats[gv], err = groupClient(rc, httpc, gv, nil); err != nil {
			return nil, err
		}
	}
	events, err := groupClient(rc, httpc, corev1.SchemeGroupVersion, eventRate)
	if err != nil {
		return nil, err
	}

	core, storage := c.groups[corev1.SchemeGroupVersion], c.groups[storagev1.SchemeGroupVersion]
	c.Pods = Pods{resource(core, "pods", func() *corev1.Pod { return new(corev1.Pod) })}
	newNode := func() *corev1.Node { return new(corev1.Node) }
	c.Nodes = Nodes{resource(beats[corev1.SchemeGroupVersion], "nodes", newNode, beat)}
	c.ServiceAccounts = ServiceAccounts{rest: core}
	c.Leases = resource(beats[coordinationv1.SchemeGroupVersion], "leases",
		func() *coordinationv1.Lease { return new(coordinationv1.Lease) }, beat)
	c.Services = resource(core, "services", func() *corev1.Service { return new(corev1.Service) })
	c.ConfigMaps = resource(core, "configmaps", func() *corev1.ConfigMap { return new(corev1.ConfigMap) })
	c.Secrets = resource(core, "secrets", func() *corev1.Secret { return new(corev1.Secret) })
	c.PersistentVolumes = resource(core, "persistentvolumes",
		func() *corev1.PersistentVolume { return new(corev1.PersistentVolume) })
	c.PersistentVolumeClaims = resource(core, "persistentvolumeclaims",
		func() *corev1.PersistentVolumeClaim { return new(corev1.PersistentVolumeClaim) })
	c.CSINodes = resource(storage, "csinodes", func() *storagev1.CSINode { return new(storagev1.CSINode) })
	c.CSIDrivers = resource(storage, "csidrivers", func() *storagev1.CSIDriver { return new(storagev1.CSIDriver) })
	c.VolumeAttachments = resource(storage, "volumeattachments",
		func() *storagev1.VolumeAttachment { return new(storagev1.VolumeAttachment) })
	c.RuntimeClasses = resource(c.groups[nodev1.SchemeGroupVersion], "runtimeclasses",
		func() *nodev1.RuntimeClass { return new(nodev1.RuntimeClass) })
	c.claims = c.groups[claimGroup]
	c.CertificateSigningRequests = resource(c.groups[certificatesv1.SchemeGroupVersion], "certificatesigningrequests",
		func() *certificatesv1.CertificateSigningRequest { return new(certificatesv1.CertificateSigningRequest) })
	beta := c.groups[certificatesv1beta1.SchemeGroupVersion]
	c.ClusterTrustBundles = resource(beta, "clustertrustbundles",
		func() *certificatesv1beta1.ClusterTrustBundle { return new(certificatesv1beta1.ClusterTrustBundle) })
	c.PodCertificateRequests = resource(beta, "podcertificaterequests",
		func() *certificatesv1beta1.PodCertificateRequest {
			return new(certificatesv1beta1.PodCertificateRequest)
		})
	c.tokenReviews = resource(c.groups[authenticationv1.SchemeGroupVersion], "tokenreviews",
		func() *authenticationv1.TokenReview { return new(authenticationv1.TokenReview) })
	c.accessReviews = resource(c.groups[authorizationv1.SchemeGroupVersion], "subjectaccessreviews",
		func() *authorizationv1.SubjectAccessReview { return new(authorizationv1.SubjectAccessReview) })
	c.events = resource(events, "events", func() *corev1.Event { return new(corev1.Event) })
	return c, nil
}

// Host returns the server's address as in the kubeconfig.
func (c *Client) Host() string { return c.host }

// Core returns the client of the core/v1 group.
func (c *Client) Core() rest.Interface { return c.groups[corev1.SchemeGroupVersion] }

// CloseConnections closes all connections to the server, including watches. The next call connects again.
func (c *Client) CloseConnections() { c.dialer.CloseAll() }

// ListWatch returns the source for a reflector over objects of the given resource. It fails for resources that the
// scheme does not have.
func (c *Client) ListWatch(resource, namespace string, selector fields.Selector) (*cache.ListWatch, error) {
	gv, ok := watchable[resource]
	if !ok {
		return nil, fmt.Errorf("watch %s: unknown resource", resource)
	}
	return newListWatch(c.groups[gv], resource, namespace, selector), nil
}

var watchable = map[string]schema.GroupVersion{
	"pods":                       corev1.SchemeGroupVersion,
	"nodes":                      corev1.SchemeGroupVersion,
	"services":                   corev1.SchemeGroupVersion,
	"configmaps":                 corev1.SchemeGroupVersion,
	"secrets":                    corev1.SchemeGroupVersion,
	"persistentvolumes":          corev1.SchemeGroupVersion,
	"persistentvolumeclaims":     corev1.SchemeGroupVersion,
	"csinodes":                   storagev1.SchemeGroupVersion,
	"csidrivers":                 storagev1.SchemeGroupVersion,
	"volumeattachments":          storagev1.SchemeGroupVersion,
	"runtimeclasses":             nodev1.SchemeGroupVersion,
	"certificatesigningrequests": certificatesv1.SchemeGroupVersion,
}

// ReviewToken creates a TokenReview.
func (c *Client) ReviewToken(
	ctx context.Context, r *authenticationv1.TokenReview,
) (*authenticationv1.TokenReview, error) {
	return c.tokenReviews.Create(ctx, "", r)
}

// ReviewAccess creates a SubjectAccessReview.
func (c *Client) ReviewAccess(
	ctx context.Context, r *authorizationv1.SubjectAccessReview,
) (*authorizationv1.SubjectAccessReview, error) {
	return c.accessReviews.Create(ctx, "", r)
}

// limiter returns a rate limiter, or nil for a negative rate.
func limiter(qps float32, burst int) flowcontrol.RateLimiter {
	if qps < 0 {
		return nil
	}
	return flowcontrol.NewTokenBucketRateLimiter(qps, burst)
}

func groupClient(
	rc *rest.Config, httpc *http.Client, gv schema.GroupVersion, l flowcontrol.RateLimiter,
) (rest.Interface, error) {
	rc = rest.CopyConfig(rc)
	rc.GroupVersion = &gv
	rc.APIPath = "/apis"
	if gv.Group == "" {
		rc.APIPath = "/api"
	}
	rc.RateLimiter = l
	if l == nil {
		rc.QPS = -1
	}
	c, err := rest.RESTClientForConfigAndClient(rc, httpc)
	if err != nil {
		return nil, fmt.Errorf("make API client for %s at %s: %w", gv, rc.Host, err)
	}
	return c, nil
}

func resource[T runtime.Object](c rest.Interface, name string, empty func() T, limit ...time.Duration) Resource[T] {
	r := Resource[T]{rest: c, name: name, limit: callTimeout, empty: empty}
	if len(limit) > 0 {
		r.limit = limit[0]
	}
	return r
}

func orElse[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}
