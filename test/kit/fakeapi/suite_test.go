package fakeapi_test

import (
	"testing"

	"k8s.io/client-go/kubernetes"

	"keelson/test/kit/apisuite"
	"keelson/test/kit/fakeapi"
)

// TestSuite runs the suite for API servers against the fake.
func TestSuite(t *testing.T) {
	eachFormat(t, func(t *testing.T, s *fakeapi.Server, c kubernetes.Interface) {
		s.Compact() // as on a server that has run for some time
		apisuite.Run(t, c)
	})
}
