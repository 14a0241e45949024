package cri

import (
	"fmt"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/kit/fakecri"
	"keelson/test/kit/parity"
)

func TestStreamingLists(t *testing.T) {
	parity.Proves(t, "RT-07")
	for name, tc := range map[string]struct {
		on, lacks bool
		stream    int // calls of each stream for two lists
		unary     int
	}{
		"off":                     {stream: 0, unary: 2},
		"on":                      {on: true, stream: 2, unary: 0},
		"on, but not to be had":   {on: true, lacks: true, stream: 1, unary: 2},
		"off, and not to be had ": {lacks: true, stream: 0, unary: 2},
	} {
		t.Run(name, func(t *testing.T) {
			fake := fakecri.New(fakecri.Options{NoListStreams: tc.lacks})
			defer fake.Close()
			for i := range 3 {
				fake.AddImage(fakecri.Image{Name: fmt.Sprintf("a:%d", i), Size: 1})
			}
			conn, err := fake.Dial()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			seen := &calls{ClientConnInterface: conn}
			observed := map[string]int{}
			c := Over(seen, seen, Config{
				RequestTimeout: 10 * time.Second,
				StreamLists:    tc.on,
				Observe:        func(m string, _ time.Duration, _ error) { observed[m]++ },
			})
			ctx := t.Context()
			sandbox, err := c.RunPodSandbox(ctx,
				&runtimeapi.RunPodSandboxRequest{
					Config: &runtimeapi.PodSandboxConfig{
						Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "ns", Uid: "u"},
					},
				})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
				PodSandboxId: sandbox.PodSandboxId,
				Config: &runtimeapi.ContainerConfig{
					Metadata: &runtimeapi.ContainerMetadata{Name: "c"},
					Image:    &runtimeapi.ImageSpec{Image: "a:1"},
				},
			}); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				images, err := c.ListImages(ctx, &runtimeapi.ListImagesRequest{})
				if err != nil || len(images.Images) != 3+1 { // and that of sandboxes
					t.Errorf("images: %v, %v", images, err)
				}
				sandboxes, err := c.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
				if err != nil || len(sandboxes.Items) != 1 {
					t.Errorf("sandboxes: %v, %v", sandboxes, err)
				}
				containers, err := c.ListContainers(
					ctx,
					&runtimeapi.ListContainersRequest{
						Filter: &runtimeapi.ContainerFilter{PodSandboxId: sandbox.PodSandboxId},
					},
				)
				if err != nil || len(containers.Containers) != 1 {
					t.Errorf("containers: %v, %v", containers, err)
				}
				none, err := c.ListContainers(ctx,
					&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: "another"}})
				if err != nil || len(none.Containers) != 0 {
					t.Errorf("containers of another sandbox: %v, %v", none, err)
				}
				if _, err := c.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{}); err != nil {
					t.Error(err)
				}
				if _, err := c.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{}); err != nil {
					t.Error(err)
				}
				_, _ = c.ListPodSandboxMetrics(ctx, &runtimeapi.ListPodSandboxMetricsRequest{}) // the fake keeps none
			}
			count := map[string]int{}
			for _, m := range seen.seen {
				count[m]++
			}
			for list, stream := range map[string]string{
				"ListImages":          "StreamImages",
				"ListPodSandbox":      "StreamPodSandboxes",
				"ListContainerStats":  "StreamContainerStats",
				"ListPodSandboxStats": "StreamPodSandboxStats",
			} {
				if count[stream] != tc.stream || count[list] != tc.unary {
					t.Errorf("%s called %d times and %s %d times, want %d and %d", stream, count[stream], list,
						count[list], tc.stream,
						tc.unary)
				}
				if observed[stream]+observed[list] != 2 {
					t.Errorf("two lists were counted as %d and %d", observed[stream], observed[list])
				}
			}
			wantAsked := 0
			if tc.on {
				wantAsked = 1 // the fake does not implement it, which is remembered
			}
			if count["StreamPodSandboxMetrics"] != wantAsked || count["ListPodSandboxMetrics"] != 2 {
				t.Errorf("%d streaming and %d unary calls for metrics of sandboxes", count["StreamPodSandboxMetrics"],
					count["ListPodSandboxMetrics"])
			}
		})
	}
}
