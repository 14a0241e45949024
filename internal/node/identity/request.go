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

// Requests is the certificate signing requests at the API server, which have no
// namespace.
type Requests interface {
	Get(ctx context.Context, namespace, name string) (*certificatesv1.CertificateSigningRequest, error)
	Create(ctx context.Context, namespace string, r *certificatesv1.CertificateSigningRequest) (*certificatesv1.CertificateSigningRequest, error)
	ListWatch(namespace string, selector fields.Selector) *cache.ListWatch
}

// errRefused says that the signer will not issue what was asked for; asking the
// same again is of no use.
var errRefused = errors.New("refused")

// newKey makes a private key and its PEM.
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

// ask makes a request for template, or with a name finds the one that was made
// before with the same key.
func ask(ctx context.Context, api Requests, name, signer string, template *x509.CertificateRequest, key *ecdsa.PrivateKey) (*certificatesv1.CertificateSigningRequest, error) {
	csr, err := certutil.MakeCSRFromTemplate(key, template)
	if err != nil {
		return nil, fmt.Errorf("make certificate request: %w", err)
	}
	r := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       certificatesv1.CertificateSigningRequestSpec{Request: csr, SignerName: signer, Usages: usages(signer)},
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
	if err := madeWith(before, key); err != nil {
		return nil, fmt.Errorf("use certificate request %s of an earlier try: %w", name, err)
	}
	return before, nil
}

// madeWith checks that a request is for this key.
func madeWith(r *certificatesv1.CertificateSigningRequest, key *ecdsa.PrivateKey) error {
	block, _ := pem.Decode(r.Spec.Request)
	if block == nil {
		return errors.New("it holds no PEM")
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

// await waits until a request is answered, and returns the certificate.
func await(ctx context.Context, api Requests, r *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	lw := api.ListWatch("", fields.OneTermEqualSelector("metadata.name", r.Name))
	var issued []byte
	_, err := watchtools.UntilWithSync(ctx, lw, &certificatesv1.CertificateSigningRequest{}, nil, func(e watch.Event) (bool, error) {
		now, ok := e.Object.(*certificatesv1.CertificateSigningRequest)
		if !ok {
			return false, fmt.Errorf("the API server sent a %T", e.Object)
		}
		var err error
		issued, err = answer(e.Type, now, r)
		return issued != nil, err
	})
	if ctx.Err() != nil {
		return nil, fmt.Errorf("wait for certificate request %s to be approved and issued: %w", r.Name, context.Cause(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("wait for certificate request %s: %w", r.Name, err)
	}
	return issued, nil
}

// answer is the certificate if the request, as it is now, has one; nil if it has
// not yet, and an error if it never will.
func answer(kind watch.EventType, now, asked *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	if kind == watch.Deleted || now.UID != asked.UID {
		return nil, fmt.Errorf("%w: somebody deleted it", errRefused)
	}
	approved := false
	for _, c := range now.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			return nil, fmt.Errorf("%w: %s, reason: %v, message: %v", errRefused, c.Type, c.Reason, c.Message)
		case certificatesv1.CertificateApproved:
			approved = true
		}
	}
	if approved && len(now.Status.Certificate) > 0 {
		return now.Status.Certificate, nil
	}
	return nil, nil
}

// requestName is the name of the request that is made with a key, as upstream names it. An agent that
// has the key finds its request again. The parts are set apart so that no two lists read the same.
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
