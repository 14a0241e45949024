package manifest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// projection checks the sources of one projected volume, whose files have unique paths.
type projection struct {
	errs  field.ErrorList
	paths map[string]bool
	at    *field.Path
}

func validateProjected(p *v1.ProjectedVolumeSource, at *field.Path) field.ErrorList {
	c := projection{
		errs:  validateMode(p.DefaultMode, at.Child("defaultMode")),
		paths: map[string]bool{},
		at:    at,
	}
	for i := range p.Sources {
		source, at := &p.Sources[i], at.Child("sources").Index(i)
		// A source without a type is allowed and has no files.
		if setPointers(reflect.ValueOf(*source)) > 1 {
			c.errs = append(c.errs, field.Forbidden(at, "may not specify more than 1 volume type per source"))
		}
		c.source(source, at)
	}
	return c.errs
}

func (c *projection) source(s *v1.VolumeProjection, at *field.Path) {
	if s.Secret != nil {
		c.keys(s.Secret.Name, s.Secret.Items, at.Child("secret"))
	}
	if s.ConfigMap != nil {
		c.keys(s.ConfigMap.Name, s.ConfigMap.Items, at.Child("configMap"))
	}
	if s.DownwardAPI != nil {
		c.errs = append(c.errs, validateItems(s.DownwardAPI.Items, at.Child("downwardAPI", "items"))...)
		for _, item := range s.DownwardAPI.Items {
			c.takes(item.Path)
		}
	}
	if s.ServiceAccountToken != nil {
		c.token(s.ServiceAccountToken, at.Child("serviceAccountToken"))
	}
	if s.ClusterTrustBundle != nil {
		c.trustBundle(s.ClusterTrustBundle, at.Child("clusterTrustBundle"))
	}
	if s.PodCertificate != nil {
		c.certificate(s.PodCertificate, at.Child("podCertificate"))
	}
}

// takes records a path and refuses a duplicate.
func (c *projection) takes(path string) {
	if path == "" {
		return
	}
	if c.paths[path] {
		c.errs = append(c.errs, field.Invalid(c.at, path, "conflicting duplicate paths"))
	}
	c.paths[path] = true
}

func (c *projection) keys(name string, items []v1.KeyToPath, at *field.Path) {
	c.errs = append(c.errs, required(at.Child("name"), name)...)
	c.errs = append(c.errs, validateKeys(items, at.Child("items"))...)
	for _, item := range items {
		c.takes(item.Path)
	}
}

func (c *projection) token(t *v1.ServiceAccountTokenProjection, at *field.Path) {
	switch s := *t.ExpirationSeconds; {
	case s < 600:
		c.errs = append(c.errs,
			field.Invalid(at.Child("expirationSeconds"), s, "may not specify a duration less than 10 minutes"))
	case s > 1<<32:
		c.errs = append(c.errs,
			field.Invalid(at.Child("expirationSeconds"), s, "may not specify a duration larger than 2^32 seconds"))
	}
	c.errs = append(c.errs, validateRelative(t.Path, at.Child("path"))...)
}

func (c *projection) trustBundle(b *v1.ClusterTrustBundleProjection, at *field.Path) {
	switch {
	case b.Name != nil && b.SignerName != nil:
		c.errs = append(c.errs, field.Invalid(at, "", "only one of name and signerName may be used"))
	case b.Name != nil:
		c.errs = append(c.errs, required(at.Child("name"), *b.Name)...)
		for _, why := range badBundleName(*b.Name) {
			c.errs = append(c.errs,
				field.Invalid(at.Child("name"), *b.Name, fmt.Sprintf("not a valid clustertrustbundlename: %v", why)))
		}
		if b.LabelSelector != nil {
			c.errs = append(c.errs,
				field.Invalid(at.Child("labelSelector"), "", "labelSelector must be unset if name is specified"))
		}
	case b.SignerName != nil:
		c.errs = append(c.errs, validateSigner(*b.SignerName, at.Child("signerName"))...)
		c.errs = append(c.errs, metav1validation.ValidateLabelSelector(b.LabelSelector,
			metav1validation.LabelSelectorValidationOptions{}, at.Child("labelSelector"))...)
	default:
		c.errs = append(c.errs, field.Required(at, "either name or signerName must be specified"))
	}
	c.errs = append(c.errs, validateRelative(b.Path, at.Child("path"))...)
	c.takes(b.Path)
}

