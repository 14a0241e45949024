package crisuite

import (
	"testing"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func testUnknown(t *testing.T, s *suite) {
	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	ctx := s.ctx(t)
	// Stopping what does not exist is no error; containerd 1.6 answers NotFound.
	stopped := codes.OK
	if s.Old {
		stopped = codes.NotFound
	}
	_, err := s.rt.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id})
	wantCode(t, "StopPodSandbox", err, stopped)
	_, err = s.rt.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id})
	wantCode(t, "RemovePodSandbox", err, codes.OK)
	_, err = s.rt.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: id, Timeout: 1})
	wantCode(t, "StopContainer", err, stopped)
	_, err = s.rt.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: id})
	wantCode(t, "RemoveContainer", err, codes.OK)

	_, err = s.rt.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id})
	wantCode(t, "PodSandboxStatus", err, codes.NotFound)
	_, err = s.rt.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id})
	wantCode(t, "ContainerStatus", err, codes.NotFound)
	_, err = s.rt.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: id})
	wantCode(t, "StartContainer", err, codes.NotFound)
	_, err = s.rt.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: id, Config: &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "x"}, Image: &cri.ImageSpec{Image: s.Image},
	}, SandboxConfig: s.sandboxConfig(t)})
	wantCode(t, "CreateContainer", err, codes.NotFound)
	_, err = s.rt.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: id, Cmd: []string{"true"}})
	wantCode(t, "ExecSync", err, codes.NotFound)
	_, err = s.rt.ReopenContainerLog(ctx, &cri.ReopenContainerLogRequest{ContainerId: id})
	wantCode(t, "ReopenContainerLog", err, codes.NotFound)
	_, err = s.rt.UpdateContainerResources(ctx, &cri.UpdateContainerResourcesRequest{
		ContainerId: id,
		Linux:       &cri.LinuxContainerResources{CpuShares: 2},
	})
	wantCode(t, "UpdateContainerResources", err, codes.NotFound)
	_, err = s.rt.ContainerStats(ctx, &cri.ContainerStatsRequest{ContainerId: id})
	wantError(t, "ContainerStats", err)

	if res, err := s.rt.ListContainers(ctx,
		&cri.ListContainersRequest{Filter: &cri.ContainerFilter{Id: id}}); err != nil || len(res.Containers) > 0 {
		t.Errorf("ListContainers: %v, %v", res, err)
	}
	if res, err := s.rt.ListPodSandbox(ctx,
		&cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{Id: id}}); err != nil || len(res.Items) > 0 {
		t.Errorf("ListPodSandbox: %v, %v", res, err)
	}
}
