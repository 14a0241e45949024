package objectcache

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"time"

	certv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"keelson/internal/pods/pod"
)

const (
	// certificateLook is how often a pending request, or a certificate that should have been replaced, is checked.
	certificateLook = time.Minute
	// certificateJitter spreads replacements of certificates that were issued at the same time.
	certificateJitter = 5 * time.Minute
	// overdueAfter is the delay of a replacement after which an event is recorded.
	overdueAfter = 10 * time.Minute
	// refusedLook is the pause after a replacement was refused.
	refusedLook = 10 * time.Minute
)

// CertificateAPI is the part of the API server that is used.
type CertificateAPI interface {
	Request(ctx context.Context, r *certv1beta1.PodCertificateRequest) (*certv1beta1.PodCertificateRequest, error)
	// Look gets a request. Changes are also passed to [Certificates.Seen], from the first request on.
	Look(ctx context.Context, namespace, name string) (*certv1beta1.PodCertificateRequest, error)
	ServiceAccount(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error)
}

// CertificatesConfig holds the configuration of Certificates. All fields are required.
type CertificatesConfig struct {
	API    CertificateAPI
	Node   func() *v1.Node
	Events pod.Events
	// OnAnswer is called when the certificate of a pod's volume has changed. It must not block.
	OnAnswer func(uid types.UID, volume string)
	Now      func() time.Time
	Log      *slog.Logger
}

// Certificates requests certificates for pods from signers (KEP-4317). Private keys are generated here, and stored in
// memory and in the pod's volume only.
//
//	          request          Issued             beginRefreshAt
//	(nothing) ───────► pending ─────► good ──────────────► good and pending ─► good
//	                      │
//	                      └ Denied, Failed ─► refused, for as long as the pod lives
//
// A certificate is served until it is replaced.
type Certificates struct {
	cfg CertificatesConfig

	mu  sync.Mutex
	all map[certificateKey]*certificate
}

// certificateKey identifies a source of a volume.
type certificateKey struct {
	uid    types.UID
	volume string
	source int
}

// certificate is the state of one source. It is guarded by Certificates.mu.
type certificate struct {
	pod             *v1.Pod
	signer          string
	pending         *pendingRequest // the pending request
	good            *credential     // the latest issued one
	refused         error           // the error of the latest request, if it was refused
	state           string          // label of the metric after that
	again           time.Time       // when to retry after that
	overdueReported bool            // the event about an overdue replacement was recorded
	expiryReported  bool            // the event about the expiry was recorded
}

// pendingRequest is a request that was created.
type pendingRequest struct {
	namespace, name string
	key             []byte // PEM
	looked          time.Time
}

// credential is a key and its certificate chain, in PEM. It is immutable.
type credential struct {
	key, chain []byte
	begin      time.Time // when to request the next one
	expires    time.Time
}

// pending is the error of a certificate that is not issued yet.
type pending struct{ what string }

func (p *pending) Error() string { return "waiting for " + p.what }

// Waiting returns what is waited for. It is not a failure.
func (p *pending) Waiting() string { return p.what }

// NewCertificates returns Certificates.
func NewCertificates(cfg CertificatesConfig) *Certificates {
	return &Certificates{cfg: cfg, all: map[certificateKey]*certificate{}}
}

// Certificate returns the key and the certificate chain, in PEM, for a source of p's volume, and when to call it again.
// It must not be called concurrently for one source. An error with a method Waiting is not a failure: OnAnswer is
// called when the certificate is issued.
func (c *Certificates) Certificate(
	ctx context.Context, p *v1.Pod, volume string, source int, want *v1.PodCertificateProjection,
) (key, chain []byte, renewAt time.Time, err error) {
	got, renewAt, err := c.credential(ctx, p, volume, source, want)
	if err != nil {
		return nil, nil, time.Time{}, err
	}
	return got.key, got.chain, renewAt, nil
}

