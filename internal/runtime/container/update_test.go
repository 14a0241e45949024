package container

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type noSandboxUpdates struct {
	runtime
	err error
}

func (r noSandboxUpdates) UpdatePodSandboxResources(
	context.Context, *runtimeapi.UpdatePodSandboxResourcesRequest,
) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return nil, r.err
}

// Pods are resized on runtimes that do not have the call. containerd 2.2 says so with the code Unknown.
func TestARuntimeWithoutSandboxUpdates(t *testing.T) {
	for _, tc := range []struct {
		err   error
		fails bool
	}{
		{status.Error(codes.Unimplemented, "unknown method"), false},
		{status.Error(codes.Unknown, "UpdatePodSandboxResources: not implemented yet"), false},
		{status.Error(codes.Unknown, "not allowed"), true},
	} {
		b := newBench(t, func(c *Config) { c.Runtime = noSandboxUpdates{c.Runtime, tc.err} })
		if err := b.UpdateSandbox(t.Context(), &v1.Pod{}, "s1"); (err != nil) != tc.fails {
			t.Errorf("%v: %v", tc.err, err)
		}
	}
}
