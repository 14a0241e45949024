package record

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	v1beta1 "k8s.io/kubelet/config/v1beta1"

	"keelson/internal/runtime/image"
)

// Policy determines for which images pods must have the credentials.
type Policy struct {
	Verify v1beta1.ImagePullCredentialsVerificationPolicy
	// Allowed are names or name prefixes (up to a slash and a star) of images that need no
	// verification if the agent did not pull them.
	Allowed []string
}

// needed reports whether access to an image, which has all of the given names, must be verified.
// ours is set if the agent pulled it.
func (p Policy) needed(names []string, ours bool) bool {
	switch p.Verify {
	case v1beta1.NeverVerify:
		return false
	case v1beta1.NeverVerifyPreloadedImages:
		return ours
	case v1beta1.NeverVerifyAllowlistedImages:
		return ours || !slices.ContainsFunc(p.Allowed, func(a string) bool {
			prefix, open := strings.CutSuffix(a, "*")
			return slices.ContainsFunc(names,
				func(n string) bool { return n == a || open && strings.HasPrefix(n, prefix) })
		})
	}
	return true
}

// repository returns an image name without tag and digest, as written and normalized.
func repository(name string) (repo, full string, err error) {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return "", "", fmt.Errorf("read image name %q: %w", name, err)
	}
	name, _, _ = strings.Cut(name, "@")
	if i := strings.LastIndex(name, ":"); i > strings.LastIndex(name, "/") {
		name = name[:i]
	}
	return name, named.Name(), nil
}

// isCalled reports whether name, as written by a pod, refers to this image.
func isCalled(img *runtimeapi.Image, name string) bool {
	full, err := reference.ParseDockerRef(name)
	return err == nil && slices.Contains(slices.Concat(img.GetRepoTags(), img.GetRepoDigests()), full.String())
}

// isReferredTo reports whether ref, as returned by a pull, refers to this image.
func isReferredTo(img *runtimeapi.Image, ref string) bool {
	return ref == img.GetId() || slices.Contains(img.GetRepoDigests(), ref)
}

// match returns a credential with which the image was pulled before: of the same secret, even if
// its content has changed since; of the same content in another secret; or of the same service
// account.
func match(known v1beta1.ImagePullCredentials, held []image.Credential) (image.Credential, bool) {
	for _, h := range held {
		if a := h.Account; a != nil && slices.Contains(known.KubernetesServiceAccounts, *a) {
			return h, true
		}
		if s := h.Secret; s != nil &&
			slices.ContainsFunc(known.KubernetesSecrets, func(k v1beta1.ImagePullSecret) bool {
				return sameSecret(k, *s) || k.CredentialHash != "" && k.CredentialHash == s.CredentialHash
			}) {
			return h, true
		}
	}
	return image.Credential{}, false
}

func sameSecret(a, b v1beta1.ImagePullSecret) bool {
	return a.UID == b.UID && a.Namespace == b.Namespace && a.Name == b.Name
}

// with adds a credential to those of a record. A credential of the node supersedes all others.
func with(known v1beta1.ImagePullCredentials, c image.Credential) v1beta1.ImagePullCredentials {
	switch {
	case known.NodePodsAccessible || c.Secret == nil && c.Account == nil:
		return v1beta1.ImagePullCredentials{NodePodsAccessible: true}
	case c.Account != nil:
		if !slices.Contains(known.KubernetesServiceAccounts, *c.Account) {
			known.KubernetesServiceAccounts = append(slices.Clone(known.KubernetesServiceAccounts), *c.Account)
			slices.SortFunc(known.KubernetesServiceAccounts, func(a, b v1beta1.ImagePullServiceAccount) int {
				return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
					cmp.Compare(a.UID, b.UID))
			})
		}
	default:
		rest := slices.DeleteFunc(slices.Clone(known.KubernetesSecrets),
			func(k v1beta1.ImagePullSecret) bool { return sameSecret(k, *c.Secret) })
		known.KubernetesSecrets = append(rest, *c.Secret)
		slices.SortFunc(known.KubernetesSecrets, func(a, b v1beta1.ImagePullSecret) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
		})
	}
	return known
}
