package provider

import (
	"strings"
	"testing"

	credentialv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
)

// FuzzAnswers decodes arbitrary output of a plugin.
func FuzzAnswers(f *testing.F) {
	const v1 = "credentialprovider.kubelet.k8s.io/v1"
	f.Add([]byte(`{"kind":"CredentialProviderResponse","apiVersion":"`+v1+
		`","cacheKeyType":"Registry","cacheDuration":"5m","auth":{"*.example":{"username":"u","password":"p"}}}`), v1)
	f.Add([]byte(`{"kind":"CredentialProviderResponse","apiVersion":"`+v1+`","cacheKeyType":"Global","auth":null}`), v1)
	f.Add([]byte(`{"kind":"Secret"}`), v1)
	f.Add([]byte(`[]`), "x")
	f.Fuzz(func(t *testing.T, raw []byte, version string) {
		var resp credentialv1.CredentialProviderResponse
		err := decode(raw, version, &resp)
		switch {
		case err == nil && (resp.APIVersion != version || resp.Kind != "CredentialProviderResponse"):
			t.Errorf("accepted a %q of %q", resp.Kind, resp.APIVersion)
		case err != nil && len(resp.Auth) > 0:
			for _, a := range resp.Auth { // an error is logged
				if len(a.Password) > 8 && strings.Contains(err.Error(), a.Password) {
					t.Errorf("the error contains a password: %v", err)
				}
			}
		}
	})
}
