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

// tokens gets tokens of service accounts that are bound to a pod.
type tokens interface {
	Token(ctx context.Context, p *v1.Pod, audiences []string, seconds *int64) (value string, renewAt time.Time, err error)
}

// Config holds what Plugins are built from. Fields are required unless their
// comment says otherwise.
type Config struct {
	Path   string // of the configuration, a file or a directory
	BinDir string // where the plugins are
	// Tokens and Account serve plugins that act for a pod's service account; nil
	// without an API server.
	Tokens  tokens
	Account func(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error)
	// AllowTokens lets the configuration ask for them (gate
	// KubeletServiceAccountTokenForCredentialProviders).
	AllowTokens bool
	Registry    prometheus.Registerer // nil: nothing is counted
	Log         *slog.Logger
	Now         func() time.Time
}

// Plugins are all plugins of a node. It is an [image.Source].
type Plugins struct {
	cfg     Config
	plugins []*plugin
	metrics metrics
}

// plugin is one program.
type plugin struct {
	cfg     kubeletv1.CredentialProvider
	program string
	timeout time.Duration // of one run
	flights singleflight.Group

	mu    sync.Mutex
	cache map[string]answer
}

// answer is what a plugin said, by the patterns of what it is for.
type answer struct {
	auth    map[string]credentialv1.AuthConfig
	expires time.Time
}

// New reads the configuration; an error is one of the configuration.
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

// Credentials implements [image.Source]. A plugin that fails is left out, and
// said in the error.
func (ps *Plugins) Credentials(ctx context.Context, p *v1.Pod, repository string) ([]image.Credential, error) {
	var out []image.Credential
	var errs []error
	for _, pl := range ps.plugins {
		if !slices.ContainsFunc(pl.cfg.MatchImages, func(pattern string) bool { return image.Match(pattern, repository) }) {
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

// ask gets the credentials of one plugin, from memory if it said so before.
func (ps *Plugins) ask(ctx context.Context, pl *plugin, p *v1.Pod, repository string) ([]image.Credential, error) {
	who, skip, err := ps.identify(ctx, pl, p)
	if skip || err != nil {
		return nil, err
	}
	a, ok := pl.remembered(who.key, repository, ps.cfg.Now())
	if !ok {
		if a, err = ps.fly(ctx, pl, who, repository); err != nil {
			return nil, err
		}
	}
	var out []image.Credential
	// Longer patterns and those without stars come last in the order of text.
	for _, pattern := range slices.Backward(slices.Sorted(maps.Keys(a.auth))) {
		if image.Match(pattern, repository) {
			c := a.auth[pattern]
			out = append(out, image.Credential{Auth: &runtimeapi.AuthConfig{Username: c.Username, Password: c.Password}, Account: who.account})
		}
	}
	return out, nil
}

// fly runs the plugin, or waits for a run that was begun for the same reason.
// The run is not any one's to end.
func (ps *Plugins) fly(ctx context.Context, pl *plugin, who identity, repository string) (answer, error) {
	got := pl.flights.DoChan(who.key+"\x00"+repository, func() (any, error) {
		begin := ps.cfg.Now()
		resp, err := pl.run(context.WithoutCancel(ctx), credentialv1.CredentialProviderRequest{
			Image: repository, ServiceAccountToken: who.token, ServiceAccountAnnotations: who.annotations})
		ps.metrics.ran(pl.cfg.Name, ps.cfg.Now().Sub(begin), err)
		if err == nil && pl.echoes(who.token, resp) {
			err = fmt.Errorf("run credential provider %s for image %s: %w", pl.cfg.Name, repository, errEchoed)
		}
		if err != nil {
			return answer{}, err
		}
		return pl.remember(who.key, repository, resp, ps.cfg.Now()), nil
	})
	select {
	case <-ctx.Done():
		return answer{}, fmt.Errorf("run credential provider %s for image %s: %w", pl.cfg.Name, repository, ctx.Err())
	case r := <-got:
		return r.Val.(answer), r.Err
	}
}

// errEchoed is an answer that would be kept longer than the token in it is good for, and for other pods of the
// account than the one that the token is bound to.
var errEchoed = errors.New("credential provider plugin returned the service account token as the password " +
	"which is not allowed when service account cache type is not set to 'Token'")

// echoes reports whether a plugin gives back the token that it was given, though its answers are kept by account.
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

// remembered looks for an answer that is still good.
func (p *plugin) remembered(who, repository string, now time.Time) (answer, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, scope := range scopes(repository) {
		if a, ok := p.cache[who+"\x00"+scope]; ok && now.Before(a.expires) {
			return a, true
		}
	}
	return answer{}, false
}

// remember keeps an answer for as long as it is good, and drops those that are
// not any more.
func (p *plugin) remember(who, repository string, resp credentialv1.CredentialProviderResponse, now time.Time) answer {
	keep := cmp.Or(resp.CacheDuration, p.cfg.DefaultCacheDuration).Duration
	a := answer{auth: resp.Auth, expires: now.Add(keep)}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.cache, func(_ string, old answer) bool { return !now.Before(old.expires) })
	if keep > 0 {
		all := scopes(repository)
		scope := map[credentialv1.PluginCacheKeyType]string{credentialv1.ImagePluginCacheKeyType: all[0],
			credentialv1.RegistryPluginCacheKeyType: all[1], credentialv1.GlobalPluginCacheKeyType: all[2]}[resp.CacheKeyType]
		p.cache[who+"\x00"+scope] = a
	}
	return a
}

// scopes are what an answer may be kept for, the narrowest first: the image, the
// registry, everything.
func scopes(repository string) [3]string {
	registry, _, _ := strings.Cut(repository, "/")
	return [3]string{"image " + repository, "registry " + registry, "global"}
}

// identity is on whose behalf a plugin is asked.
type identity struct {
	key         string // tells identities apart in memory; empty for the node's
	token       string
	annotations map[string]string
	account     *v1beta1.ImagePullServiceAccount // nil: the node
}

// identify finds out on whose behalf to ask. skip is true where the plugin has
// nothing to say to the pod.
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
			return identity{}, true, fmt.Errorf("ask credential provider %s: service account %s/%s has no annotation %s", pl.cfg.Name, sa.Namespace, sa.Name, k)
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
