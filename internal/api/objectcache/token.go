package objectcache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"keelson/internal/host/clock"
)

const (
	// maxTokenAge is the age at which a token is renewed even if its lifetime is longer.
	maxTokenAge = 24 * time.Hour
	// maxTokenJitter spreads renewals of tokens that were created at the same time.
	maxTokenJitter = 10 * time.Second
	// tokenRetry is the pause after a failed renewal while the old token is valid.
	tokenRetry = time.Minute
)

// refusals is the back-off after Forbidden: about a second in total.
var refusals = wait.Backoff{
	Duration: 10 * time.Millisecond,
	Factor:   2,
	Steps:    7,
}

// TokensConfig holds the configuration of Tokens. All fields but Client are required.
type TokensConfig struct {
	// Client is for the core/v1 group. Nil: there is no API server.
	Client rest.Interface
	Now    func() time.Time
	Log    *slog.Logger
}

// Tokens requests service account tokens for pods and caches them until they are due for renewal. A token is bound to
// one pod.
type Tokens struct {
	cfg TokensConfig

	mu   sync.Mutex
	pods map[types.UID]map[string]*token // by audience and lifetime
}

type token struct {
	value   string
	renewAt time.Time
	expires time.Time
}

// NewTokens returns an empty cache.
func NewTokens(cfg TokensConfig) *Tokens {
	return &Tokens{cfg: cfg, pods: map[types.UID]map[string]*token{}}
}

// Token returns a token of p's service account that is bound to p, and when to call it again. Without audiences the
// token is for the API server. seconds is the requested lifetime, nil the server's default. If a renewal fails the old
// token is returned while it is valid.
func (t *Tokens) Token(
	ctx context.Context, p *v1.Pod, audiences []string, seconds *int64,
) (value string, renewAt time.Time, err error) {
	got, err := t.token(ctx, p, audiences, seconds)
	return got.value, got.renewAt, err
}

// Expiring is Token for callers that need the expiry of the token.
func (t *Tokens) Expiring(
	ctx context.Context, p *v1.Pod, audiences []string, seconds *int64,
) (value string, expires time.Time, err error) {
	got, err := t.token(ctx, p, audiences, seconds)
	return got.value, got.expires, err
}

func (t *Tokens) token(ctx context.Context, p *v1.Pod, audiences []string, seconds *int64) (token, error) {
	key := tokenKey(p, audiences, seconds)
	t.mu.Lock()
	have := t.pods[p.UID][key]
	t.mu.Unlock()
	now := t.cfg.Now()
	if have != nil && now.Before(have.renewAt) {
		return *have, nil
	}
	got, err := t.request(ctx, p, audiences, seconds)
	if err != nil {
		if have != nil && now.Before(have.expires) {
			t.cfg.Log.Warn("failed to renew token",
				"pod", p.Namespace+"/"+p.Name, "podUID", p.UID, "expires", have.expires, "err", err)
			return token{have.value, now.Add(min(tokenRetry, have.expires.Sub(now))), have.expires}, nil
		}
		if have != nil {
			return token{}, fmt.Errorf("token %s expired and refresh failed: %w", shownKey(p, audiences, seconds), err)
		}
		return token{}, fmt.Errorf("failed to fetch token: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pods[p.UID] == nil {
		t.pods[p.UID] = map[string]*token{}
	}
	t.pods[p.UID][key] = got
	return *got, nil
}

// Forget drops the tokens of a pod.
func (t *Tokens) Forget(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pods, uid)
}

// tokenKey returns the cache key. It includes the service account, because the UID of a static pod may be used again
// with another spec.
func tokenKey(p *v1.Pod, audiences []string, seconds *int64) string {
	life := int64(0)
	if seconds != nil {
		life = *seconds
	}
	parts := append([]string{p.Spec.ServiceAccountName, fmt.Sprint(life)}, slices.Sorted(slices.Values(audiences))...)
	return strings.Join(parts, "\x00")
}

