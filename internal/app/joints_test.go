package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/resources/cgroup"
	"keelson/internal/resources/userns"
	"keelson/test/kit/fakecri"
	"keelson/test/kit/parity"
)

// While a pod's cgroup cannot be removed something may run there as one of its
// users: nobody else is given them.
func TestUsersOfAPodAreGivenBackAfterItsCgroup(t *testing.T) {
	parity.Differs(t, "LIFE-09", "0005")
	pods, hierarchy := t.TempDir(), t.TempDir()
	tree, err := cgroup.New(cgroup.Config{Driver: cgroup.Cgroupfs, Root: "/", Hierarchies: cgroup.Hierarchies{Unified: hierarchy}})
	if err != nil {
		t.Fatal(err)
	}
	users, err := userns.New(userns.Config{PodsDir: pods, IDs: userns.Range{First: userns.DefaultIDs, Count: userns.DefaultIDs}, PerPod: userns.DefaultIDs, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for _, uid := range []string{"one", "two"} {
		if err := os.Mkdir(filepath.Join(pods, uid), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	stuck := filepath.Join(hierarchy, "kubepods", "podone", "stuck")
	if err := os.MkdirAll(filepath.Dir(stuck), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stuck, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c := &cgroups{tree: tree, users: users, burstable: map[types.UID]*v1.Pod{}}
	if _, err := users.Of("one"); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel() // it is tried once
	if err := c.RemovePod(gone, "one"); err == nil {
		t.Error("the cgroup was removed, though there is something in it")
	}
	if r, err := users.Of("two"); err == nil {
		t.Errorf("another pod is given %+v, the users of one whose cgroup is there", r)
	}
	if err := os.Remove(stuck); err != nil {
		t.Fatal(err)
	}
	if err := c.RemovePod(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if _, err := users.Of("two"); err != nil {
		t.Errorf("the users of a pod that is gone are taken: %v", err)
	}
}

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
	onFake(t, opts, func(t *testing.T, a *agent, runtime *fakecri.Runtime, _ *bytes.Buffer) {
		if err := a.buildRuntime(t.Context()); err != nil {
			t.Fatal(err)
		}
		runtime.AddImage(fakecri.Image{Name: "app:1"})
		box, err := a.runtime.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{
			Config: &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "ns", Uid: "u"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		made, err := a.runtime.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
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
		if _, err := a.runtime.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
			t.Fatal(err)
		}
		for command, want := range map[string]string{
			"well":   "outerr 0 false <nil>",
			"sick":   "why 3 false <nil>",
			"slow":   " 0 true <nil>",
			"absent": " 0 false rpc error: code = Unknown desc = no such file",
		} {
			begin := time.Now()
			output, code, timedOut, err := executor{a.runtime}.Exec(t.Context(), id, []string{command}, 2500*time.Millisecond)
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
