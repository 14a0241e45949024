package cri

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/kit/await"
	"keelson/test/kit/parity"
)

// server is a runtime that implements a few calls and records the deadline of each.
type server struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer

	apiVersion string
	configErrs []error
	config     *runtimeapi.RuntimeConfigResponse
	imageErr   error // of ImageFsInfo

	mu    sync.Mutex
	given map[string]time.Duration // 0: no deadline
	tries int
}

func (s *server) note(ctx context.Context, call string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.given == nil {
		s.given = map[string]time.Duration{}
	}
	s.given[call] = 0
	if d, ok := ctx.Deadline(); ok {
		s.given[call] = time.Until(d)
	}
}

func (s *server) Version(ctx context.Context, _ *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	s.note(ctx, "Version")
	return &runtimeapi.VersionResponse{RuntimeName: "fake", RuntimeVersion: "1.0", RuntimeApiVersion: s.apiVersion}, nil
}

func (s *server) RuntimeConfig(
	context.Context, *runtimeapi.RuntimeConfigRequest,
) (*runtimeapi.RuntimeConfigResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries++
	if len(s.configErrs) > 0 {
		err := s.configErrs[0]
		s.configErrs = s.configErrs[1:]
		return nil, err
	}
	return s.config, nil
}

func (s *server) RunPodSandbox(
	ctx context.Context, _ *runtimeapi.RunPodSandboxRequest,
) (*runtimeapi.RunPodSandboxResponse, error) {
	s.note(ctx, "RunPodSandbox")
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: "s1"}, nil
}

func (s *server) StopContainer(
	ctx context.Context, _ *runtimeapi.StopContainerRequest,
) (*runtimeapi.StopContainerResponse, error) {
	s.note(ctx, "StopContainer")
	return &runtimeapi.StopContainerResponse{}, nil
}

func (s *server) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	s.note(ctx, fmt.Sprintf("ExecSync/%d", r.Timeout))
	return &runtimeapi.ExecSyncResponse{ExitCode: 3}, nil
}

func (s *server) ContainerStatus(
	_ context.Context, r *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	return nil, status.Errorf(codes.NotFound, "no container %s", r.ContainerId)
}

// ListContainers answers with more than gRPC's default limit of 4 MiB.
func (s *server) ListContainers(
	context.Context, *runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	big := strings.Repeat("x", 1<<20)
	var cs []*runtimeapi.Container
	for range 10 {
		cs = append(cs, &runtimeapi.Container{Annotations: map[string]string{"big": big}})
	}
	return &runtimeapi.ListContainersResponse{Containers: cs}, nil
}

func (s *server) PullImage(ctx context.Context, _ *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	s.note(ctx, "PullImage")
	return &runtimeapi.PullImageResponse{ImageRef: "sha256:1"}, nil
}

func (s *server) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{}, s.imageErr
}

func serve(t *testing.T, socket string, s *server) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.MaxSendMsgSize(MaxMessage))
	runtimeapi.RegisterRuntimeServiceServer(g, s)
	runtimeapi.RegisterImageServiceServer(g, s)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			g.Stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

