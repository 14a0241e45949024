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

// Credential is what may open a repository, and whose it is: that of a pull
// secret, that of a service account for which a plugin gave it, or with neither
// that of the node, which is for everybody.
type Credential struct {
	Auth    *runtimeapi.AuthConfig
	Secret  *v1beta1.ImagePullSecret
	Account *v1beta1.ImagePullServiceAccount
}

// Hash tells credentials apart without giving them away.
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

// Source gives credentials that are not in the pod's pull secrets: those of the
// node, those of a plugin.
type Source interface {
	// Credentials returns what may open the repository for the pod, best first.
	// An error is logged and the next source asked: a pull may do without.
	Credentials(ctx context.Context, p *v1.Pod, repository string) ([]Credential, error)
}

// credentials collects what may open the image, the pod's own secrets first.
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
		m.cfg.Log.Warn("credentials for an image are left out", "pod", pod.RefOf(req.Pod), "image", req.Image, "err", err)
	}
	creds := ring.Lookup(repo)
	for _, src := range m.cfg.Sources {
		more, err := src.Credentials(ctx, req.Pod, repo)
		if err != nil {
			m.cfg.Log.Warn("cannot read credentials for an image", "pod", pod.RefOf(req.Pod), "image", req.Image, "err", err)
		}
		creds = append(creds, more...)
	}
	return creds, nil
}

// pullSecrets reads the secrets that the pod names. The pull is tried without
// those that are missing.
func (m *Manager) pullSecrets(ctx context.Context, req Request) []v1.Secret {
	var out []v1.Secret
	var missing []string
	for _, ref := range req.Pod.Spec.ImagePullSecrets {
		if ref.Name == "" || slices.ContainsFunc(req.PullSecrets, func(s v1.Secret) bool { return s.Name == ref.Name }) {
			continue
		}
		if m.cfg.Secrets == nil {
			missing = append(missing, ref.Name)
			continue
		}
		s, err := m.cfg.Secrets.Secret(ctx, req.Pod.Namespace, ref.Name)
		if err != nil {
			m.cfg.Log.Debug("cannot read image pull secret", "pod", pod.RefOf(req.Pod), "secret", ref.Name, "err", err)
			missing = append(missing, ref.Name)
			continue
		}
		out = append(out, *s)
	}
	if len(missing) > 0 && ctx.Err() == nil {
		m.cfg.Events.Pod(req.Pod, "", v1.EventTypeWarning, pod.EventFailedPullSecret,
			fmt.Sprintf("Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(missing, ", ")))
	}
	return out
}

// Keyring finds credentials by the repository they are for. The zero value is
// empty.
type Keyring struct {
	entries  []ringEntry
	unusable []error // why others were left out
}

type ringEntry struct {
	host string // labels may be globs
	path string
	cred Credential
}

// defaultRegistry is the name under which Docker keeps credentials for images
// that name no registry.
const defaultRegistry = "index.docker.io"

// add puts a credential under its location: a registry, or a part of one. A
// scheme is ignored, and so is the version of the registry's interface.
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
	// The most specific first; of equals, the one that was added first.
	slices.SortStableFunc(k.entries, func(a, b ringEntry) int {
		return cmp.Compare(len(b.host)+len(b.path), len(a.host)+len(a.path))
	})
	return nil
}

// Lookup returns what matches a repository, the most specific first. Credentials
// for Docker's registry are only used when nothing else matches.
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

// Match reports whether a pattern, as plugins and their configuration name
// registries and parts of them, covers a repository.
func Match(pattern, repository string) bool {
	var k Keyring
	return k.add(pattern, Credential{}) == nil && len(k.Lookup(repository)) > 0
}

// matches compares label by label, so that *.example.com is not a.b.example.com;
// ports must be the same and the path a prefix.
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
