package backend

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/observed"
	"keelson/internal/runtime/cri"
	"keelson/internal/serve/server"
	"keelson/test/kit/fakecri"
	"keelson/test/kit/parity"
)

// Errors of streams and logs have upstream's texts.
func TestStreamErrors(t *testing.T) {
	parity.ProvesPart(t, 4, "SRV-24")
	synctest.Test(t, func(t *testing.T) {
		runtime := fakecri.New(fakecri.Options{OnExec: func(e fakecri.Exec) (fakecri.ExecResult, bool) {
			return fakecri.ExecResult{Stdout: "out", Stderr: "why", Code: 3}, e.Command[0] == "sick"
		}})
		defer runtime.Close()
		conn, err := runtime.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		log := slog.New(slog.DiscardHandler)
		client := cri.Over(conn, conn, cri.Config{RequestTimeout: 2 * time.Minute, Log: log})
		runtime.AddImage(fakecri.Image{Name: "app:1"})
		box := &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "ns", Uid: "u"},
			Labels: map[string]string{
				"io.kubernetes.pod.name":      "web",
				"io.kubernetes.pod.namespace": "ns",
				"io.kubernetes.pod.uid":       "u",
			},
		}
		made, err := client.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: box})
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
			PodSandboxId: made.PodSandboxId,
			Config: &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
				Image:    &runtimeapi.ImageSpec{Image: "app:1"},
				Labels:   map[string]string{"io.kubernetes.container.name": "main", "io.kubernetes.pod.uid": "u"},
			},
			SandboxConfig: box,
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.StartContainer(t.Context(),
			&runtimeapi.StartContainerRequest{ContainerId: c.ContainerId}); err != nil {
			t.Fatal(err)
		}
		cache := observed.New(observed.Config{
			Runtime:  client,
			OnChange: func(types.UID) {},
			Log:      log,
			Now:      time.Now,
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- cache.Run(ctx) }()
		synctest.Wait()

		s, out := Streams{Runtime: client, Observed: cache}, server.StreamOptions{Stdout: true}
		web := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "u"}}
		gone := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "gone", Namespace: "ns", UID: "v"}}
		var errs [6]error
		_, errs[0] = s.Exec(t.Context(), web, "other", []string{"ls"}, out)
		_, errs[1] = s.Attach(t.Context(), web, "other", out)
		_, errs[2] = s.PortForward(t.Context(), gone, nil)
		_, errs[3] = s.Run(t.Context(), web, "other", []string{"ls"})
		_, errs[4] = s.Run(t.Context(), web, "main", []string{"sick", "-l"})
		errs[5] = Logs{Runtime: "containerd", Observed: cache}.ReadLogs(t.Context(), web, "main", "removed", nil, nil, nil)
		for i, want := range []string{
			`container not found ("other")`,
			`container other not found in pod web_ns`,
			`pod not found ("gone_ns")`,
			`container not found ("other")`,
			`command 'sick -l' exited with 3: why`,
			`unable to retrieve container logs for containerd://removed`,
		} {
			if errs[i] == nil || errs[i].Error() != want {
				t.Errorf("error %d is %v, want %s", i, errs[i], want)
			}
		}
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
