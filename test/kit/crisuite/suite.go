package crisuite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/kit/await"
)

// Config says what the suite runs against.
type Config struct {
	// Conn is a connection to the runtime's socket.
	Conn grpc.ClientConnInterface
	// Image is present on the node and has a POSIX shell with echo, sleep
	// (fractions of a second too), true, false and cat.
	Image string
	// Shell is the command that runs a script given as its last argument;
	// sh -c if empty.
	Shell []string
	// HostNetwork avoids the pod network, where there is no CNI.
	HostNetwork bool
	// Old says that the runtime is of the age of containerd 1.6: without events
	// and RuntimeConfig, and an error when something unknown is to be stopped.
	Old bool
	// CgroupParent for the sandboxes; the runtime's default if empty.
	CgroupParent string
	// Patience bounds every wait; 30 s if zero.
	Patience time.Duration
}

// Run runs the suite.
func Run(t *testing.T, cfg Config) {
	if cfg.Patience == 0 {
		cfg.Patience = 30 * time.Second
	}
	if len(cfg.Shell) == 0 {
		cfg.Shell = []string{"sh", "-c"}
	}
	s := &suite{Config: cfg, rt: cri.NewRuntimeServiceClient(cfg.Conn), im: cri.NewImageServiceClient(cfg.Conn)}
	for _, c := range []struct {
		name string
		test func(*testing.T, *suite)
	}{
		{"the runtime is ready", testReady},
		{"a sandbox from run to removal", testSandbox},
		{"two sandboxes cannot have one name", testSandboxName},
		{"a container from creation to removal", testContainer},
		{"what a container prints is in its log", testLog},
		{"stopping a container", testStop},
		{"a container that cannot be started", testStartFailure},
		{"containers end with their sandbox", testSandboxEnds},
		{"what is unknown", testUnknown},
		{"lists and filters", testFilters},
		{"exec", testExec},
		{"a log file is opened anew", testReopen},
		{"resources are changed in place", testUpdate},
		{"images", testImages},
		{"stats", testStats},
		{"events", testEvents},
		{"many at once", testParallel},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, s) })
	}
}

type suite struct {
	Config
	rt cri.RuntimeServiceClient
	im cri.ImageServiceClient
}

var serial atomic.Int64

// ctx ends before the test binary's own timeout would hide what was waited for.
func (s *suite) ctx(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), s.Patience)
	t.Cleanup(cancel)
	return ctx
}

// pod is a sandbox of the suite.
type pod struct {
	id  string
	cfg *cri.PodSandboxConfig
}

// sandboxConfig makes a configuration that no other test uses.
func (s *suite) sandboxConfig(t *testing.T) *cri.PodSandboxConfig {
	n := serial.Add(1)
	uid := fmt.Sprintf("00000000-0000-4000-8000-%012d", time.Now().UnixNano()%1e9*1000+n%1000)
	name := fmt.Sprintf("suite-%d", n)
	cfg := &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: name, Namespace: "crisuite", Uid: uid},
		Hostname:     name,
		LogDirectory: t.TempDir(),
		Labels:       map[string]string{"suite": name, "io.kubernetes.pod.uid": uid},
		Annotations:  map[string]string{"example.com/note": "kept as it is: {\"a\": 1}\n"},
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent: s.CgroupParent,
			SecurityContext: &cri.LinuxSandboxSecurityContext{
				NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER},
			},
		},
	}
	if s.HostNetwork {
		cfg.Hostname = ""
		cfg.Linux.SecurityContext.NamespaceOptions.Network = cri.NamespaceMode_NODE
	}
	return cfg
}

// runPod makes a ready sandbox that is removed at the end of the test.
func (s *suite) runPod(t *testing.T) pod {
	t.Helper()
	p := pod{cfg: s.sandboxConfig(t)}
	res, err := s.rt.RunPodSandbox(s.ctx(t), &cri.RunPodSandboxRequest{Config: p.cfg})
	if err != nil {
		t.Fatalf("RunPodSandbox: %v", err)
	}
	p.id = res.PodSandboxId
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.Patience)
		defer cancel()
		if _, err := s.rt.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil &&
			status.Code(err) != codes.NotFound {
			t.Errorf("StopPodSandbox in cleanup: %v", err)
		}
		if _, err := s.rt.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
			t.Errorf("RemovePodSandbox in cleanup: %v", err)
		}
	})
	return p
}

// script is the configuration of a container that runs a shell script.
func (s *suite) script(t *testing.T, p pod, name, text string) *cri.ContainerConfig {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(p.cfg.LogDirectory, name), 0o755); err != nil {
		t.Fatal(err)
	}
	return &cri.ContainerConfig{
		Metadata:    &cri.ContainerMetadata{Name: name},
		Image:       &cri.ImageSpec{Image: s.Image},
		Command:     s.Shell,
		Args:        []string{text},
		Labels:      map[string]string{"suite": p.cfg.Labels["suite"], "io.kubernetes.container.name": name},
		Annotations: map[string]string{"example.com/hash": "abc"},
		LogPath:     name + "/0.log",
		Linux:       &cri.LinuxContainerConfig{Resources: &cri.LinuxContainerResources{CpuShares: 100}},
	}
}

func (s *suite) create(t *testing.T, p pod, cfg *cri.ContainerConfig) string {
	t.Helper()
	res, err := s.rt.CreateContainer(s.ctx(t), &cri.CreateContainerRequest{
		PodSandboxId:  p.id,
		Config:        cfg,
		SandboxConfig: p.cfg,
	})
	if err != nil {
		t.Fatalf("CreateContainer: %v", err)
	}
	return res.ContainerId
}

func (s *suite) start(t *testing.T, p pod, cfg *cri.ContainerConfig) string {
	t.Helper()
	id := s.create(t, p, cfg)
	if _, err := s.rt.StartContainer(s.ctx(t), &cri.StartContainerRequest{ContainerId: id}); err != nil {
		t.Fatalf("StartContainer: %v", err)
	}
	return id
}

func (s *suite) stop(t *testing.T, id string, timeout int64) {
	t.Helper()
	if _, err := s.rt.StopContainer(s.ctx(t), &cri.StopContainerRequest{
		ContainerId: id,
		Timeout:     timeout,
	}); err != nil {
		t.Fatalf("StopContainer: %v", err)
	}
}

func (s *suite) remove(t *testing.T, id string) {
	t.Helper()
	if _, err := s.rt.RemoveContainer(s.ctx(t), &cri.RemoveContainerRequest{ContainerId: id}); err != nil {
		t.Fatalf("RemoveContainer: %v", err)
	}
}

func (s *suite) status(t *testing.T, id string) *cri.ContainerStatus {
	t.Helper()
	res, err := s.rt.ContainerStatus(s.ctx(t), &cri.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		t.Fatalf("ContainerStatus: %v", err)
	}
	return res.Status
}

// exited waits until the container has exited. It asks again and again: some
// runtimes under test have no events.
func (s *suite) exited(t *testing.T, id string) *cri.ContainerStatus {
	t.Helper()
	var st *cri.ContainerStatus
	await.Within(t, s.Patience, 10*time.Millisecond, "container "+id+" to exit", func() (string, bool) {
		st = s.status(t, id)
		return st.State.String(), st.State == cri.ContainerState_CONTAINER_EXITED
	})
	return st
}

func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("%s: %v, want code %s", what, err, want)
	}
}

func wantError(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error", what)
	}
}

func wantState(t *testing.T, st *cri.ContainerStatus, want cri.ContainerState) {
	t.Helper()
	if st.State != want {
		t.Errorf("state %s, want %s", st.State, want)
	}
}
