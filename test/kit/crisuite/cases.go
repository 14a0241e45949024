package crisuite

import (
	"encoding/json"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// serve runs until SIGTERM and then exits with 7; stubborn ignores SIGTERM.
const (
	serve    = `trap 'exit 7' TERM; while true; do sleep 0.1; done`
	stubborn = `trap '' TERM; while true; do sleep 0.1; done`
)

func testReady(t *testing.T, s *suite) {
	v, err := s.rt.Version(s.ctx(t), &cri.VersionRequest{Version: "0.1.0"})
	if err != nil {
		t.Fatal(err)
	}
	if v.RuntimeName == "" || v.RuntimeVersion == "" || v.RuntimeApiVersion != "v1" {
		t.Errorf("Version: %v", v)
	}
	st, err := s.rt.Status(s.ctx(t), &cri.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{cri.RuntimeReady, cri.NetworkReady} {
		i := slices.IndexFunc(st.Status.Conditions, func(c *cri.RuntimeCondition) bool { return c.Type == want })
		switch {
		case i < 0:
			t.Errorf("there is no condition %s", want)
		case !st.Status.Conditions[i].Status && (want != cri.NetworkReady || !s.HostNetwork):
			t.Errorf("%s is false: %s", want, st.Status.Conditions[i].Message)
		}
	}
	if len(st.Info) > 0 {
		t.Error("Status tells more than it was asked for")
	}
	rc, err := s.rt.RuntimeConfig(s.ctx(t), &cri.RuntimeConfigRequest{})
	if s.Old {
		wantCode(t, "RuntimeConfig", err, codes.Unimplemented)
	} else if err != nil || rc.GetLinux() == nil {
		t.Errorf("RuntimeConfig: %v, %v", rc, err)
	}
}

func testSandbox(t *testing.T, s *suite) {
	before := time.Now().UnixNano()
	p := s.runPod(t)
	get := func() *cri.PodSandboxStatus {
		t.Helper()
		res, err := s.rt.PodSandboxStatus(s.ctx(t), &cri.PodSandboxStatusRequest{PodSandboxId: p.id})
		if err != nil {
			t.Fatalf("PodSandboxStatus: %v", err)
		}
		return res.Status
	}

	st := get()
	if st.Id != p.id || st.State != cri.PodSandboxState_SANDBOX_READY {
		t.Errorf("after run: id %s, state %s", st.Id, st.State)
	}
	if st.CreatedAt < before || st.CreatedAt > time.Now().UnixNano() {
		t.Errorf("created at %d, not during the call", st.CreatedAt)
	}
	if m := p.cfg.Metadata; st.Metadata.Name != m.Name || st.Metadata.Namespace != m.Namespace || st.Metadata.Uid != m.Uid || st.Metadata.Attempt != 0 {
		t.Errorf("metadata %v, want %v", st.Metadata, m)
	}
	if !maps.Equal(st.Labels, p.cfg.Labels) || !maps.Equal(st.Annotations, p.cfg.Annotations) {
		t.Errorf("labels %q and annotations %q were altered", st.Labels, st.Annotations)
	}
	ip := st.GetNetwork().GetIp()
	if _, err := netip.ParseAddr(ip); s.HostNetwork == (err == nil) {
		t.Errorf("address %q with host network %v", ip, s.HostNetwork)
	}
	verbose, err := s.rt.PodSandboxStatus(s.ctx(t), &cri.PodSandboxStatusRequest{PodSandboxId: p.id, Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	var info struct{ Pid int }
	if err := json.Unmarshal([]byte(verbose.Info["info"]), &info); err != nil || info.Pid <= 0 {
		t.Errorf("verbose info has pid %d, %v", info.Pid, err)
	}

	for range 2 {
		if _, err := s.rt.StopPodSandbox(s.ctx(t), &cri.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
			t.Fatalf("StopPodSandbox: %v", err)
		}
		if st := get(); st.State != cri.PodSandboxState_SANDBOX_NOTREADY {
			t.Errorf("after stop: %s", st.State)
		}
	}
	for range 2 {
		if _, err := s.rt.RemovePodSandbox(s.ctx(t), &cri.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
			t.Fatalf("RemovePodSandbox: %v", err)
		}
		_, err = s.rt.PodSandboxStatus(s.ctx(t), &cri.PodSandboxStatusRequest{PodSandboxId: p.id})
		wantCode(t, "status of a removed sandbox", err, codes.NotFound)
	}
}

func testSandboxName(t *testing.T, s *suite) {
	p := s.runPod(t)
	_, err := s.rt.RunPodSandbox(s.ctx(t), &cri.RunPodSandboxRequest{Config: p.cfg})
	wantError(t, "a second sandbox of the same name and attempt", err)

	next := s.sandboxConfig(t)
	next.Metadata = &cri.PodSandboxMetadata{Name: p.cfg.Metadata.Name, Namespace: p.cfg.Metadata.Namespace, Uid: p.cfg.Metadata.Uid, Attempt: 1}
	res, err := s.rt.RunPodSandbox(s.ctx(t), &cri.RunPodSandboxRequest{Config: next})
	if err != nil {
		t.Fatalf("a second attempt beside the first: %v", err)
	}
	if _, err := s.rt.RemovePodSandbox(s.ctx(t), &cri.RemovePodSandboxRequest{PodSandboxId: res.PodSandboxId}); err != nil {
		t.Fatalf("removing a ready sandbox: %v", err)
	}

	_, err = s.rt.RunPodSandbox(s.ctx(t), &cri.RunPodSandboxRequest{Config: s.sandboxConfig(t), RuntimeHandler: "no-such-handler"})
	wantError(t, "an unknown runtime handler", err)
}

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
	_, err = s.rt.CreateContainer(s.ctx(t), &cri.CreateContainerRequest{PodSandboxId: p.id, Config: cfg, SandboxConfig: p.cfg})
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

// logLine is one line of the CRI log format.
var logLine = regexp.MustCompile(`^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) (stdout|stderr) ([FP]) (.*)$`)

// logOf reads a log without its times, sorted by stream.
func logOf(t *testing.T, path string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		m := logLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			t.Fatalf("%q is not a line of CRI format", line)
		}
		if _, err := time.Parse(time.RFC3339Nano, m[1]); err != nil {
			t.Errorf("time of %q: %v", line, err)
		}
		out[m[2]] = append(out[m[2]], m[3]+" "+m[4])
	}
	return out
}

func testLog(t *testing.T, s *suite) {
	p := s.runPod(t)
	cfg := s.script(t, p, "main", `echo one; echo two >&2; echo "$GREETING"; echo -n tail`)
	cfg.LogPath = "made-by-the-runtime/0.log"
	cfg.Envs = []*cri.KeyValue{{Key: "GREETING", Value: []byte("hello there")}}
	st := s.exited(t, s.start(t, p, cfg))
	got := logOf(t, st.LogPath)
	if want := []string{"F one", "F hello there", "P tail"}; !slices.Equal(got["stdout"], want) {
		t.Errorf("stdout %q, want %q", got["stdout"], want)
	}
	if want := []string{"F two"}; !slices.Equal(got["stderr"], want) {
		t.Errorf("stderr %q, want %q", got["stderr"], want)
	}
	s.remove(t, st.Id)
	if _, err := os.Stat(st.LogPath); err != nil {
		t.Errorf("the log went with the container: %v", err)
	}
}

func testStop(t *testing.T, s *suite) {
	p := s.runPod(t)
	t.Run("it obeys SIGTERM", func(t *testing.T) {
		id := s.start(t, p, s.script(t, p, "obeys", serve))
		settle(t, s, id)
		s.stop(t, id, 20)
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

// settle gives the shell time to set its trap: nothing outside tells when.
func settle(t *testing.T, s *suite, id string) {
	t.Helper()
	res, err := s.rt.ExecSync(s.ctx(t), &cri.ExecSyncRequest{ContainerId: id, Cmd: append(slices.Clone(s.Shell), "sleep 0.3"), Timeout: 20})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("ExecSync: %v, exit code %d", err, res.GetExitCode())
	}
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
	_, err = s.rt.CreateContainer(s.ctx(t), &cri.CreateContainerRequest{PodSandboxId: p.id, Config: cfg, SandboxConfig: p.cfg})
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

func testSandboxEnds(t *testing.T, s *suite) {
	p := s.runPod(t)
	id := s.start(t, p, s.script(t, p, "main", stubborn))
	if _, err := s.rt.StopPodSandbox(s.ctx(t), &cri.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Fatal(err)
	}
	st := s.exited(t, id)
	if st.ExitCode != 137 {
		t.Errorf("exit code %d, want 137: a sandbox gives no grace", st.ExitCode)
	}
	_, err := s.rt.CreateContainer(s.ctx(t), &cri.CreateContainerRequest{PodSandboxId: p.id, Config: s.script(t, p, "late", serve), SandboxConfig: p.cfg})
	wantError(t, "creating a container in a stopped sandbox", err)
	if _, err := s.rt.RemovePodSandbox(s.ctx(t), &cri.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Fatal(err)
	}
	_, err = s.rt.ContainerStatus(s.ctx(t), &cri.ContainerStatusRequest{ContainerId: id})
	wantCode(t, "status of a container whose sandbox is removed", err, codes.NotFound)
}

func testUnknown(t *testing.T, s *suite) {
	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	ctx := s.ctx(t)
	// What is gone is stopped; containerd 1.6 did not say so yet.
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
	_, err = s.rt.UpdateContainerResources(ctx, &cri.UpdateContainerResourcesRequest{ContainerId: id, Linux: &cri.LinuxContainerResources{CpuShares: 2}})
	wantCode(t, "UpdateContainerResources", err, codes.NotFound)
	_, err = s.rt.ContainerStats(ctx, &cri.ContainerStatsRequest{ContainerId: id})
	wantError(t, "ContainerStats", err)

	if res, err := s.rt.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{Id: id}}); err != nil || len(res.Containers) > 0 {
		t.Errorf("ListContainers: %v, %v", res, err)
	}
	if res, err := s.rt.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{Id: id}}); err != nil || len(res.Items) > 0 {
		t.Errorf("ListPodSandbox: %v, %v", res, err)
	}
}

func testFilters(t *testing.T, s *suite) {
	a, b := s.runPod(t), s.runPod(t)
	up := s.start(t, a, s.script(t, a, "up", serve))
	down := s.start(t, a, s.script(t, a, "down", "true"))
	other := s.create(t, b, s.script(t, b, "other", serve))
	s.exited(t, down)
	if _, err := s.rt.StopPodSandbox(s.ctx(t), &cri.StopPodSandboxRequest{PodSandboxId: b.id}); err != nil {
		t.Fatal(err)
	}

	label := func(p pod) map[string]string { return map[string]string{"suite": p.cfg.Labels["suite"]} }
	state := func(st cri.ContainerState) *cri.ContainerStateValue { return &cri.ContainerStateValue{State: st} }
	for _, c := range []struct {
		name   string
		filter *cri.ContainerFilter
		want   []string
	}{
		{"by sandbox", &cri.ContainerFilter{PodSandboxId: a.id}, []string{up, down}},
		{"by label", &cri.ContainerFilter{LabelSelector: label(b)}, []string{other}},
		{"by id", &cri.ContainerFilter{Id: down}, []string{down}},
		{"by state and sandbox", &cri.ContainerFilter{PodSandboxId: a.id, State: state(cri.ContainerState_CONTAINER_RUNNING)}, []string{up}},
		{"exited ones", &cri.ContainerFilter{LabelSelector: label(a), State: state(cri.ContainerState_CONTAINER_EXITED)}, []string{down}},
		{"all must match", &cri.ContainerFilter{Id: up, PodSandboxId: b.id}, nil},
		{"two labels", &cri.ContainerFilter{LabelSelector: map[string]string{"suite": a.cfg.Labels["suite"], "io.kubernetes.container.name": "up"}}, []string{up}},
	} {
		res, err := s.rt.ListContainers(s.ctx(t), &cri.ListContainersRequest{Filter: c.filter})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var got []string
		for _, item := range res.Containers {
			got = append(got, item.Id)
			if item.PodSandboxId == "" || item.Metadata.GetName() == "" || item.ImageRef == "" || item.CreatedAt <= 0 {
				t.Errorf("%s: incomplete item %v", c.name, item)
			}
		}
		wantSet(t, c.name, got, c.want)
	}

	pstate := func(st cri.PodSandboxState) *cri.PodSandboxStateValue { return &cri.PodSandboxStateValue{State: st} }
	for _, c := range []struct {
		name   string
		filter *cri.PodSandboxFilter
		want   []string
	}{
		{"by id", &cri.PodSandboxFilter{Id: a.id}, []string{a.id}},
		{"by label and state", &cri.PodSandboxFilter{LabelSelector: label(b), State: pstate(cri.PodSandboxState_SANDBOX_NOTREADY)}, []string{b.id}},
		{"the wrong state", &cri.PodSandboxFilter{LabelSelector: label(b), State: pstate(cri.PodSandboxState_SANDBOX_READY)}, nil},
	} {
		res, err := s.rt.ListPodSandbox(s.ctx(t), &cri.ListPodSandboxRequest{Filter: c.filter})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var got []string
		for _, item := range res.Items {
			got = append(got, item.Id)
		}
		wantSet(t, "sandboxes "+c.name, got, c.want)
	}
}

func wantSet(t *testing.T, what string, got, want []string) {
	t.Helper()
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func testExec(t *testing.T, s *suite) {
	p := s.runPod(t)
	id := s.start(t, p, s.script(t, p, "main", serve))
	sh := func(script string) []string { return append(slices.Clone(s.Shell), script) }

	res, err := s.rt.ExecSync(s.ctx(t), &cri.ExecSyncRequest{ContainerId: id, Cmd: sh("echo out; echo err >&2; exit 5"), Timeout: 20})
	if err != nil {
		t.Fatal(err)
	}
	if string(res.Stdout) != "out\n" || string(res.Stderr) != "err\n" || res.ExitCode != 5 {
		t.Errorf("stdout %q, stderr %q, exit code %d", res.Stdout, res.Stderr, res.ExitCode)
	}
	begin := time.Now()
	_, err = s.rt.ExecSync(s.ctx(t), &cri.ExecSyncRequest{ContainerId: id, Cmd: sh("sleep 20"), Timeout: 1})
	wantCode(t, "a command that outlasts its timeout", err, codes.DeadlineExceeded)
	if took := time.Since(begin); took < time.Second || took > 15*time.Second {
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

func testReopen(t *testing.T, s *suite) {
	p := s.runPod(t)
	id := s.start(t, p, s.script(t, p, "main", "echo before; sleep 1; echo after; "+serve))
	path := s.status(t, id).LogPath
	waitFor(t, s, "the first line", func() bool { return len(logOf(t, path)["stdout"]) == 1 })
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.rt.ReopenContainerLog(s.ctx(t), &cri.ReopenContainerLogRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, s, "the second line", func() bool { return len(logOf(t, path)["stdout"]) == 1 })
	if got := logOf(t, path)["stdout"]; got[0] != "F after" {
		t.Errorf("the new file has %q", got)
	}
	if got := logOf(t, path+".old")["stdout"]; !slices.Equal(got, []string{"F before"}) {
		t.Errorf("the old file has %q", got)
	}
	s.stop(t, id, 0)
	_, err := s.rt.ReopenContainerLog(s.ctx(t), &cri.ReopenContainerLogRequest{ContainerId: id})
	wantError(t, "reopening the log of an exited container", err)
}

// waitFor waits for something that no call reports.
func waitFor(t *testing.T, s *suite, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(s.Patience); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func testUpdate(t *testing.T, s *suite) {
	p := s.runPod(t)
	cfg := s.script(t, p, "main", serve)
	cfg.Linux.Resources = &cri.LinuxContainerResources{CpuShares: 512, MemoryLimitInBytes: 64 << 20}
	id := s.start(t, p, cfg)
	if got := s.status(t, id).GetResources().GetLinux(); got.GetCpuShares() != 512 || got.GetMemoryLimitInBytes() != 64<<20 {
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

func testImages(t *testing.T, s *suite) {
	res, err := s.im.ImageStatus(s.ctx(t), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: s.Image}})
	if err != nil || res.Image == nil {
		t.Fatalf("the suite's image %s: %v, %v", s.Image, res, err)
	}
	if res.Image.Size == 0 || len(res.Image.RepoTags) == 0 {
		t.Errorf("incomplete image %v", res.Image)
	}
	same, err := s.im.ImageStatus(s.ctx(t), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: res.Image.Id}})
	if err != nil || same.Image.GetId() != res.Image.Id {
		t.Errorf("by id: %v, %v", same, err)
	}
	list, err := s.im.ListImages(s.ctx(t), &cri.ListImagesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(list.Images, func(i *cri.Image) bool { return i.Id == res.Image.Id }) {
		t.Error("the list lacks the suite's image")
	}

	missing := &cri.ImageSpec{Image: "registry.invalid/no/such:image"}
	none, err := s.im.ImageStatus(s.ctx(t), &cri.ImageStatusRequest{Image: missing})
	if err != nil || none.Image != nil {
		t.Errorf("status of a missing image: %v, %v", none, err)
	}
	if _, err := s.im.RemoveImage(s.ctx(t), &cri.RemoveImageRequest{Image: missing}); err != nil {
		t.Errorf("removing a missing image: %v", err)
	}
	_, err = s.im.PullImage(s.ctx(t), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: "NOT A REFERENCE"}})
	wantError(t, "pulling a malformed reference", err)

	fs, err := s.im.ImageFsInfo(s.ctx(t), &cri.ImageFsInfoRequest{})
	if err != nil || len(fs.ImageFilesystems) == 0 || fs.ImageFilesystems[0].GetFsId().GetMountpoint() == "" || fs.ImageFilesystems[0].Timestamp <= 0 {
		t.Errorf("ImageFsInfo: %v, %v", fs, err)
	}

	p := s.runPod(t)
	st := s.status(t, s.create(t, p, s.script(t, p, "main", serve)))
	if st.ImageId != res.Image.Id && !s.Old {
		t.Errorf("the container's image id is %s, the image's is %s", st.ImageId, res.Image.Id)
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
	if st.GetAttributes().GetId() != id || st.GetCpu().GetTimestamp() <= 0 || st.GetCpu().GetUsageCoreNanoSeconds() == nil || st.GetMemory().GetWorkingSetBytes() == nil {
		t.Errorf("incomplete stats %v", st)
	}
	list, err := s.rt.ListContainerStats(s.ctx(t), &cri.ListContainerStatsRequest{Filter: &cri.ContainerStatsFilter{PodSandboxId: p.id}})
	if err != nil || len(list.Stats) != 1 || list.Stats[0].Attributes.GetId() != id {
		t.Errorf("ListContainerStats: %v, %v", list, err)
	}
}

func testEvents(t *testing.T, s *suite) {
	if s.Old {
		stream, err := s.rt.GetContainerEvents(s.ctx(t), &cri.GetEventsRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		wantCode(t, "an event stream that is not there", err, codes.Unimplemented)
		return
	}
	stream, err := s.rt.GetContainerEvents(s.ctx(t), &cri.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	p := s.runPod(t)
	id := s.start(t, p, s.script(t, p, "main", serve))
	s.stop(t, id, 0)
	s.remove(t, id)
	if _, err := s.rt.StopPodSandbox(s.ctx(t), &cri.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.rt.RemovePodSandbox(s.ctx(t), &cri.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Fatal(err)
	}

	type event struct {
		id   string
		kind cri.ContainerEventType
	}
	want := []event{
		{p.id, cri.ContainerEventType_CONTAINER_CREATED_EVENT},
		{p.id, cri.ContainerEventType_CONTAINER_STARTED_EVENT},
		{id, cri.ContainerEventType_CONTAINER_CREATED_EVENT},
		{id, cri.ContainerEventType_CONTAINER_STARTED_EVENT},
		{id, cri.ContainerEventType_CONTAINER_STOPPED_EVENT},
		{id, cri.ContainerEventType_CONTAINER_DELETED_EVENT},
		{p.id, cri.ContainerEventType_CONTAINER_STOPPED_EVENT},
		{p.id, cri.ContainerEventType_CONTAINER_DELETED_EVENT},
	}
	var got []event
	for len(got) < len(want) {
		e, err := stream.Recv()
		if err != nil {
			t.Fatalf("after %v: %v", got, err)
		}
		if e.ContainerId != p.id && e.ContainerId != id {
			continue // of another test's leftovers
		}
		got = append(got, event{e.ContainerId, e.ContainerEventType})
		if e.CreatedAt <= 0 {
			t.Errorf("event %v has no time", e)
		}
		if e.ContainerId == id && e.ContainerEventType == cri.ContainerEventType_CONTAINER_STOPPED_EVENT {
			i := slices.IndexFunc(e.ContainersStatuses, func(c *cri.ContainerStatus) bool { return c.Id == id })
			if i < 0 || e.ContainersStatuses[i].State != cri.ContainerState_CONTAINER_EXITED || e.ContainersStatuses[i].ExitCode != 137 {
				t.Errorf("the stop event does not show the exited container: %v", e.ContainersStatuses)
			}
			if e.PodSandboxStatus.GetMetadata().GetUid() != p.cfg.Metadata.Uid {
				t.Errorf("the stop event does not name the pod: %v", e.PodSandboxStatus)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("events\n%v, want\n%v", got, want)
	}
}

func testParallel(t *testing.T, s *suite) {
	const n = 5
	pods := make([]pod, n)
	for i := range pods {
		pods[i].cfg = s.sandboxConfig(t)
	}
	ctx := s.ctx(t)
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range pods {
		wg.Go(func() {
			res, err := s.rt.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: pods[i].cfg})
			if errs[i] = err; err == nil {
				pods[i].id = res.PodSandboxId
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for i, p := range pods {
		if errs[i] != nil {
			t.Errorf("RunPodSandbox: %v", errs[i])
			continue
		}
		res, err := s.rt.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: p.id})
		if err != nil {
			t.Errorf("PodSandboxStatus: %v", err)
		}
		if ip := res.GetStatus().GetNetwork().GetIp(); ip != "" {
			if seen[ip] {
				t.Errorf("address %s is given twice", ip)
			}
			seen[ip] = true
		}
		if _, err := s.rt.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
			t.Errorf("RemovePodSandbox: %v", err)
		}
	}
}