func dial(t *testing.T, cfg Config) *Client {
	t.Helper()
	if cfg.RequestTimeout == 0 {
		cfg.RequestTimeout = 20 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c, err := Dial(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestSocketPath(t *testing.T) {
	for _, tc := range []struct{ endpoint, want, err string }{
		{"unix:///run/containerd/containerd.sock", "/run/containerd/containerd.sock", ""},
		{"/run/crio/crio.sock", "/run/crio/crio.sock", ""},
		{"unix:/run/x.sock", "/run/x.sock", ""},
		{"", "", "is empty"},
		{"run/x.sock", "", "absolute"},
		{"unix://run/x.sock", "", "unix:///path"},
		{"unix:run/x.sock", "", "unix:///path"},
		{"tcp://127.0.0.1:1", "", "unix:///path"},
		{"127.0.0.1:1234", "", "127.0.0.1"},
		{"npipe:////./pipe/x", "", "unix:///path"},
	} {
		got, err := SocketPath(tc.endpoint)
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("SocketPath(%q) = %q, %v; want %q, error with %q", tc.endpoint, got, err, tc.want, tc.err)
		}
	}
}

func TestDialReportsInvalidEndpoint(t *testing.T) {
	_, err := Dial(Config{RuntimeEndpoint: "unix:///a.sock", ImageEndpoint: "tcp://x", RequestTimeout: time.Second})
	if err == nil || !strings.Contains(err.Error(), "image service endpoint") {
		t.Errorf("Dial = %v, want an error about the image service endpoint", err)
	}
}

func TestDeadlines(t *testing.T) {
	parity.ProvesPart(t, 2, "RT-09")
	socket := filepath.Join(t.TempDir(), "cri.sock")
	s := &server{apiVersion: "v1"}
	serve(t, socket, s)
	c, ctx := dial(t, Config{RuntimeEndpoint: "unix://" + socket}), t.Context()

	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.Version(ctx, &runtimeapi.VersionRequest{}))
	must(c.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{}))
	must(c.StopContainer(ctx, &runtimeapi.StopContainerRequest{Timeout: 30}))
	must(c.PullImage(ctx, &runtimeapi.PullImageRequest{}))
	must(c.ExecSync(ctx, &runtimeapi.ExecSyncRequest{}))
	resp, err := c.ExecSync(ctx, &runtimeapi.ExecSyncRequest{Timeout: 2})
	must(nil, err)
	if resp.ExitCode != 3 {
		t.Errorf("exit code = %d, want 3", resp.ExitCode)
	}
	for call, want := range map[string]time.Duration{
		"Version":       20 * time.Second,
		"RunPodSandbox": 40 * time.Second,
		"StopContainer": 50 * time.Second,
		"PullImage":     0,
		"ExecSync/0":    0,
		"ExecSync/2":    22 * time.Second,
	} {
		got, ok := s.given[call]
		if !ok || got > want || want-got > 5*time.Second {
			t.Errorf("%s was given %v (seen: %v), want %v", call, got, ok, want)
		}
	}
}

// deadlines records the deadline of each call, and makes none.
type deadlines struct {
	grpc.ClientConnInterface
	given map[string]time.Duration // 0: no deadline
}

func (d deadlines) Invoke(ctx context.Context, method string, _, _ any, _ ...grpc.CallOption) error {
	name := filepath.Base(method)
	d.given[name] = 0
	if t, ok := ctx.Deadline(); ok {
		d.given[name] = time.Until(t)
	}
	return status.Error(codes.Unavailable, "nobodyconnected to CRI service")
}

// All calls have the request timeout, except for those that may take longer.
func TestCallDeadlines(t *testing.T) {
	parity.ProvesPart(t, 2, "RT-09")
	synctest.Test(t, func(t *testing.T) {
		d := deadlines{given: map[string]time.Duration{}}
		client := reflect.ValueOf(Over(d, d, Config{RequestTimeout: 30 * time.Second}))
		want := map[string]time.Duration{"RunPodSandbox": time.Minute, "ExecSync": 0, "PullImage": 0}
		for _, name := range strings.Fields(`Version RunPodSandbox StopPodSandbox RemovePodSandbox PodSandboxStatus
			ListPodSandbox CreateContainer StartContainer StopContainer RemoveContainer ListContainers ContainerStatus
			UpdateContainerResources UpdatePodSandboxResources ReopenContainerLog ExecSync Exec Attach PortForward
			ContainerStats ListContainerStats PodSandboxStats ListPodSandboxStats UpdateRuntimeConfig Status
			ListMetricDescriptors ListPodSandboxMetrics ListImages ImageStatus PullImage RemoveImage ImageFsInfo`) {
			m := client.MethodByName(name)
			in := []reflect.Value{reflect.ValueOf(t.Context())}
			if m.Type().NumIn() == 2 {
				in = append(in, reflect.New(m.Type().In(1).Elem()))
			}
			m.Call(in)
			limit, other := want[name]
			if !other {
				limit = 30 * time.Second
			}
			if got, called := d.given[name]; !called || got != limit {
				t.Errorf("%s was given %v (called: %v), want %v", name, got, called, limit)
			}
		}
	})
}

