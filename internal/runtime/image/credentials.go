package image

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	v1beta1 "k8s.io/kubelet/config/v1beta1"

	"keelson/internal/pods/pod"
)

// Credential is a credential for a registry, with its origin: a pull secret, a service account for
// which a plugin returned it, or, with neither, the node, whose credentials all pods may use.
type Credential struct {
	Auth    *runtimeapi.AuthConfig
	Secret  *v1beta1.ImagePullSecret
	Account *v1beta1.ImagePullServiceAccount
}

// Hash identifies a credential without revealing it.
func Hash(auth *runtimeapi.AuthConfig) string {
	b, err := json.Marshal(struct {
		Username string `json:"username,omitempty"`
		Password string `json:"password,omitempty"`
	}{auth.GetUsername(), auth.GetPassword()})
	if err != nil {
		panic(fmt.Sprintf("image: encode two strings: %v", err))
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Source returns credentials other than those in the pod's pull secrets: of the node, or of a
// credential plugin.
type Source interface {
	// Credentials returns the credentials for the repository, best match first. An error is logged
	// and the next source is tried: the pull may succeed without.
	Credentials(ctx context.Context, p *v1.Pod, repository string) ([]Credential, error)
}

// credentials collects the credentials for the image, those of pull secrets first.
func (m *Manager) credentials(ctx context.Context, req Request) ([]Credential, error) {
	repo, err := repository(req.Image)
	if err != nil {
		return nil, err
	}
	var ring Keyring
	for _, s := range append(slices.Clone(req.PullSecrets), m.pullSecrets(ctx, req)...) {
		if err := ring.addSecret(&s); err != nil {
			return nil, err
		}
	}
	for _, err := range ring.unusable {
		m.cfg.Log.Warn("some credentials for an image are unusable", "pod", req.Pod.Namespace+"/"+req.Pod.Name,
			"podUID",
			req.Pod.UID, "image", req.Image, "err", err)
	}
	creds := ring.Lookup(repo)
	for _, src := range m.cfg.Sources {
		more, err := src.Credentials(ctx, req.Pod, repo)
		if err != nil {
			m.cfg.Log.Warn("failed to read credentials for an image", "pod", req.Pod.Namespace+"/"+req.Pod.Name,
				"podUID",
				req.Pod.UID, "image", req.Image, "err", err)
		}
		creds = append(creds, more...)
	}
	return creds, nil
}

// pullSecrets returns the pod's pull secrets. Missing ones are skipped.
func (m *Manager) pullSecrets(ctx context.Context, req Request) []v1.Secret {
	var out []v1.Secret
	var missing []string
	for _, ref := range req.Pod.Spec.ImagePullSecrets {
		if ref.Name == "" ||
			slices.ContainsFunc(req.PullSecrets, func(s v1.Secret) bool { return s.Name == ref.Name }) {
			continue
		}
		if m.cfg.Secrets == nil {
			missing = append(missing, ref.Name)
			continue
		}
		s, err := m.cfg.Secrets.Secret(ctx, req.Pod.Namespace, ref.Name)
		if err != nil {
			m.cfg.Log.Debug("failed to read image pull secret", "pod", req.Pod.Namespace+"/"+req.Pod.Name,
				"podUID", req.Pod.UID,
				"secret", ref.Name, "err", err)
			missing = append(missing, ref.Name)
			continue
		}
		out = append(out, *s)
	}
	if len(missing) > 0 && ctx.Err() == nil {
		m.cfg.Events.Pod(req.Pod, "", v1.EventTypeWarning, pod.EventFailedPullSecret,
			fmt.Sprintf(
				"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.",
				strings.Join(missing, ", ")))
	}
	return out
}

// Keyring looks up credentials by repository. The zero value is empty.
type Keyring struct {
	entries  []ringEntry
	unusable []error // why entries were skipped
}

type ringEntry struct {
	host string // labels may be globs
	path string
	cred Credential
}

// defaultRegistry is the key of Docker Hub's credentials in Docker's configuration.
const defaultRegistry = "index.docker.io"

// add adds a credential under its location: a registry, or a path prefix in one. Scheme and API
// version are ignored.
func (k *Keyring) add(location string, cred Credential) error {
	if !strings.HasPrefix(location, "http://") && !strings.HasPrefix(location, "https://") {
		location = "https://" + location
	}
	u, err := url.Parse(location)
	if err != nil {
		return fmt.Errorf("location of a registry %q: %w", location, err)
	}
	p := u.Path
	for _, version := range []string{"/v1/", "/v2/"} {
		if rest, ok := strings.CutPrefix(p, version); ok {
			p = "/" + rest
			break
		}
	}
	if p == "/" {
		p = ""
	}
	k.entries = append(k.entries, ringEntry{host: u.Host, path: p, cred: cred})
	// The most specific first; equal ones in the order of insertion.
	slices.SortStableFunc(k.entries, func(a, b ringEntry) int {
		return cmp.Compare(len(b.host)+len(b.path), len(a.host)+len(a.path))
	})
	return nil
}

// Lookup returns the credentials that match a repository, the most specific first. Those of Docker
// Hub are used only if no other matches.
func (k *Keyring) Lookup(repository string) []Credential {
	host, p, _ := strings.Cut(repository, "/")
	var out []Credential
	for _, e := range k.entries {
		if matches(e, host, "/"+p) {
			out = append(out, e.cred)
		}
	}
	if len(out) > 0 || host != "docker.io" && host != defaultRegistry {
		return out
	}
	for _, e := range k.entries {
		if e.host == defaultRegistry && e.path == "" {
			out = append(out, e.cred)
		}
	}
	return out
}

// Match reports whether a pattern for registries or path prefixes, as in plugin configurations,
// matches a repository.
func Match(pattern, repository string) bool {
	var k Keyring
	return k.add(pattern, Credential{}) == nil && len(k.Lookup(repository)) > 0
}

// matches compares host names by label, so that *.example.com does not match a.b.example.com. Ports
// must be equal, and the path must be a prefix.
func matches(e ringEntry, host, p string) bool {
	glob, globPort, _ := strings.Cut(e.host, ":")
	name, port, _ := strings.Cut(host, ":")
	globs, labels := strings.Split(glob, "."), strings.Split(name, ".")
	if globPort != port || len(globs) != len(labels) || !strings.HasPrefix(p, e.path) {
		return false
	}
	for i := range globs {
		if ok, err := path.Match(globs[i], labels[i]); err != nil || !ok {
			return false
		}
	}
	return true
}
