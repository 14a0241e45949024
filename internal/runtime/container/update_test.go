package container

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
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

// Pods can be resized on runtimes that do not implement the call. containerd 2.2 returns the code
// Unknown.
func TestUpdateSandboxNotImplemented(t *testing.T) {
	for _, tc := range []struct {
		err   error
		fails bool
	}{
		{status.Error(codes.Unimplemented, "unknown method"), false},
		{status.Error(codes.Unknown, "UpdatePodSandboxResources: not implemented yet"), false},
		{status.Error(codes.Unknown, "not allowed"), true},
	} {
		b := newBench(t, func(c *Config) { c.Runtime = noSandboxUpdates{c.Runtime, tc.err} })
		if err := b.UpdateSandbox(t.Context(), &v1.Pod{}, "s1", PodSize{}); (err != nil) != tc.fails {
			t.Errorf("%v: %v", tc.err, err)
		}
	}
}

// sandboxUpdates records UpdatePodSandboxResources calls.
type sandboxUpdates struct {
	runtime
	request *runtimeapi.UpdatePodSandboxResourcesRequest
}

func (r *sandboxUpdates) UpdatePodSandboxResources(
	_ context.Context, req *runtimeapi.UpdatePodSandboxResourcesRequest,
) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	r.request = req
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

// UpdatePodSandboxResources has the limits of the pod's cgroup without the overhead, not the sum of the containers'
// limits.
func TestUpdateSandbox(t *testing.T) {
	all := PodSize{Shares: 1126, Quota: 310000, Period: 100000, Memory: 4 * gi}
	none := PodSize{Shares: 1126, Quota: -1, Period: 100000, Memory: -1}
	for _, tc := range []struct {
		name     string
		overhead v1.ResourceList
		size     PodSize
		v2       bool
		want     *runtimeapi.LinuxContainerResources
		over     *runtimeapi.LinuxContainerResources
	}{
		{
			name: "limits",
			size: all,
			want: &runtimeapi.LinuxContainerResources{
				CpuShares:          1126,
				CpuQuota:           310000,
				CpuPeriod:          100000,
				MemoryLimitInBytes: 4 * gi,
			},
			over: &runtimeapi.LinuxContainerResources{},
		},
		{
			name: "none, as v1 shows it",
			size: none,
			want: &runtimeapi.LinuxContainerResources{
				CpuShares:          1126,
				CpuQuota:           -1,
				CpuPeriod:          100000,
				MemoryLimitInBytes: 9223372036854771712,
			},
			over: &runtimeapi.LinuxContainerResources{},
		},
		{
			name: "none, as upstream shows it on v2",
			size: none,
			v2:   true,
			want: &runtimeapi.LinuxContainerResources{
				CpuShares:          1126,
				CpuQuota:           -1,
				CpuPeriod:          100000,
				MemoryLimitInBytes: -1,
			},
			over: &runtimeapi.LinuxContainerResources{},
		},
		{
			name:     "limits and overhead",
			overhead: list("cpu", "100m", "memory", "1Gi"),
			size:     all,
			want: &runtimeapi.LinuxContainerResources{
				CpuShares:          1024,
				CpuQuota:           300000,
				CpuPeriod:          100000,
				MemoryLimitInBytes: 3 * gi,
			},
			over: &runtimeapi.LinuxContainerResources{
				CpuShares:          102,
				CpuQuota:           10000,
				CpuPeriod:          100000,
				MemoryLimitInBytes: gi,
			},
		},
		{
			name:     "overhead of what has no limit",
			overhead: list("cpu", "100m", "memory", "1Gi"),
			size:     none,
			v2:       true,
			want: &runtimeapi.LinuxContainerResources{
				CpuShares:          1024,
				CpuQuota:           -1,
				CpuPeriod:          100000,
				MemoryLimitInBytes: -1,
			},
			over: &runtimeapi.LinuxContainerResources{
				CpuShares:          102,
				CpuQuota:           10000,
				CpuPeriod:          100000,
				MemoryLimitInBytes: gi,
				Unified:            map[string]string{"memory.oom.group": "1"},
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := &sandboxUpdates{}
			b := newBench(t, func(c *Config) {
				r.runtime, c.Runtime = c.Runtime, r
				c.Kernel.CgroupV2, c.CPUQuota, c.CPUQuotaPeriod = tc.v2, true, 100*time.Millisecond
			})
			p := &v1.Pod{Spec: v1.PodSpec{Overhead: tc.overhead}}
			if err := b.UpdateSandbox(t.Context(), p, "s1", tc.size); err != nil {
				t.Fatal(err)
			}
			want := &runtimeapi.UpdatePodSandboxResourcesRequest{
				PodSandboxId: "s1",
				Resources:    tc.want,
				Overhead:     tc.over,
			}
			if !proto.Equal(r.request, want) {
				t.Errorf("request %v\nwant %v", r.request, want)
			}
		})
	}
}
