package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletv1 "k8s.io/kubelet/config/v1"
	v1beta1 "k8s.io/kubelet/config/v1beta1"
	credentialv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"keelson/internal/runtime/image"
)

// tokens returns service account tokens bound to a pod.
type tokens interface {
	Token(ctx context.Context, p *v1.Pod, audiences []string, seconds *int64) (value string, renewAt time.Time, err error)
}

// Config holds what Plugins are built from. Fields are required unless their comment says otherwise.
type Config struct {
	Path   string // of the configuration, a file or a directory
	BinDir string // directory of the plugins
	// Tokens and Account are for plugins that use the pod's service account; nil without an API
	// server.
	Tokens  tokens
	Account func(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error)
	// AllowTokens permits tokenAttributes in the configuration (gate
	// KubeletServiceAccountTokenForCredentialProviders).
	AllowTokens bool
	Registry    prometheus.Registerer // nil: metrics are not registered
	Log         *slog.Logger
	Now         func() time.Time
}

// Plugins are the credential provider plugins of a node. They implement [image.Source].
type Plugins struct {
	cfg     Config
	plugins []*plugin
	metrics metrics
}

// plugin is one credential provider plugin.
type plugin struct {
	cfg     kubeletv1.CredentialProvider
	program string
	timeout time.Duration // of one run
	flights singleflight.Group

	mu    sync.Mutex
	cache map[string]answer
}

// answer is a plugin's response: credentials by image pattern.
type answer struct {
	auth    map[string]credentialv1.AuthConfig
	expires time.Time
}

// New reads the configuration. It fails only if that is invalid.
func New(cfg Config) (*Plugins, error) {
	list, err := read(cfg.Path, cfg.AllowTokens)
	if err != nil {
		return nil, err
	}
	ps := &Plugins{cfg: cfg}
	for _, c := range list {
		p := &plugin{cfg: c, timeout: time.Minute, cache: map[string]answer{}}
		if p.program, err = program(cfg.BinDir, c.Name); err != nil {
			return nil, err
		}
		ps.plugins = append(ps.plugins, p)
	}
	ps.metrics, err = newMetrics(cfg.Registry)
	return ps, err
}

// Credentials implements [image.Source]. Plugins that fail are skipped; the error contains their
// errors.
func (ps *Plugins) Credentials(ctx context.Context, p *v1.Pod, repository string) ([]image.Credential, error) {
	var out []image.Credential
	var errs []error
	for _, pl := range ps.plugins {
		if !slices.ContainsFunc(pl.cfg.MatchImages,
			func(pattern string) bool { return image.Match(pattern, repository) }) {
			continue
		}
		got, err := ps.ask(ctx, pl, p, repository)
		if err != nil {
			errs = append(errs, err)
		}
		out = append(out, got...)
	}
	return out, errors.Join(errs...)
}

// ask returns the credentials of one plugin, from the cache if possible.
func (ps *Plugins) ask(ctx context.Context, pl *plugin, p *v1.Pod, repository string) ([]image.Credential, error) {
	who, skip, err := ps.identify(ctx, pl, p)
	if skip || err != nil {
		return nil, err
	}
	a, ok := pl.cachedResponse(who.key, repository, ps.cfg.Now())
	if !ok {
		if a, err = ps.runShared(ctx, pl, who, repository); err != nil {
			return nil, err
		}
	}
	var out []image.Credential
	// Reverse order puts longer patterns first, and those without wildcards.
	for _, pattern := range slices.Backward(slices.Sorted(maps.Keys(a.auth))) {
		if image.Match(pattern, repository) {
			c := a.auth[pattern]
			out = append(out, image.Credential{
				Auth:    &runtimeapi.AuthConfig{Username: c.Username, Password: c.Password},
				Account: who.account,
			})
		}
	}
	return out, nil
}

// runShared runs the plugin, or waits for a run with the same cache key. Waiters cannot cancel the run.
func (ps *Plugins) runShared(ctx context.Context, pl *plugin, who identity, repository string) (answer, error) {
	got := pl.flights.DoChan(who.key+"\x00"+repository, func() (any, error) {
		begin := ps.cfg.Now()
		resp, err := pl.run(context.WithoutCancel(ctx), credentialv1.CredentialProviderRequest{
			Image:                     repository,
			ServiceAccountToken:       who.token,
			ServiceAccountAnnotations: who.annotations,
		})
		ps.metrics.ran(pl.cfg.Name, ps.cfg.Now().Sub(begin), err)
		if err == nil && pl.echoes(who.token, resp) {
			err = fmt.Errorf("run credential provider %s for image %s: %w", pl.cfg.Name, repository, errEchoed)
		}
		if err != nil {
			return answer{}, err
		}
		return pl.cacheResponse(who.key, repository, resp, ps.cfg.Now()), nil
	})
	select {
	case <-ctx.Done():
		return answer{}, fmt.Errorf("run credential provider %s for image %s: %w", pl.cfg.Name, repository, ctx.Err())
	case r := <-got:
		return r.Val.(answer), r.Err
	}
}

