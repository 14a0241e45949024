package crisuite

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// serve runs until SIGTERM and then exits with 7; stubborn ignores SIGTERM. Both print a
// line when their trap is set.
const (
	serve    = `trap 'exit 7' TERM; echo set; while true; do sleep 0.1; done`
	stubborn = `trap '' TERM; echo set; while true; do sleep 0.1; done`
)

func testContainer(t *testing.T, s *suite) {
	p := s.runPod(t)
	cfg := s.script(t, p, "main", serve)
	id := s.create(t, p, cfg)

	st := s.status(t, id)
	wantState(t, st, cri.ContainerState_CONTAINER_CREATED)
	if st.CreatedAt <= 0 || st.StartedAt != 0 || st.FinishedAt != 0 {
		t.Errorf("times of a created container: %d %d %d", st.CreatedAt, st.StartedAt, st.FinishedAt)
	}
	if st.Metadata.Name != "main" || st.Metadata.Attempt != 0 {
		t.Errorf("metadata %v", st.Metadata)
	}
	if !maps.Equal(st.Labels, cfg.Labels) || !maps.Equal(st.Annotations, cfg.Annotations) {
		t.Errorf("labels %q and annotations %q were altered", st.Labels, st.Annotations)
	}
	if want := filepath.Join(p.cfg.LogDirectory, cfg.LogPath); st.LogPath != want {
		t.Errorf("log path %q, want %q", st.LogPath, want)
	}
	if st.ImageRef == "" || st.ImageId == "" && !s.Old || st.Image.GetImage() == "" {
		t.Errorf("image %q, ref %q, id %q", st.Image.GetImage(), st.ImageRef, st.ImageId)
	}
	s.stop(t, id, 0) // no error, and nothing happens
	wantState(t, s.status(t, id), cri.ContainerState_CONTAINER_CREATED)

	if _, err := s.rt.StartContainer(s.ctx(t), &cri.StartContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	st = s.status(t, id)
	wantState(t, st, cri.ContainerState_CONTAINER_RUNNING)
	if st.StartedAt < st.CreatedAt || st.FinishedAt != 0 {
		t.Errorf("times of a running container: %d %d %d", st.CreatedAt, st.StartedAt, st.FinishedAt)
	}
	_, err := s.rt.StartContainer(s.ctx(t), &cri.StartContainerRequest{ContainerId: id})
	wantError(t, "starting a running container", err)
	_, err = s.rt.CreateContainer(s.ctx(t), &cri.CreateContainerRequest{
		PodSandboxId:  p.id,
		Config:        cfg,
		SandboxConfig: p.cfg,
	})
	wantError(t, "a second container of the same name and attempt", err)

	s.remove(t, id) // while it runs
	_, err = s.rt.ContainerStatus(s.ctx(t), &cri.ContainerStatusRequest{ContainerId: id})
	wantCode(t, "status of a removed container", err, codes.NotFound)
	s.remove(t, id)

	for code, script := range map[int32]string{0: "true", 3: "exit 3", 1: "echo no >&2; false"} {
		cfg := s.script(t, p, "short", script)
		id := s.start(t, p, cfg)
		st := s.exited(t, id)
		wantReason := "Error"
		if code == 0 {
			wantReason = "Completed"
		}
		if st.ExitCode != code || st.Reason != wantReason {
			t.Errorf("%q: exit code %d, reason %q, want %d and %q", script, st.ExitCode, st.Reason, code, wantReason)
		}
		// containerd notes the start after the fact, so a short container may
		// have finished before it started.
		if st.StartedAt < st.CreatedAt || st.FinishedAt < st.CreatedAt {
			t.Errorf("times of an exited container: %d %d %d", st.CreatedAt, st.StartedAt, st.FinishedAt)
		}
		_, err := s.rt.StartContainer(s.ctx(t), &cri.StartContainerRequest{ContainerId: id})
		wantError(t, "starting an exited container", err)
		s.remove(t, id)
	}
}

func testStop(t *testing.T, s *suite) {
	p := s.runPod(t)
	t.Run("it obeys SIGTERM", func(t *testing.T) {
		id := s.start(t, p, s.script(t, p, "obeys", serve))
		settle(t, s, id)
		s.stop(t, id, int64(s.Patience.Seconds())/2)
		st := s.status(t, id)
		wantState(t, st, cri.ContainerState_CONTAINER_EXITED)
		if st.ExitCode != 7 {
			t.Errorf("exit code %d, want that of its trap, 7", st.ExitCode)
		}
		s.stop(t, id, 20) // again
	})
	t.Run("it ignores SIGTERM", func(t *testing.T) {
		id := s.start(t, p, s.script(t, p, "ignores", stubborn))
		settle(t, s, id)
		begin := time.Now()
		s.stop(t, id, 1)
		if took := time.Since(begin); took < time.Second {
			t.Errorf("killed after %v, before its grace of 1s was over", took)
		}
		if st := s.status(t, id); st.State != cri.ContainerState_CONTAINER_EXITED || st.ExitCode != 137 {
			t.Errorf("%s, exit code %d", st.State, st.ExitCode)
		}
	})
	t.Run("without grace", func(t *testing.T) {
		id := s.start(t, p, s.script(t, p, "nograce", stubborn))
		settle(t, s, id)
		s.stop(t, id, 0)
		if st := s.status(t, id); st.State != cri.ContainerState_CONTAINER_EXITED || st.ExitCode != 137 {
			t.Errorf("%s, exit code %d", st.State, st.ExitCode)
		}
	})
}

// settle waits until the shell has set its trap.
func settle(t *testing.T, s *suite, id string) {
	t.Helper()
	path := s.status(t, id).LogPath
	waitFor(t, s, "the trap", func() bool { return len(logOf(t, path)["stdout"]) > 0 })
}

func testStartFailure(t *testing.T, s *suite) {
	p := s.runPod(t)
	cfg := s.script(t, p, "main", "")
	cfg.Command, cfg.Args = []string{"/nonexistent"}, nil
	id := s.create(t, p, cfg)
	_, err := s.rt.StartContainer(s.ctx(t), &cri.StartContainerRequest{ContainerId: id})
	wantError(t, "starting a command that does not exist", err)
	st := s.status(t, id)
	wantState(t, st, cri.ContainerState_CONTAINER_EXITED)
	if st.ExitCode != 128 || st.Reason != "StartError" || !strings.Contains(st.Message, "/nonexistent") {
		t.Errorf("exit code %d, reason %q, message %q", st.ExitCode, st.Reason, st.Message)
	}
	if st.FinishedAt == 0 {
		t.Error("it has no finish time")
	}

	cfg = s.script(t, p, "noimage", "true")
	cfg.Image.Image = "registry.invalid/no/such:image"
	_, err = s.rt.CreateContainer(s.ctx(t), &cri.CreateContainerRequest{
		PodSandboxId:  p.id,
		Config:        cfg,
		SandboxConfig: p.cfg,
	})
	wantError(t, "creating a container whose image is missing", err)

	cfg = s.script(t, p, "link", "true")
	if err := os.Symlink("elsewhere", filepath.Join(p.cfg.LogDirectory, cfg.LogPath)); err != nil {
		t.Fatal(err)
	}
	id = s.create(t, p, cfg)
	_, err = s.rt.StartContainer(s.ctx(t), &cri.StartContainerRequest{ContainerId: id})
	if s.Old {
		return // it still followed links
	}
	wantError(t, "starting a container whose log is a link", err)
}

func testExec(t *testing.T, s *suite) {
	p := s.runPod(t)
	id := s.start(t, p, s.script(t, p, "main", serve))
	sh := func(script string) []string { return append(slices.Clone(s.Shell), script) }

	res, err := s.rt.ExecSync(s.ctx(t), &cri.ExecSyncRequest{
		ContainerId: id,
		Cmd:         sh("echo out; echo err >&2; exit 5"),
		Timeout:     20,
	})
	if err != nil {
		t.Fatal(err)
	}
	if string(res.Stdout) != "out\n" || string(res.Stderr) != "err\n" || res.ExitCode != 5 {
		t.Errorf("stdout %q, stderr %q, exit code %d", res.Stdout, res.Stderr, res.ExitCode)
	}
	begin := time.Now()
	_, err = s.rt.ExecSync(s.ctx(t), &cri.ExecSyncRequest{ContainerId: id, Cmd: sh("sleep 3600"), Timeout: 1})
	wantCode(t, "a command that outlasts its timeout", err, codes.DeadlineExceeded)
	if took := time.Since(begin); took < time.Second || took >= s.Patience { // then it was the call's own
		t.Errorf("a timeout of 1s took %v", took)
	}
	_, err = s.rt.ExecSync(s.ctx(t), &cri.ExecSyncRequest{ContainerId: id, Cmd: []string{"/nonexistent"}, Timeout: 20})
	wantError(t, "a command that does not exist", err)

	for _, req := range []*cri.ExecRequest{{ContainerId: id, Cmd: sh("true"), Stdout: true}} {
		res, err := s.rt.Exec(s.ctx(t), req)
		if err != nil || !strings.HasPrefix(res.GetUrl(), "http") {
			t.Errorf("Exec: %q, %v", res.GetUrl(), err)
		}
	}
	s.stop(t, id, 0)
	_, err = s.rt.ExecSync(s.ctx(t), &cri.ExecSyncRequest{ContainerId: id, Cmd: sh("true"), Timeout: 20})
	wantError(t, "a command in an exited container", err)
}

func testUpdate(t *testing.T, s *suite) {
	p := s.runPod(t)
	cfg := s.script(t, p, "main", serve)
	cfg.Linux.Resources = &cri.LinuxContainerResources{CpuShares: 512, MemoryLimitInBytes: 64 << 20}
	id := s.start(t, p, cfg)
	if got := s.status(t, id).GetResources().GetLinux(); got.GetCpuShares() != 512 ||
		got.GetMemoryLimitInBytes() != 64<<20 {
		t.Errorf("at first: %v", got)
	}
	_, err := s.rt.UpdateContainerResources(s.ctx(t), &cri.UpdateContainerResourcesRequest{
		ContainerId: id, Linux: &cri.LinuxContainerResources{CpuShares: 256, MemoryLimitInBytes: 96 << 20},
	})
	if err != nil {
		t.Fatal(err)
	}
	st := s.status(t, id)
	wantState(t, st, cri.ContainerState_CONTAINER_RUNNING)
	if got := st.GetResources().GetLinux(); got.GetCpuShares() != 256 || got.GetMemoryLimitInBytes() != 96<<20 {
		t.Errorf("after the change: %v", got)
	}
}

func testStats(t *testing.T, s *suite) {
	p := s.runPod(t)
	id := s.start(t, p, s.script(t, p, "main", serve))
	res, err := s.rt.ContainerStats(s.ctx(t), &cri.ContainerStatsRequest{ContainerId: id})
	if err != nil {
		t.Fatal(err)
	}
	st := res.Stats
	if st.GetAttributes().GetId() != id || st.GetCpu().GetTimestamp() <= 0 ||
		st.GetCpu().GetUsageCoreNanoSeconds() == nil || st.GetMemory().GetWorkingSetBytes() == nil {
		t.Errorf("incomplete stats %v", st)
	}
	list, err := s.rt.ListContainerStats(s.ctx(t),
		&cri.ListContainerStatsRequest{Filter: &cri.ContainerStatsFilter{PodSandboxId: p.id}})
	if err != nil || len(list.Stats) != 1 || list.Stats[0].Attributes.GetId() != id {
		t.Errorf("ListContainerStats: %v, %v", list, err)
	}
}
