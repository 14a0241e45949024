package object

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
	"k8s.io/client-go/rest"
)

const (
	// maxTokenAge is when a token is renewed even if it would live longer.
	maxTokenAge = 24 * time.Hour
	// maxTokenJitter spreads renewals of tokens that were made together.
	maxTokenJitter = 10 * time.Second
	// tokenRetry is how soon a renewal that failed is tried again while the old
	// token is still good.
	tokenRetry = time.Minute
	// Pauses between requests that are refused, doubling: about a second in all.
	firstRefusalPause = 10 * time.Millisecond
	lastRefusalPause  = 640 * time.Millisecond
)

// TokensConfig holds what Tokens is built from. Every field but Client is
// required.
type TokensConfig struct {
	// Client speaks to the core/v1 group; nil on a node without API server.
	Client rest.Interface
	Now    func() time.Time
	Log    *slog.Logger
}

// Tokens gets service account tokens for pods and keeps them until they should
// be renewed. A token serves one pod.
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

// NewTokens builds an empty Tokens.
func NewTokens(cfg TokensConfig) *Tokens {
	return &Tokens{cfg: cfg, pods: map[types.UID]map[string]*token{}}
}

// Token is a token of p's service account that is bound to p, and when to ask
// for the next one. No audience means that of the API server; seconds are the
// wanted lifetime, nil the server's default. When a renewal fails the old token
// is served for as long as it is good.
func (t *Tokens) Token(ctx context.Context, p *v1.Pod, audiences []string, seconds *int64) (value string, renewAt time.Time, err error) {
	got, err := t.token(ctx, p, audiences, seconds)
	return got.value, got.renewAt, err
}

// Expiring is Token for those who pass on when the token expires.
func (t *Tokens) Expiring(ctx context.Context, p *v1.Pod, audiences []string, seconds *int64) (value string, expires time.Time, err error) {
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
			t.cfg.Log.Warn("cannot renew token", "pod", p.Namespace+"/"+p.Name, "uid", p.UID, "expires", have.expires, "err", err)
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

// Forget drops the tokens of a pod that is gone.
func (t *Tokens) Forget(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pods, uid)
}

// The service account belongs to the key for the sake of static pods, whose UID
// may come back with another specification.
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

// shownKey names a token to users, as upstream does: in the syntax of Go.
func shownKey(p *v1.Pod, audiences []string, seconds *int64) string {
	life := int64(0)
	if seconds != nil {
		life = *seconds
	}
	const account = "" // the UID of the ServiceAccount, which is not part of the agent's request
	return fmt.Sprintf("%q/%q/%#v/%#v/%#v/%q",
		p.Spec.ServiceAccountName, p.Namespace, audiences, life, *boundTo(p), account)
}

// request asks for a token.
func (t *Tokens) request(ctx context.Context, p *v1.Pod, audiences []string, seconds *int64) (*token, error) {
	return patiently(ctx, func() (*token, error) { return t.ask(ctx, p, audiences, seconds) })
}

// patiently sends a request on behalf of a pod. Right after the pod was bound to this
// node the API server's node authorizer may not know the binding yet, so the request is
// answered with Forbidden or with NotFound for the pod. Such a request is retried for a
// short time.
func patiently[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	for pause := firstRefusalPause; ; pause *= 2 {
		got, err := ask()
		if !apierrors.IsForbidden(err) && !lacksPod(err) || pause > lastRefusalPause {
			return got, err
		}
		select {
		case <-ctx.Done():
			return got, err
		case <-time.After(pause):
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

// ask makes one request. The body is JSON by hand because the client's codec is
// that of another API group.
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
	if err := res.Error(); err != nil { // Raw alone would lose the server's words
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

// renewAt is when a token of the given life has lived for four fifths of it, or
// a day, less the jitter.
func renewAt(expires time.Time, life, jitter time.Duration) time.Time {
	return expires.Add(-life).Add(min(life*4/5, maxTokenAge) - jitter)
}
