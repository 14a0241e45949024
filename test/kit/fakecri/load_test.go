package fakecri_test

import (
	"fmt"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/kit/fakecri"
)

// BenchmarkPod starts and removes a pod beside a thousand others: what the
// fake itself adds to a measurement.
func BenchmarkPod(b *testing.B) {
	r := fakecri.New(fakecri.Options{})
	defer r.Close()
	conn, err := r.Dial()
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	rt := cri.NewRuntimeServiceClient(conn)
	r.AddImage(fakecri.Image{Name: "busybox"})
	ctx := b.Context()
	start := func(name string) string {
		sb := &cri.PodSandboxConfig{Metadata: &cri.PodSandboxMetadata{Name: name, Namespace: "a", Uid: name}}
		run, err := rt.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: sb})
		if err != nil {
			b.Fatal(err)
		}
		made, err := rt.CreateContainer(ctx,
			&cri.CreateContainerRequest{PodSandboxId: run.PodSandboxId, SandboxConfig: sb, Config: &cri.ContainerConfig{
				Metadata: &cri.ContainerMetadata{Name: "main"}, Image: &cri.ImageSpec{Image: "busybox"},
			}})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := rt.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: made.ContainerId}); err != nil {
			b.Fatal(err)
		}
		return run.PodSandboxId
	}
	for i := range 1000 {
		start(fmt.Sprint("standing-", i))
	}
	i := 0
	for b.Loop() {
		i++
		id := start(fmt.Sprint("p-", i))
		if _, err := rt.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
			b.Fatal(err)
		}
	}
}
