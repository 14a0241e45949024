package builtin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	certv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"keelson/internal/storage/volume"
)

// Bundles lists the cluster's ClusterTrustBundles (KEP-3257).
type Bundles interface {
	// All lists them once the initial list is complete. The result is shared.
	All(ctx context.Context) ([]*certv1beta1.ClusterTrustBundle, error)
}

// anyBundle is the input of a volume with trust bundles: a new one may match.
var anyBundle = volume.Object{Kind: volume.TrustBundle}

// trustFiles returns the file with the trust anchors of a source.
func trustFiles(
	ctx context.Context, b Bundles, p *v1.Pod, s *v1.ClusterTrustBundleProjection, mode *int32,
) (map[string]file, error) {
	if b == nil {
		return nil, fmt.Errorf("projected source clusterTrustBundle %w", errNotServed)
	}
	ctx, stop := context.WithTimeout(ctx, objectTimeout)
	defer stop()
	all, err := b.All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read ClusterTrustBundles: %w", err)
	}
	chosen, err := selectBundles(all, s)
	if err != nil {
		return nil, err
	}
	anchors, err := anchorsOf(chosen)
	if err != nil {
		return nil, err
	}
	return map[string]file{s.Path: privateFile(p, anchors, mode)}, nil
}

// selectBundles returns the bundles selected by name, or by signer and labels.
func selectBundles(
	all []*certv1beta1.ClusterTrustBundle, s *v1.ClusterTrustBundleProjection,
) ([]*certv1beta1.ClusterTrustBundle, error) {
	var match func(*certv1beta1.ClusterTrustBundle) bool
	var none error
	switch {
	case s.Name != nil:
		match = func(b *certv1beta1.ClusterTrustBundle) bool { return b.Name == *s.Name }
		none = fmt.Errorf("clustertrustbundle %q not found", *s.Name)
	case s.SignerName != nil:
		selector, err := metav1.LabelSelectorAsSelector(s.LabelSelector) // nil matches nothing
		if err != nil {
			return nil, fmt.Errorf("parse label selector of signer %s: %w", *s.SignerName, err)
		}
		match = func(b *certv1beta1.ClusterTrustBundle) bool {
			return b.Spec.SignerName == *s.SignerName && selector.Matches(labels.Set(b.Labels))
		}
		none = errors.New("combination of signerName and labelSelector matched zero ClusterTrustBundles")
	default:
		return nil, errors.New("ClusterTrustBundle projection requires either name or signerName to be set")
	}
	var chosen []*certv1beta1.ClusterTrustBundle
	for _, b := range all {
		if match(b) {
			chosen = append(chosen, b)
		}
	}
	if len(chosen) == 0 && !isTrue(s.Optional) {
		return nil, none
	}
	return chosen, nil
}

// shuffle determines the order of anchors for the lifetime of the process: nothing may depend on
// the order, and files must not change without cause.
var shuffle = utilrand.String(16)

// anchorsOf returns the certificates of bundles without duplicates and without surrounding text.
func anchorsOf(bundles []*certv1beta1.ClusterTrustBundle) ([]byte, error) {
	by := map[[sha256.Size]byte][]byte{}
	for _, b := range bundles {
		for rest := []byte(b.Spec.TrustBundle); ; {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			if block.Type != "CERTIFICATE" {
				return nil, fmt.Errorf("ClusterTrustBundle %s holds a %s", b.Name, block.Type)
			}
			by[sha256.Sum256(append([]byte(shuffle), block.Bytes...))] = block.Bytes
		}
	}
	var out bytes.Buffer
	for _, key := range slices.SortedFunc(maps.Keys(by),
		func(a, b [sha256.Size]byte) int { return bytes.Compare(a[:], b[:]) }) {
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: by[key]}); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// Certificates issues keys and certificates for pods.
type Certificates interface {
	// Certificate returns a key, its certificate chain, and when to call it again. An error with
	// the method Waiting is not a failure.
	Certificate(
		ctx context.Context, p *v1.Pod, volume string, source int, want *v1.PodCertificateProjection,
	) (key, chain []byte, renewAt time.Time, err error)
	Forgetter
}

// certificateFiles returns the files of a key and its certificate chain.
func certificateFiles(
	ctx context.Context, c Certificates, p *v1.Pod, volume string, source int, s *v1.PodCertificateProjection, mode *int32,
) (map[string]file, time.Time, error) {
	if c == nil {
		return nil, time.Time{}, fmt.Errorf("projected source podCertificate %w", errNotServed)
	}
	key, chain, renewAt, err := c.Certificate(ctx, p, volume, source, s)
	if err != nil {
		return nil, time.Time{}, err
	}
	files := map[string]file{}
	for path, data := range map[string][]byte{
		s.KeyPath:              key,
		s.CertificateChainPath: chain,
		s.CredentialBundlePath: slices.Concat(key, chain),
	} {
		if path != "" {
			files[path] = privateFile(p, data, mode)
		}
	}
	return files, renewAt, nil
}

// privateFile returns a file that only the common user of all containers, or the fsGroup, may read,
// if there is one.
func privateFile(p *v1.Pod, data []byte, mode *int32) file {
	f := file{data: data, mode: modeOr(nil, mode), uid: commonUser(p)}
	if _, shared := fsGroup(p); shared || f.uid != nil {
		f.mode = 0o600
	}
	return f
}

// awaited returns a [volume.Waiting] if there are errors and each of them has the method Waiting.
// Otherwise it returns nil.
func awaited(errs []error) error {
	var waits *volume.Waiting
	for _, err := range errs {
		var w interface{ Waiting() string }
		if !errors.As(err, &w) {
			return nil
		}
		waits = &volume.Waiting{For: w.Waiting()}
	}
	if waits == nil {
		return nil
	}
	return waits
}