// badBundleName returns the errors in the name of a trust bundle. The bundle of a signer
// begins with the signer's name, with colons in place of slashes.
func badBundleName(name string) []string {
	at := strings.LastIndex(name, ":")
	return apivalidation.NameIsDNSSubdomain(name[at+1:], false)
}

// keyTypes are the kinds of key that a pod certificate may be for.
var keyTypes = []string{"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"}

func (c *projection) certificate(p *v1.PodCertificateProjection, at *field.Path) {
	c.errs = append(c.errs, validateSigner(p.SignerName, at.Child("signerName"))...)
	for key := range p.UserAnnotations {
		c.errs = append(c.errs, validation.IsDomainPrefixedKey(at.Child("userAnnotations"), strings.ToLower(key))...)
	}
	if err := apivalidation.ValidateAnnotationsSize(p.UserAnnotations); err != nil {
		c.errs = append(c.errs, field.TooLong(at.Child("userAnnotations"), "", apivalidation.TotalAnnotationSizeLimitB))
	}
	if !slices.Contains(keyTypes, p.KeyType) {
		c.errs = append(c.errs, field.NotSupported(at.Child("keyType"), p.KeyType, keyTypes))
	}
	if p.MaxExpirationSeconds != nil {
		least, most := int32(3600), int32(91*24*3600)
		if host, _, _ := strings.Cut(p.SignerName, "/"); host == "kubernetes.io" ||
			strings.HasSuffix(host, ".kubernetes.io") {
			most = 24 * 3600
		}
		switch s := *p.MaxExpirationSeconds; {
		case s < least:
			c.errs = append(c.errs, field.Invalid(at.Child("maxExpirationSeconds"), s,
				fmt.Sprintf("if provided, maxExpirationSeconds must be >= %d", least)))
		case s > most:
			c.errs = append(c.errs, field.Invalid(at.Child("maxExpirationSeconds"), s,
				fmt.Sprintf("if provided, maxExpirationSeconds must be <= %d", most)))
		}
	}
	if p.CredentialBundlePath+p.KeyPath+p.CertificateChainPath == "" {
		c.errs = append(c.errs,
			field.Required(at, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"))
	}
	for _, file := range []struct{ name, path string }{
		{"credentialBundlePath", p.CredentialBundlePath},
		{"keyPath", p.KeyPath},
		{"certificateChainPath", p.CertificateChainPath},
	} {
		if file.path != "" {
			c.errs = append(c.errs, validateRelative(file.path, at.Child(file.name))...)
			c.takes(file.path)
		}
	}
}

// validateSigner checks the name of a signer: a domain of two labels or more,
// and a path below it.
func validateSigner(name string, at *field.Path) (errs field.ErrorList) {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	parts := strings.Split(name, "/")
	if len(parts) != 2 {
		return field.ErrorList{field.Invalid(at, name,
			"must be a fully qualified domain and path of the form 'example.com/signer-name'")}
	}
	domain, path := parts[0], parts[1]
	if len(domain) > 253 {
		errs = append(errs, field.TooLong(at, domain, 253))
	}
	if !strings.Contains(domain, ".") {
		errs = append(errs,
			field.Invalid(at, domain, "should be a domain with at least two segments separated by dots"))
	}
	for label := range strings.SplitSeq(domain, ".") {
		if why := validation.IsDNS1123Label(label); len(why) > 0 {
			errs = append(errs,
				field.Invalid(at, domain, fmt.Sprintf("validating label %q: %s", label, strings.Join(why, "; "))))
		}
	}
	for label := range strings.SplitSeq(path, ".") {
		if why := validation.IsDNS1123Subdomain(label); len(why) > 0 {
			errs = append(errs,
				field.Invalid(at, path, fmt.Sprintf("validating label %q: %s", label, strings.Join(why, "; "))))
		}
	}
	if most := 571; len(name) > most {
		errs = append(errs, field.TooLong(at, name, most))
	}
	return errs
}
