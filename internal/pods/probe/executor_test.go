package probe

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/runtime/cri"
	"keelson/test/kit/fakecri"
	"keelson/test/kit/parity"
)

// The command of a probe runs in its container until the probe's timeout, and its whole output is kept. A command that
// the runtime cannot run is an error; one that exceeds the timeout is a failure.
func TestCommandsOfProbes(t *testing.T) {
	parity.ProvesPart(t, 2, "PROBE-19")
	results := map[string]fakecri.ExecResult{
		"well":   {Stdout: "out", Stderr: "err"},
		"sick":   {Stdout: "why", Code: 3},
		"slow":   {After: time.Hour},
		"absent": {Err: errors.New("no such file")},
	}
	opts := fakecri.Options{
		OnExec: func(e fakecri.Exec) (fakecri.ExecResult, bool) { res, ok := results[e.Command[0]]; return res, ok },
	}
	synctest.Test(t, func(t *testing.T) {
		runtime := fakecri.New(opts)
		defer runtime.Close()
		conn, err := runtime.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		client := cri.Over(conn, conn, cri.Config{RequestTimeout: 2 * time.Minute, Log: slog.New(slog.DiscardHandler)})
		runtime.AddImage(fakecri.Image{Name: "app:1"})
		box, err := client.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{
			Config: &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{
				Name:      "p",
				Namespace: "ns",
				Uid:       "u",
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		made, err := client.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
			PodSandboxId: box.PodSandboxId,
			Config: &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: "c"},
				Image:    &runtimeapi.ImageSpec{Image: "app:1"},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		id := made.ContainerId
		if _, err := client.StartContainer(t.Context(),
			&runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
			t.Fatal(err)
		}
		for command, want := range map[string]string{
			"well":   "outerr 0 false <nil>",
			"sick":   "why 3 false <nil>",
			"slow":   " 0 true <nil>",
			"absent": " 0 false rpc error: code = Unknown desc = no such file",
		} {
			begin := time.Now()
			output, code, timedOut, err := NewRuntimeExecutor(client).Exec(t.Context(), id, []string{command},
				2500*time.Millisecond)
			if got := fmt.Sprintf("%s %d %v %v", output, code, timedOut, err); got != want {
				t.Errorf("%s: %s, want %s", command, got, want)
			}
			if took := time.Since(begin); command == "slow" && took != 3*time.Second {
				t.Errorf("a command that does not end took %v, want 3 s: the runtime counts whole ones", took)
			}
		}
		for _, c := range runtime.Calls(0) {
			if c.Method == "ExecSync" && c.Timeout != 3 {
				t.Errorf("%v has a timeout of %d s, want 3", c.Command, c.Timeout)
			}
		}
	})
}
