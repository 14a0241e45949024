package observed

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/runtime/cri"
	"keelson/test/kit/fakecri"
)

// TestWithFakeRuntime runs pods through the real client on the fake
// runtime of the test kit, with events and without.
func TestWithFakeRuntime(t *testing.T) {
	for name, tc := range map[string]struct {
		noEvents bool
		lag      time.Duration
	}{"events": {false, 0}, "lists": {true, PollPeriod}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := fakecri.New(fakecri.Options{NoEvents: tc.noEvents})
				defer rt.Close()
				rt.AddImage(fakecri.Image{Name: "busybox:1"})
				conn, err := rt.Dial()
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				client := cri.Over(conn, conn, cri.Config{
					RequestTimeout: time.Minute,
					Log:            slog.New(slog.DiscardHandler),
				})
				c := New(Config{
					Runtime:  client,
					OnChange: func(types.UID) {},
					Log:      slog.New(slog.DiscardHandler),
					Now:      time.Now,
				})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- c.Run(ctx) }()
				defer func() {
					cancel()
					if err := <-done; err != nil {
						t.Error(err)
					}
				}()
				time.Sleep(5 * time.Second)

				dir := t.TempDir()
				message := filepath.Join(dir, "message")
				if err := os.WriteFile(message, nil, 0o666); err != nil {
					t.Fatal(err)
				}
				ref := pod.Ref{UID: "u1", Namespace: "ns", Name: "web"}
				logDir := filepath.Join(dir, "logs", "ns_web_u1")
				labels := map[string]string{pod.LabelPodUID: "u1", pod.LabelPodNamespace: "ns", pod.LabelPodName: "web"}
				sandbox := &runtimeapi.PodSandboxConfig{
					Metadata: &runtimeapi.PodSandboxMetadata{
						Name:      ref.Name,
						Namespace: ref.Namespace,
						Uid:       string(ref.UID),
					},
					Labels: labels, LogDirectory: logDir,
				}
				for _, d := range []string{"main", "side"} {
					if err := os.MkdirAll(filepath.Join(logDir, d), 0o755); err != nil {
						t.Fatal(err)
					}
				}
				s, err := client.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: sandbox})
				if err != nil {
					t.Fatal(err)
				}
				start := func(name, script string) string {
					t.Helper()
					l := map[string]string{pod.LabelContainerName: name}
					for k, v := range labels {
						l[k] = v
					}
					ctr, err := client.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
						PodSandboxId:  s.PodSandboxId,
						SandboxConfig: sandbox,
						Config: &runtimeapi.ContainerConfig{
							Metadata: &runtimeapi.ContainerMetadata{Name: name},
							Image:    &runtimeapi.ImageSpec{Image: "busybox:1"},
							Command:  []string{"sh", "-c", script},
							Labels:   l,
							LogPath:  name + "/0.log",
							Annotations: map[string]string{
								pod.AnnotationTerminationMessagePath:   "/dev/termination-log",
								pod.AnnotationTerminationMessagePolicy: "FallbackToLogsOnError",
							},
							Mounts: []*runtimeapi.Mount{{ContainerPath: "/dev/termination-log", HostPath: message}},
						},
					})
					if err != nil {
						t.Fatal(err)
					}
					if _, err := client.StartContainer(ctx,
						&runtimeapi.StartContainerRequest{ContainerId: ctr.ContainerId}); err != nil {
						t.Fatal(err)
					}
					return ctr.ContainerId
				}
				main := start("main", "sleep 10; echo oops; exit 3")
				start("side", "sleep 1000")
				time.Sleep(tc.lag)
				synctest.Wait()
				have, _ := c.Get("u1")
				sb, ready := have.ReadySandbox()
				if m, _ := have.Latest("main"); have.Ref != ref || !ready || len(sb.IPs) != 1 || m.ID != main ||
					m.SandboxID != sb.ID || m.State != pod.StateRunning {
					t.Errorf("after the start: %+v", have)
				}

				time.Sleep(10 * time.Second)
				synctest.Wait()
				have, _ = c.Get("u1")
				if m, _ := have.Latest("main"); m.State != pod.StateExited || m.ExitCode != 3 || m.Message != "oops\n" {
					t.Errorf("after the exit: %+v", m)
				}

				if n := rt.Usage()["ContainerStatus"].Calls; tc.noEvents == (n == 0) {
					t.Errorf("%d statuses read, want some only without events", n)
				}

				rt.Disconnect()
				time.Sleep(3 * time.Second)
				if have, ok := c.Get("u1"); !ok || len(have.Containers) != 2 {
					t.Errorf("without a runtime: %+v, %v; want what was known", have, ok)
				}
			})
		})
	}
}
