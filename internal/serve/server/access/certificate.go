package access

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
)

// uidOID is the attribute of the subject that has the user's UID.
var uidOID = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}

// byCertificate authenticates by a client certificate. The common name is the user, and organizations are its groups.
// The certificate is verified for each request, because the CAs may change and certificates may expire during a
// connection.
func (a *Authenticator) byCertificate(r *http.Request) (*authnv1.UserInfo, error) {
	if a.cfg.ClientCAs == nil || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	leaf := r.TLS.PeerCertificates[0]
	opts := x509.VerifyOptions{
		Roots:         a.cfg.ClientCAs(),
		Intermediates: x509.NewCertPool(),
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if opts.Roots == nil {
		return nil, nil // nil would select the CAs of the system
	}
	for _, c := range r.TLS.PeerCertificates[1:] {
		opts.Intermediates.AddCert(c)
	}
	a.certsLeft.Observe(time.Until(leaf.NotAfter).Seconds())
	if _, err := leaf.Verify(opts); err != nil {
		return nil, fmt.Errorf("verify certificate of %q, serial number %d: %w", leaf.Subject.CommonName,
			leaf.SerialNumber,
			err)
	}
	if leaf.Subject.CommonName == "" {
		return nil, nil
	}
	uid, err := uidOf(leaf)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(leaf.Raw)
	return &authnv1.UserInfo{
		Username: leaf.Subject.CommonName,
		UID:      uid,
		Groups:   leaf.Subject.Organization,
		Extra:    map[string]authnv1.ExtraValue{credentialIDKey: {"X509SHA256=" + hex.EncodeToString(sum[:])}},
	}, nil
}

func uidOf(c *x509.Certificate) (string, error) {
	found := ""
	for _, n := range c.Subject.Names {
		if !n.Type.Equal(uidOID) {
			continue
		}
		uid, ok := n.Value.(string)
		switch {
		case !ok:
			return "", errors.New("unable to parse UID into a string")
		case uid == "":
			return "", errors.New("UID cannot be an empty string")
		case found != "":
			return "", fmt.Errorf("expected 1 UID, but found multiple: %q, %q", found, uid)
		}
		found = uid
	}
	return found, nil
}
