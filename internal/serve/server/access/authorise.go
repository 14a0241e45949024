package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
)

// accessReviewer creates SubjectAccessReviews.
type accessReviewer interface {
	CreateSubjectAccessReview(context.Context, *authzv1.SubjectAccessReview) (*authzv1.SubjectAccessReview, error)
}

// AlwaysAllow authorizes all authenticated requests.
type AlwaysAllow struct{}

// Allowed returns true.
func (AlwaysAllow) Allowed(context.Context, *authnv1.UserInfo, string, string) (bool, error) {
	return true, nil
}

// AuthorizerConfig holds the configuration of an Authorizer.
type AuthorizerConfig struct {
	NodeName   string
	Reviews    accessReviewer
	AllowedTTL time.Duration
	DeniedTTL  time.Duration
	Registerer prometheus.Registerer
}

// Authorizer authorizes requests with the API server. It implements the server's interface.
type Authorizer struct {
	cfg     AuthorizerConfig
	cache   *reviewCache[bool]
	reviews calls
}

// NewAuthorizer returns an Authorizer.
func NewAuthorizer(cfg AuthorizerConfig) (*Authorizer, error) {
	if cfg.Reviews == nil {
		return nil, errors.New("authorization mode Webhook needs a client of the API server")
	}
	a := &Authorizer{
		cfg:     cfg,
		cache:   newReviewCache[bool](cfg.AllowedTTL, cfg.DeniedTTL),
		reviews: newCalls(metricAuthzRequests, metricAuthzDuration),
	}
	return a, register(cfg.Registerer, a.reviews.total, a.reviews.duration)
}

// Allowed reports whether user may do verb on a subresource of this node.
func (a *Authorizer) Allowed(ctx context.Context, user *authnv1.UserInfo, verb, subresource string) (bool, error) {
	spec := authzv1.SubjectAccessReviewSpec{
		User:   user.Username,
		UID:    user.UID,
		Groups: user.Groups,
		ResourceAttributes: &authzv1.ResourceAttributes{
			Verb:        verb,
			Version:     "v1",
			Resource:    "nodes",
			Subresource: subresource,
			Name:        a.cfg.NodeName,
		},
	}
	if user.Extra != nil {
		spec.Extra = make(map[string]authzv1.ExtraValue, len(user.Extra))
		for k, v := range user.Extra {
			spec.Extra[k] = authzv1.ExtraValue(v)
		}
	}
	question, err := json.Marshal(&spec) // maps are sorted
	if err != nil {
		return false, fmt.Errorf("encode access review: %w", err)
	}
	return a.cache.get(ctx, question, func(ctx context.Context) (bool, bool, error) {
		var got *authzv1.SubjectAccessReview
		err := withRetry(ctx, func(ctx context.Context) error {
			return a.reviews.count(func() (err error) {
				got, err = a.cfg.Reviews.CreateSubjectAccessReview(ctx, &authzv1.SubjectAccessReview{Spec: spec})
				return err
			})
		})
		if err != nil {
			return false, false, fmt.Errorf("review access of %s: %w", user.Username, err)
		}
		if got.Status.Allowed && got.Status.Denied {
			return false, false, fmt.Errorf("review access of %s: both allowed and denied", user.Username)
		}
		return got.Status.Allowed, got.Status.Allowed, nil
	})
}