func TestErrorsKeepGRPCStatus(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "cri.sock")
	serve(t, socket, &server{})
	var seen []string
	c := dial(t, Config{
		RuntimeEndpoint: socket,
		Observe: func(m string, _ time.Duration, err error) {
			seen = append(seen,
				fmt.Sprint(m, " ", err != nil))
		},
	})

	_, err := c.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: "c9"})
	if !IsNotFound(err) || IsUnavailable(err) || IsUnimplemented(err) {
		t.Errorf("ContainerStatus = %v, want not found", err)
	}
	if got, want := err.Error(), "read container c9: rpc error: code = NotFound desc = no container c9"; got != want {
		t.Errorf("error = %q, want %q", got, want)
	}
	if got, want := Cause(err).Error(), "rpc error: code = NotFound desc = no container c9"; got != want {
		t.Errorf("cause = %q, want %q", got, want)
	}
	if _, err := c.StartContainer(t.Context(),
		&runtimeapi.StartContainerRequest{ContainerId: "c9"}); !IsUnimplemented(err) {
		t.Errorf("StartContainer = %v, want unimplemented", err)
	}
	if err := c.ContainerEvents(t.Context(), nil); !IsUnimplemented(err) {
		t.Errorf("ContainerEvents = %v, want unimplemented", err)
	}
	if want := []string{"ContainerStatus true", "StartContainer true"}; fmt.Sprint(seen) != fmt.Sprint(want) {
		t.Errorf("observed %v, want %v", seen, want)
	}
}

func TestMessageSizeLimit(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "cri.sock")
	serve(t, socket, &server{})
	resp, err := dial(t, Config{RuntimeEndpoint: socket}).ListContainers(t.Context(),
		&runtimeapi.ListContainersRequest{})
	if n := len(resp.GetContainers()); err != nil || n != 10 {
		t.Errorf("ListContainers = %d containers, %v; want 10 of a megabyte each", n, err)
	}
}

func TestReconnectAfterRuntimeRestart(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "cri.sock")
	stop := serve(t, socket, &server{apiVersion: "v1"})
	c := dial(t, Config{RuntimeEndpoint: socket})
	if _, err := c.Version(t.Context(), &runtimeapi.VersionRequest{}); err != nil {
		t.Fatal(err)
	}
	stop()
	for range 5 { // long enough for the back-off to reach its bound
		if _, err := c.Version(t.Context(), &runtimeapi.VersionRequest{}); !IsUnavailable(err) {
			t.Fatalf("Version without a runtime = %v, want unavailable", err)
		}
		time.Sleep(300 * time.Millisecond)
	}
	serve(t, socket, &server{apiVersion: "v1"})
	await.Until(t, "the runtime after its return", func() (string, bool) {
		_, err := c.Version(t.Context(), &runtimeapi.VersionRequest{})
		return fmt.Sprint(err), err == nil
	})
}

// gRPC's own back-off would grow to two minutes.
func TestReconnectBackoffIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries []time.Time
		conn, err := grpc.NewClient("passthrough:///runtime",
			append(options(), grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
				tries = append(tries, time.Now())
				return nil, errors.New("nobodyconnected to CRI service")
			}))...)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := runtimeapi.NewRuntimeServiceClient(conn).Version(ctx, &runtimeapi.VersionRequest{},
			grpc.WaitForReady(true)); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("Version = %v", err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if len(tries) < 2500 {
			t.Errorf("%d tries within an hour", len(tries))
		}
		for i, at := range tries[1:] {
			if pause := at.Sub(tries[i]); pause > 1300*time.Millisecond { // a second, with a jitter of 20 %
				t.Fatalf("try %d came %v after the one before", i+1, pause)
			}
		}
	})
}

