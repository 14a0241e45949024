package fakeapi_test

import (
	"testing"

	"k8s.io/client-go/kubernetes"

	"keelson/test/kit/apisuite"
	"keelson/test/kit/fakeapi"
)

// TestSuite runs what every API server must do against the fake.
func TestSuite(t *testing.T) {
	eachFormat(t, func(t *testing.T, s *fakeapi.Server, c kubernetes.Interface) {
		s.Compact() // as that of a server with a past
		apisuite.Run(t, c)
	})
}