func boundTo(p *v1.Pod) *authv1.BoundObjectReference {
	return &authv1.BoundObjectReference{
		APIVersion: "v1",
		Kind:       "Pod",
		Name:       p.Name,
		UID:        p.UID,
	}
}

// shownKey returns the key in messages, as upstream: in Go syntax.
func shownKey(p *v1.Pod, audiences []string, seconds *int64) string {
	life := int64(0)
	if seconds != nil {
		life = *seconds
	}
	const account = "" // the UID of the ServiceAccount, which is not part of the agent's request
	return fmt.Sprintf("%q/%q/%#v/%#v/%#v/%q",
		p.Spec.ServiceAccountName, p.Namespace, audiences, life, *boundTo(p), account)
}

// request requests a token.
func (t *Tokens) request(ctx context.Context, p *v1.Pod, audiences []string, seconds *int64) (*token, error) {
	return retryForbidden(ctx, func() (*token, error) { return t.ask(ctx, p, audiences, seconds) })
}

// retryForbidden sends a request on behalf of a pod. Right after the pod was bound to this node, the node authorizer
// and the admission plugin NodeRestriction of the API server may not have seen the binding yet. The request is then
// answered with Forbidden, or with NotFound for the pod. Such a request is retried for a short time.
func retryForbidden[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	for backoff := refusals; ; {
		got, err := ask()
		if !apierrors.IsForbidden(err) && !lacksPod(err) || backoff.Steps == 0 {
			return got, err
		}
		if !clock.Sleep(ctx, backoff.Step()) {
			return got, err
		}
	}
}

// lacksPod reports whether the server answered that the pod was not found. The admission plugin NodeRestriction names
// the resource in the singular.
func lacksPod(err error) bool {
	var answer apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &answer) {
		return false
	}
	details := answer.Status().Details
	return details != nil && (details.Kind == "pod" || details.Kind == "pods")
}

// ask makes one request. The body is encoded as JSON here, because the client's codec is for another API group.
func (t *Tokens) ask(ctx context.Context, p *v1.Pod, audiences []string, seconds *int64) (*token, error) {
	if t.cfg.Client == nil {
		return nil, errStandalone
	}
	body, err := json.Marshal(&authv1.TokenRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"},
		Spec: authv1.TokenRequestSpec{
			Audiences:         audiences,
			ExpirationSeconds: seconds,
			BoundObjectRef:    boundTo(p),
		},
	})
	if err != nil {
		return nil, err
	}
	account := p.Spec.ServiceAccountName
	res := t.cfg.Client.Post().
		Namespace(p.Namespace).Resource("serviceaccounts").Name(account).SubResource("token").
		SetHeader("Content-Type", "application/json").
		SetHeader("Accept", "application/json").
		Body(body).Do(ctx)
	if err := res.Error(); err != nil { // Raw would lose the message of the server
		return nil, err
	}
	raw, err := res.Raw()
	if err != nil {
		return nil, err
	}
	var got authv1.TokenRequest
	if err := json.Unmarshal(raw, &got); err != nil {
		return nil, fmt.Errorf("parse token of service account %s/%s: %w", p.Namespace, account, err)
	}
	if got.Status.Token == "" {
		return nil, fmt.Errorf("server sent an empty token for service account %s/%s", p.Namespace, account)
	}
	life := time.Hour
	if got.Spec.ExpirationSeconds != nil {
		life = time.Duration(*got.Spec.ExpirationSeconds) * time.Second
	}
	return &token{
		value:   got.Status.Token,
		expires: got.Status.ExpirationTimestamp.Time,
		renewAt: renewAt(got.Status.ExpirationTimestamp.Time, life, rand.N(maxTokenJitter)),
	}, nil
}

// renewAt returns when a token with this lifetime is renewed: after 80% of it, but at most a day, minus the jitter.
func renewAt(expires time.Time, life, jitter time.Duration) time.Time {
	return expires.Add(-life).Add(min(life*4/5, maxTokenAge) - jitter)
}
