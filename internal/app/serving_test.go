package app

import (
	"bytes"
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

	"keelson/internal/node/server"
	"keelson/internal/pods/observed"
	"keelson/test/kit/fakecri"
	"keelson/test/kit/parity"
)

func TestVerbosityIsSetWhileTheAgentRuns(t *testing.T) {
	parity.ProvesPart(t, 3, "SRV-29")
	var level slog.LevelVar
	a := &agent{log: slog.New(slog.DiscardHandler), links: Links{Operator: Operator{Verbosity: func(v uint32) error {
		level.Set(Level(v))
		return nil
	}}}}
	set := a.setVerbosity
	if said, err := set("4"); err != nil || said != "successfully set klog.logging.verbosity to 4" || level.Level() != slog.LevelDebug {
		t.Errorf("%q, %v, level %v", said, err, level.Level())
	}
	for _, text := range []string{"", "-1", "many", "4294967296", "4; rm"} {
		if said, err := set(text); err == nil || level.Level() != slog.LevelDebug {
			t.Errorf("%q: %q, level %v", text, said, level.Level())
		}
	}
	if _, err := set("0"); err != nil || level.Level() != slog.LevelInfo {
		t.Errorf("back: %v, level %v", err, level.Level())
	}
}

// What cannot be streamed is refused in upstream's words.
func TestWhatCannotBeStreamed(t *testing.T) {
	parity.ProvesPart(t, 4, "SRV-24")
	opts := fakecri.Options{OnExec: func(e fakecri.Exec) (fakecri.ExecResult, bool) {
		return fakecri.ExecResult{Stdout: "out", Stderr: "why", Code: 3}, e.Command[0] == "sick"
	}}
	onFake(t, opts, func(t *testing.T, a *agent, runtime *fakecri.Runtime, _ *bytes.Buffer) {
		if err := a.buildRuntime(t.Context()); err != nil {
			t.Fatal(err)
		}
		runtime.AddImage(fakecri.Image{Name: "app:1"})
		box := &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "ns", Uid: "u"},
			Labels: map[string]string{
				"io.kubernetes.pod.name":      "web",
				"io.kubernetes.pod.namespace": "ns",
				"io.kubernetes.pod.uid":       "u",
			},
		}
		made, err := a.runtime.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: box})
		if err != nil {
			t.Fatal(err)
		}
		c, err := a.runtime.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
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
		if _, err := a.runtime.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: c.ContainerId}); err != nil {
			t.Fatal(err)
		}
		a.observed = observed.New(observed.Config{Runtime: a.runtime, OnChange: func(types.UID) {}, Log: a.log, Now: time.Now})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.observed.Run(ctx) }()
		synctest.Wait()

		s, out := streams{a}, server.StreamOptions{Stdout: true}
		web := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "u"}}
		gone := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "gone", Namespace: "ns", UID: "v"}}
		var errs [5]error
		_, errs[0] = s.Exec(t.Context(), web, "other", []string{"ls"}, out)
		_, errs[1] = s.Attach(t.Context(), web, "other", out)
		_, errs[2] = s.PortForward(t.Context(), gone, nil)
		_, errs[3] = s.Run(t.Context(), web, "other", []string{"ls"})
		_, errs[4] = s.Run(t.Context(), web, "main", []string{"sick", "-l"})
		for i, want := range []string{
			`container not found ("other")`,
			`container other not found in pod web_ns`,
			`pod not found ("gone_ns")`,
			`container not found ("other")`,
			`command 'sick -l' exited with 3: why`,
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