func (c *Certificates) credential(
	ctx context.Context, p *v1.Pod, volume string, source int, want *v1.PodCertificateProjection,
) (*credential, time.Time, error) {
	key := certificateKey{p.UID, volume, source}
	c.mu.Lock()
	have := c.all[key]
	if have == nil {
		have = &certificate{signer: want.SignerName}
		c.all[key] = have
	}
	have.pod = p
	now := c.cfg.Now()
	due := have.pending == nil && have.due(now)
	c.mu.Unlock()
	if due {
		if err := c.request(ctx, have, p, want); err != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			if have.good == nil {
				return nil, time.Time{}, err
			}
			c.cfg.Log.Warn("failed to request new certificate",
				"pod", p.Namespace+"/"+p.Name, "podUID", p.UID, "volume", volume, "err", err)
			return have.good, c.serveLocked(have, now), nil
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if request := have.pending; request != nil && now.Sub(request.looked) >= certificateLook {
		request.looked = now
		c.mu.Unlock()
		got, err := c.cfg.API.Look(ctx, request.namespace, request.name)
		c.mu.Lock()
		switch {
		case have.pending != request: // answered in the meantime
		case apierrors.IsNotFound(err): // deleted without an answer
			have.pending = nil
		case err != nil:
			c.cfg.Log.Warn("failed to get PodCertificateRequest",
				"pod", p.Namespace+"/"+p.Name, "request", request.name, "err", err)
		default:
			c.takeLocked(have, got)
		}
	}
	switch {
	case have.good != nil:
		return have.good, c.serveLocked(have, now), nil
	case have.refused != nil:
		return nil, time.Time{}, have.refused
	}
	return nil, time.Time{}, &pending{fmt.Sprintf("signer %s to issue a certificate", want.SignerName)}
}

// due reports whether a certificate has to be requested. The first request of a pod is not retried after it was
// refused.
func (h *certificate) due(now time.Time) bool {
	switch {
	case h.good == nil:
		return h.refused == nil
	case h.refused != nil:
		return !now.Before(h.again)
	}
	return !now.Before(h.good.begin)
}

// serveLocked returns when the certificate has to be requested again, and records events if it is overdue or expired.
func (c *Certificates) serveLocked(h *certificate, now time.Time) (renewAt time.Time) {
	good := h.good
	switch {
	case !h.expiryReported && now.After(good.expires):
		h.expiryReported, h.overdueReported = true, true
		c.cfg.Events.Pod(h.pod, "", v1.EventTypeWarning, pod.EventCertificateExpired, "PodCertificate expired")
	case !h.overdueReported && now.After(good.begin.Add(overdueAfter)):
		h.overdueReported = true
		c.cfg.Events.Pod(h.pod, "", v1.EventTypeWarning, pod.EventCertificateOverdue, "PodCertificate refresh overdue")
	}
	if h.pending == nil && h.refused == nil && now.Before(good.begin) {
		return good.begin
	}
	return now.Add(certificateLook)
}

// Seen processes a change of a request at the API server; gone: it was deleted. Requests of other agents are ignored.
func (c *Certificates) Seen(r *certv1beta1.PodCertificateRequest, gone bool) {
	c.mu.Lock()
	var news []certificateKey
	for key, h := range c.all {
		if key.uid != r.Spec.PodUID || h.pending == nil || h.pending.name != r.Name ||
			h.pending.namespace != r.Namespace {
			continue
		}
		if gone {
			h.pending = nil
			news = append(news, key)
		} else if c.takeLocked(h, r) {
			news = append(news, key)
		}
	}
	c.mu.Unlock()
	for _, key := range news {
		c.cfg.OnAnswer(key.uid, key.volume)
	}
}

// takeLocked processes the pending request if it was answered.
func (c *Certificates) takeLocked(h *certificate, r *certv1beta1.PodCertificateRequest) (answered bool) {
	for _, cond := range r.Status.Conditions {
		if cond.Status != metav1.ConditionTrue {
			continue
		}
		switch cond.Type {
		case certv1beta1.PodCertificateRequestConditionTypeIssued:
			good, err := accept(h.pending, &r.Status)
			if err != nil {
				err = fmt.Errorf("signer %s issued an invalid certificate: %w", h.signer, err)
				c.refuseLocked(h, stateFailed, err, err.Error())
				return true
			}
			*h = certificate{pod: h.pod, signer: h.signer, good: good}
			return true
		case certv1beta1.PodCertificateRequestConditionTypeDenied:
			c.refuseLocked(h, stateDenied, permanently("denied", cond), fmt.Sprintf(
				"PodCertificateRequest %s/%s was denied, reason=%q, message=%q", r.Namespace, r.Name, cond.Reason,
				cond.Message))
			return true
		case certv1beta1.PodCertificateRequestConditionTypeFailed:
			c.refuseLocked(h, stateFailed, permanently("failed", cond), fmt.Sprintf(
				"PodCertificateRequest %s/%s failed, reason=%q, message=%q", r.Namespace, r.Name, cond.Reason,
				cond.Message))
			return true
		}
	}
	return false
}

// permanently returns the error of a request that the signer has refused.
func permanently(what string, cond metav1.Condition) error {
	return fmt.Errorf("PodCertificateRequest was permanently %s: reason=%q message=%q", what, cond.Reason, cond.Message)
}

func (c *Certificates) refuseLocked(h *certificate, state string, cause error, event string) {
	h.pending, h.refused, h.state, h.again = nil, cause, state, c.cfg.Now().Add(refusedLook)
	reason := pod.EventCertificateFailed
	if state == stateDenied {
		reason = pod.EventCertificateDenied
	}
	c.cfg.Events.Pod(h.pod, "", v1.EventTypeWarning, reason, event)
}

// Forget drops the keys and certificates of a pod.
func (c *Certificates) Forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.all {
		if key.uid == uid {
			delete(c.all, key)
		}
	}
}

