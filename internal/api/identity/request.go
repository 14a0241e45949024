package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Requests are the CertificateSigningRequests at the API server, which are not namespaced.
type Requests interface {
	Get(ctx context.Context, namespace, name string) (*certificatesv1.CertificateSigningRequest, error)
	Create(
		ctx context.Context, namespace string, r *certificatesv1.CertificateSigningRequest,
	) (*certificatesv1.CertificateSigningRequest, error)
	ListWatch(namespace string, selector fields.Selector) *cache.ListWatch
}

// errRejected is the cause if the signer will not issue the certificate. A retry of the same request is useless.
var errRejected = errors.New("refused")

// newKey returns a private key and its PEM encoding.
func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make private key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode private key: %w", err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: keyutil.ECPrivateKeyBlockType, Bytes: der}), nil
}

// createRequest creates a request for the template. With a name, it returns the request that was created earlier with
// the same key, if there is one.
func createRequest(
	ctx context.Context, api Requests, name, signer string, template *x509.CertificateRequest, key *ecdsa.PrivateKey,
) (*certificatesv1.CertificateSigningRequest, error) {
	csr, err := certutil.MakeCSRFromTemplate(key, template)
	if err != nil {
		return nil, fmt.Errorf("make certificate request: %w", err)
	}
	r := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    csr,
			SignerName: signer,
			Usages:     usages(signer),
		},
	}
	if name == "" {
		r.GenerateName = unnamedRequest
	}
	made, err := api.Create(ctx, "", r)
	if name == "" || !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return nil, fmt.Errorf("request certificate: %w", err)
		}
		return made, nil
	}
	before, err := api.Get(ctx, "", name)
	if err != nil {
		return nil, fmt.Errorf("read certificate request %s: %w", name, err)
	}
	if err := checkKey(before, key); err != nil {
		return nil, fmt.Errorf("use certificate request %s of an earlier attempt: %w", name, err)
	}
	return before, nil
}

// checkKey returns an error if a request is not for this key.
func checkKey(r *certificatesv1.CertificateSigningRequest, key *ecdsa.PrivateKey) error {
	block, _ := pem.Decode(r.Spec.Request)
	if block == nil {
		return errors.New("it contains no PEM")
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return err
	}
	if pub, ok := parsed.PublicKey.(*ecdsa.PublicKey); !ok || !pub.Equal(key.Public()) {
		return errors.New("it was made with another key")
	}
	return nil
}

// waitIssued waits until a request is approved and issued, and returns the certificate.
func waitIssued(ctx context.Context, api Requests, r *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	lw := api.ListWatch("", fields.OneTermEqualSelector("metadata.name", r.Name))
	var issued []byte
	_, err := watchtools.UntilWithSync(ctx, lw, &certificatesv1.CertificateSigningRequest{}, nil,
		func(e watch.Event) (bool, error) {
			now, ok := e.Object.(*certificatesv1.CertificateSigningRequest)
			if !ok {
				return false, fmt.Errorf("the API server sent a %T", e.Object)
			}
			var err error
			issued, err = issuedCertificate(e.Type, now, r)
			return issued != nil, err
		})
	if ctx.Err() != nil {
		return nil, fmt.Errorf("wait for certificate request %s to be approved and issued: %w", r.Name,
			context.Cause(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("wait for certificate request %s: %w", r.Name, err)
	}
	return issued, nil
}

// issuedCertificate returns the certificate of the request, nil if it is not issued yet, or an error if it never will
// be.
func issuedCertificate(kind watch.EventType, now, asked *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	if kind == watch.Deleted || now.UID != asked.UID {
		return nil, fmt.Errorf("%w: it was deleted", errRejected)
	}
	approved := false
	for _, c := range now.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			return nil, fmt.Errorf("%w: %s, reason: %v, message: %v", errRejected, c.Type, c.Reason, c.Message)
		case certificatesv1.CertificateApproved:
			approved = true
		}
	}
	if approved && len(now.Status.Certificate) > 0 {
		return now.Status.Certificate, nil
	}
	return nil, nil
}

// requestName returns the name of the request that is made with a key, as upstream, so that it is found again with the
// key. The parts are encoded and separated, so that different lists have different hashes.
func requestName(key *ecdsa.PrivateKey, template *x509.CertificateRequest, signer string) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return "", fmt.Errorf("encode public key: %w", err)
	}
	h := sha512.New512_256()
	parts := append([]string{string(der), template.Subject.CommonName}, template.Subject.Organization...)
	for _, u := range usages(signer) {
		parts = append(parts, string(u))
	}
	for _, p := range parts {
		fmt.Fprintf(h, "%s|", base64.RawURLEncoding.EncodeToString([]byte(p)))
	}
	return namedRequest + base64.RawURLEncoding.EncodeToString(h.Sum(nil)), nil
}