func TestHandshake(t *testing.T) {
	starting := status.Error(codes.Unavailable, "starting")
	cgroupfs := &runtimeapi.RuntimeConfigResponse{
		Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS},
	}
	for _, tc := range []struct {
		name   string
		server *server
		driver string
		tries  int
		err    string
	}{
		{"the runtime reports its cgroup driver", &server{apiVersion: "v1", config: cgroupfs}, "cgroupfs", 1, ""},
		{
			"a runtime without the call",
			&server{apiVersion: "v1", configErrs: []error{status.Error(codes.Unimplemented, "no")}},
			"",
			1,
			"",
		},
		{
			"a response without Linux",
			&server{apiVersion: "v1", config: &runtimeapi.RuntimeConfigResponse{}},
			"",
			1,
			"",
		},
		{
			"a second try is made",
			&server{apiVersion: "v1", configErrs: []error{starting}, config: cgroupfs},
			"cgroupfs",
			2,
			"",
		},
		{"another version cannot be used", &server{apiVersion: "v1alpha2"}, "", 0, `speaks version "v1alpha2"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			socket := filepath.Join(t.TempDir(), "cri.sock")
			serve(t, socket, tc.server)
			id, err := dial(t, Config{RuntimeEndpoint: socket}).Handshake(t.Context())
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("Handshake = %v, want error with %q", err, tc.err)
			}
			if id.CgroupDriver != tc.driver || tc.server.tries != tc.tries {
				t.Errorf("driver %q after %d tries, want %q after %d", id.CgroupDriver, tc.server.tries, tc.driver,
					tc.tries)
			}
		})
	}
	t.Run("three tries and no more", func(t *testing.T) {
		t.Parallel()
		socket := filepath.Join(t.TempDir(), "cri.sock")
		s := &server{apiVersion: "v1", configErrs: []error{starting, starting, starting, starting}}
		serve(t, socket, s)
		start := time.Now()
		_, err := dial(t, Config{RuntimeEndpoint: socket}).Handshake(t.Context())
		if !IsUnavailable(err) || s.tries != 3 || time.Since(start) < 4*time.Second {
			t.Errorf("Handshake = %v after %d tries and %v, want the runtime's error after 3 tries 2s apart", err,
				s.tries,
				time.Since(start))
		}
	})
}

func TestHandshakeLogsWaitOnce(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "cri.sock")
	out := logLines{lines: make(chan string, 100)}
	failed, observe := failures()
	c := dial(t, Config{RuntimeEndpoint: socket, Log: slog.New(slog.NewTextHandler(out, nil)), Observe: observe})
	got := make(chan error, 1)
	go func() {
		_, err := c.Handshake(t.Context())
		got <- err
	}()
	for range 4 { // the third attempt is over, with its message if there were one, when the fourth fails
		<-failed
	}
	serve(t, socket, &server{apiVersion: "v1", config: &runtimeapi.RuntimeConfigResponse{}})
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	close(out.lines)
	var log string
	for line := range out.lines {
		log += line
	}
	if w, f := strings.Count(log, "waiting for"), strings.Count(log, "connected to"); w != 1 || f != 1 {
		t.Errorf("%d messages about the wait, %d about the connection, want one each:\n%s", w, f, log)
	}
}

// failures reports calls that fail, for tests that wait for several.
func failures() (failed chan error, observe func(string, time.Duration, error)) {
	failed = make(chan error, 100)
	return failed, func(_ string, _ time.Duration, err error) {
		if err != nil {
			failed <- err
		}
	}
}

// logLines passes log lines on.
type logLines struct{ lines chan string }

func (s logLines) Write(b []byte) (int, error) {
	s.lines <- string(b)
	return len(b), nil
}

func TestHandshakeContextCancelled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := dial(t, Config{RuntimeEndpoint: filepath.Join(t.TempDir(), "none.sock")}).Handshake(ctx)
	if err == nil || !strings.Contains(err.Error(), "none.sock") {
		t.Errorf("Handshake = %v, want an error that names the socket", err)
	}
}

// The names are upstream's for all calls of both services. A streaming list counts as the list.
func TestOperationType(t *testing.T) {
	parity.ProvesPart(t, 2, "RT-19")
	for method, want := range map[string]string{
		"Version":                   "version",
		"Status":                    "status",
		"RuntimeConfig":             "runtime_config",
		"UpdateRuntimeConfig":       "update_runtime_config",
		"RunPodSandbox":             "run_podsandbox",
		"StopPodSandbox":            "stop_podsandbox",
		"RemovePodSandbox":          "remove_podsandbox",
		"PodSandboxStatus":          "podsandbox_status",
		"ListPodSandbox":            "list_podsandbox",
		"StreamPodSandboxes":        "list_podsandbox",
		"PodSandboxStats":           "podsandbox_stats",
		"ListPodSandboxStats":       "list_podsandbox_stats",
		"StreamPodSandboxStats":     "list_podsandbox_stats",
		"ListPodSandboxMetrics":     "list_podsandbox_metrics",
		"StreamPodSandboxMetrics":   "list_podsandbox_metrics",
		"ListMetricDescriptors":     "list_metric_descriptors",
		"UpdatePodSandboxResources": "update_podsandbox_resources",
		"PortForward":               "port_forward",
		"CreateContainer":           "create_container",
		"StartContainer":            "start_container",
		"StopContainer":             "stop_container",
		"RemoveContainer":           "remove_container",
		"ListContainers":            "list_containers",
		"StreamContainers":          "list_containers",
		"ContainerStatus":           "container_status",
		"UpdateContainerResources":  "update_container",
		"ReopenContainerLog":        "reopen_container_log",
		"ExecSync":                  "exec_sync",
		"Exec":                      "exec",
		"Attach":                    "attach",
		"ContainerStats":            "container_stats",
		"ListContainerStats":        "list_container_stats",
		"StreamContainerStats":      "list_container_stats",
		"CheckpointContainer":       "checkpoint_container",
		"GetContainerEvents":        "get_container_events",
		"ListImages":                "list_images",
		"StreamImages":              "list_images",
		"ImageStatus":               "image_status",
		"PullImage":                 "pull_image",
		"RemoveImage":               "remove_image",
		"ImageFsInfo":               "image_fs_info",
	} {
		if got := OperationType(method); got != want {
			t.Errorf("OperationType(%s) = %s, want %s", method, got, want)
		}
	}
}

// Client and server know the deadline, and either may notice it first.
func TestDeadlineExceededError(t *testing.T) {
	for _, tc := range []struct {
		code       codes.Code
		text, want string
	}{
		{codes.DeadlineExceeded, "stream terminated by RST_STREAM with error code: CANCEL", "context deadline exceeded"},
		{codes.DeadlineExceeded, "context deadline exceeded", "context deadline exceeded"},
		{codes.DeadlineExceeded, "failed to exec in container: timeout 1s exceeded",
			"failed to exec in container: timeout 1s exceeded"},
		{codes.Unavailable, "stream terminated by RST_STREAM with error code: CANCEL",
			"stream terminated by RST_STREAM with error code: CANCEL"},
	} {
		got := status.Convert(outOfTime(status.Error(tc.code, tc.text)))
		if got.Code() != tc.code || got.Message() != tc.want {
			t.Errorf("%v %q becomes %v %q, want %q", tc.code, tc.text, got.Code(), got.Message(), tc.want)
		}
	}
}