// request makes a key and requests a certificate for it.
func (c *Certificates) request(
	ctx context.Context, h *certificate, p *v1.Pod, want *v1.PodCertificateProjection,
) error {
	key, err := newKey(want.KeyType)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode key: %w", err)
	}
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return fmt.Errorf("make certificate request: %w", err)
	}
	account, err := retryForbidden(ctx, func() (*v1.ServiceAccount, error) {
		return c.cfg.API.ServiceAccount(ctx, p.Namespace, p.Spec.ServiceAccountName)
	})
	if err != nil {
		return fmt.Errorf("read service account %s/%s: %w", p.Namespace, p.Spec.ServiceAccountName, err)
	}
	node := c.cfg.Node()
	r := &certv1beta1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       p.Namespace,
			Name:            requestName(p.Name),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID}},
		},
		Spec: certv1beta1.PodCertificateRequestSpec{
			SignerName:                want.SignerName,
			PodName:                   p.Name,
			PodUID:                    p.UID,
			ServiceAccountName:        account.Name,
			ServiceAccountUID:         account.UID,
			NodeName:                  types.NodeName(node.Name),
			NodeUID:                   node.UID,
			MaxExpirationSeconds:      want.MaxExpirationSeconds,
			StubPKCS10Request:         stub,
			UnverifiedUserAnnotations: want.UserAnnotations,
		},
	}
	// Stored before the call, because the answer may arrive before the call returns.
	made := &pendingRequest{
		namespace: r.Namespace,
		name:      r.Name,
		looked:    c.cfg.Now(),
		key:       pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
	}
	c.mu.Lock()
	h.pending, h.refused = made, nil
	c.mu.Unlock()
	_, err = retryForbidden(ctx,
		func() (*certv1beta1.PodCertificateRequest, error) { return c.cfg.API.Request(ctx, r) })
	if err == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.pending == made {
		h.pending = nil
	}
	return fmt.Errorf("request certificate from signer %s: %w", want.SignerName, err)
}

// requestName returns a new name of limited length.
func requestName(pod string) string {
	return "req-" + strings.TrimRight(pod[:min(len(pod), 220)], ".-") + "-" + utilrand.String(10)
}

// newKey makes a key of the type in a projection.
func newKey(kind string) (crypto.Signer, error) {
	switch kind {
	case "RSA3072":
		return rsa.GenerateKey(rand.Reader, 3072)
	case "RSA4096":
		return rsa.GenerateKey(rand.Reader, 4096)
	case "ECDSAP256":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ECDSAP384":
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "ECDSAP521":
		return ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case "ED25519":
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	return nil, fmt.Errorf("unknown key type %q", kind)
}

// accept validates an issued certificate chain. Other PEM blocks are not accepted.
func accept(a *pendingRequest, s *certv1beta1.PodCertificateRequestStatus) (*credential, error) {
	var chain []byte
	for rest := []byte(s.CertificateChain); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("the chain holds a %s", block.Type)
		}
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
	}
	pair, err := tls.X509KeyPair(chain, a.key)
	if err != nil {
		return nil, err
	}
	if s.BeginRefreshAt == nil {
		return nil, errors.New("beginRefreshAt is missing")
	}
	begin, expires := s.BeginRefreshAt.Time, pair.Leaf.NotAfter
	begin = begin.Add(mathrand.N(max(min(certificateJitter, expires.Sub(begin)/2), 1)))
	return &credential{key: a.key, chain: chain, begin: begin, expires: expires}, nil
}
