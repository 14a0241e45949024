package app

import (
	"context"
	"crypto/tls"
	"fmt"

	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	v1beta1 "k8s.io/kubelet/config/v1beta1"

	"keelson/internal/node/apiclient"
)

// reviews asks the API server who somebody is and what they may do.
type reviews struct{ api *apiclient.Client }

func (r reviews) CreateTokenReview(ctx context.Context, t *authnv1.TokenReview) (*authnv1.TokenReview, error) {
	return r.api.ReviewToken(ctx, t)
}

func (r reviews) CreateSubjectAccessReview(ctx context.Context, s *authzv1.SubjectAccessReview) (*authzv1.SubjectAccessReview, error) {
	return r.api.ReviewAccess(ctx, s)
}

// tlsSettings turns the names of the configuration into Go's numbers. The names
// were checked when the configuration was read.
func tlsSettings(k *v1beta1.KubeletConfiguration) (version uint16, suites []uint16, curves []tls.CurveID, err error) {
	versions := map[string]uint16{"": 0, "VersionTLS10": tls.VersionTLS10, "VersionTLS11": tls.VersionTLS11,
		"VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13}
	version, ok := versions[k.TLSMinVersion]
	if !ok {
		return 0, nil, nil, fmt.Errorf("read tlsMinVersion: unknown version %q", k.TLSMinVersion)
	}
	byName := map[string]uint16{}
	for _, s := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		byName[s.Name] = s.ID
	}
	for _, name := range k.TLSCipherSuites {
		id, ok := byName[name]
		if !ok {
			return 0, nil, nil, fmt.Errorf("read tlsCipherSuites: unknown suite %q", name)
		}
		suites = append(suites, id)
	}
	for _, c := range k.TLSCurvePreferences {
		curves = append(curves, tls.CurveID(c))
	}
	return version, suites, curves, nil
}
