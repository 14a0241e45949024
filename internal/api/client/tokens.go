package client

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

// ServiceAccounts are the service accounts at the API server.
type ServiceAccounts struct{ rest rest.Interface }

// Get gets a service account.
func (s ServiceAccounts) Get(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	out := new(corev1.ServiceAccount)
	if err := s.rest.Get().Namespace(namespace).Resource("serviceaccounts").Name(name).Do(ctx).Into(out); err != nil {
		return nil, err
	}
	return out, nil
}

// CreateToken requests a token for a service account.
func (s ServiceAccounts) CreateToken(
	ctx context.Context, namespace, name string, req *authenticationv1.TokenRequest,
) (*authenticationv1.TokenRequest, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	out := new(authenticationv1.TokenRequest)
	err := s.rest.Post().
		Namespace(namespace).
		Resource("serviceaccounts").
		Name(name).
		SubResource("token").
		Body(req).
		Do(ctx).
		Into(out)
	if err != nil {
		return nil, err
	}
	return out, nil
}