// errEchoed rejects a response that would be cached longer than the token in it is valid, and for
// pods other than the one that the token is bound to.
var errEchoed = errors.New("credential provider plugin returned the service account token as the password " +
	"which is not allowed when service account cache type is not set to 'Token'")

// echoes reports whether a plugin whose responses are cached per service account returns the token
// as the password.
func (p *plugin) echoes(token string, resp credentialv1.CredentialProviderResponse) bool {
	if token == "" || p.cfg.TokenAttributes.CacheType == kubeletv1.TokenServiceAccountTokenCacheType {
		return false
	}
	for _, c := range resp.Auth {
		if c.Password == token {
			return true
		}
	}
	return false
}

// cachedResponse returns a cached response that is still valid.
func (p *plugin) cachedResponse(who, repository string, now time.Time) (answer, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, scope := range scopes(repository) {
		if a, ok := p.cache[who+"\x00"+scope]; ok && now.Before(a.expires) {
			return a, true
		}
	}
	return answer{}, false
}

// cacheResponse caches a response and drops expired ones.
func (p *plugin) cacheResponse(
	who, repository string, resp credentialv1.CredentialProviderResponse, now time.Time,
) answer {
	keep := cmp.Or(resp.CacheDuration, p.cfg.DefaultCacheDuration).Duration
	a := answer{auth: resp.Auth, expires: now.Add(keep)}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.cache, func(_ string, old answer) bool { return !now.Before(old.expires) })
	if keep > 0 {
		all := scopes(repository)
		scope := map[credentialv1.PluginCacheKeyType]string{credentialv1.ImagePluginCacheKeyType: all[0],
			credentialv1.RegistryPluginCacheKeyType: all[1],
			credentialv1.GlobalPluginCacheKeyType:   all[2]}[resp.CacheKeyType]
		p.cache[who+"\x00"+scope] = a
	}
	return a
}

// scopes returns the possible cache keys, the narrowest first: the image, the registry, global.
func scopes(repository string) [3]string {
	registry, _, _ := strings.Cut(repository, "/")
	return [3]string{"image " + repository, "registry " + registry, "global"}
}

// identity is the service account on whose behalf a plugin runs.
type identity struct {
	key         string // part of the cache key; empty for the node
	token       string
	annotations map[string]string
	account     *v1beta1.ImagePullServiceAccount // nil: the node
}

// identify returns the service account on whose behalf to run the plugin. skip is set if the plugin
// does not apply to the pod.
func (ps *Plugins) identify(ctx context.Context, pl *plugin, p *v1.Pod) (who identity, skip bool, err error) {
	t := pl.cfg.TokenAttributes
	if t == nil {
		return identity{}, false, nil
	}
	name := ""
	if p != nil {
		name = p.Spec.ServiceAccountName
	}
	if name == "" || ps.cfg.Account == nil || ps.cfg.Tokens == nil {
		return identity{}, *t.RequireServiceAccount, nil
	}
	sa, err := ps.cfg.Account(ctx, p.Namespace, name)
	if err != nil {
		return identity{}, true, fmt.Errorf("ask credential provider %s: read service account: %w", pl.cfg.Name, err)
	}
	who.annotations = map[string]string{}
	for _, k := range t.RequiredServiceAccountAnnotationKeys {
		v, ok := sa.Annotations[k]
		if !ok {
			return identity{}, true, fmt.Errorf(
				"ask credential provider %s: service account %s/%s has no annotation %s",
				pl.cfg.Name, sa.Namespace, sa.Name, k)
		}
		who.annotations[k] = v
	}
	for _, k := range t.OptionalServiceAccountAnnotationKeys {
		if v, ok := sa.Annotations[k]; ok {
			who.annotations[k] = v
		}
	}
	if who.token, _, err = ps.cfg.Tokens.Token(ctx, p, []string{t.ServiceAccountTokenAudience}, nil); err != nil {
		return identity{}, true, fmt.Errorf("ask credential provider %s: %w", pl.cfg.Name, err)
	}
	who.account = &v1beta1.ImagePullServiceAccount{UID: string(sa.UID), Namespace: sa.Namespace, Name: sa.Name}
	parts := []string{sa.Namespace, sa.Name, string(sa.UID)}
	for _, k := range slices.Sorted(maps.Keys(who.annotations)) {
		parts = append(parts, k+"="+who.annotations[k])
	}
	if t.CacheType == kubeletv1.TokenServiceAccountTokenCacheType {
		parts = append(parts, image.Hash(&runtimeapi.AuthConfig{Password: who.token}))
	}
	who.key = strings.Join(parts, "\x00")
	return who, false, nil
}
