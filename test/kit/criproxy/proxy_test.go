package criproxy_test

import (
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/kit/criproxy"
	"keelson/test/kit/crisuite"
	"keelson/test/kit/fakecri"
)

// node is the fake runtime behind a proxy.
type node struct {
	*criproxy.Proxy
	fake   *fakecri.Runtime
	socket string // of the proxy
	conn   *grpc.ClientConn
	rt     cri.RuntimeServiceClient

	mu    sync.Mutex
	calls []fakecri.Call
	asked []any // their requests
}

func newNode(t *testing.T, opts criproxy.Options) *node {
	t.Helper()
	dir := t.TempDir()
	n := &node{fake: fakecri.New(fakecri.Options{}), socket: filepath.Join(dir, "proxy.sock")}
	t.Cleanup(n.fake.Close)
	n.fake.AddImage(fakecri.Image{Name: "busybox:1.37", Size: 4 << 20, Local: true})
	opts.Target = filepath.Join(dir, "cri.sock")
	if err := n.fake.Listen(opts.Target); err != nil {
		t.Fatal(err)
	}
	opts.OnCall = func(c fakecri.Call, req, _ any) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.calls, n.asked = append(n.calls, c), append(n.asked, req)
	}
	var err error
	if n.Proxy, err = criproxy.New(opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := n.Listen(n.socket); err != nil {
		t.Fatal(err)
	}
	n.conn, err = grpc.NewClient("unix://"+n.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.conn.Close() })
	n.rt = cri.NewRuntimeServiceClient(n.conn)
	return n
}

// start runs a pod named a/web with one container, main, in its third attempt.
func (n *node) start(t *testing.T, command ...string) (sandbox, container string) {
	t.Helper()
	box := &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: "web", Namespace: "a", Uid: "uid-web"},
		LogDirectory: t.TempDir(),
	}
	run, err := n.rt.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: box})
	if err != nil {
		t.Fatal(err)
	}
	made, err := n.rt.CreateContainer(t.Context(), &cri.CreateContainerRequest{
		PodSandboxId:  run.PodSandboxId,
		SandboxConfig: box,
		Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: "main", Attempt: 2},
			Image:    &cri.ImageSpec{Image: "busybox:1.37"},
			Command:  command,
			LogPath:  "main.log",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.rt.StartContainer(t.Context(),
		&cri.StartContainerRequest{ContainerId: made.ContainerId}); err != nil {
		t.Fatal(err)
	}
	return run.PodSandboxId, made.ContainerId
}

// called is the one call of a method that has ended, with its request.
func (n *node) called(t *testing.T, method string) (fakecri.Call, any) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.IndexFunc(n.calls, func(c fakecri.Call) bool { return c.Method == method })
	if i < 0 {
		t.Fatalf("no call of %s is recorded", method)
	}
	return n.calls[i], n.asked[i]
}

// TestSuite runs the suite for runtimes against the fake one behind a proxy.
func TestSuite(t *testing.T) {
	n := newNode(t, criproxy.Options{})
	crisuite.Run(t, crisuite.Config{Conn: n.conn, Image: "busybox:1.37"})
}

func TestCallsAreRecorded(t *testing.T) {
	n := newNode(t, criproxy.Options{})
	_, id := n.start(t, "sleep", "infinity")
	if _, err := n.rt.StopContainer(t.Context(), &cri.StopContainerRequest{ContainerId: id, Timeout: 7}); err != nil {
		t.Fatal(err)
	}
	stop, _ := n.called(t, "StopContainer")
	if stop.Pod != "a/web" || stop.UID != "uid-web" || stop.Container != "main" || stop.Attempt != 2 ||
		stop.Timeout != 7 || !stop.Done || stop.Err != "" {
		t.Errorf("StopContainer is recorded as %+v", stop)
	}
	made, _ := n.called(t, "CreateContainer")
	if !made.Start.Before(stop.Start) || stop.End.Before(stop.Start) || made.Image != "busybox:1.37" {
		t.Errorf("CreateContainer is recorded as %+v", made)
	}
	_, err := n.rt.StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: "unknown"})
	if status.Code(err) != codes.NotFound {
		t.Errorf("StartContainer of an unknown container: %v, want NotFound", err)
	}
	n.mu.Lock()
	last := n.calls[len(n.calls)-1]
	n.mu.Unlock()
	if last.Method != "StartContainer" || last.Code != codes.NotFound || last.Err == "" || last.Done {
		t.Errorf("a call that failed is recorded as %+v", last)
	}
	if n.Open("a/web") != 0 {
		t.Error("a call is reported to be under way")
	}
}

// TestCommandIsReplaced has the runtime run another command than the recorded request asks for.
func TestCommandIsReplaced(t *testing.T) {
	n := newNode(t, criproxy.Options{OnCreate: func(box *cri.PodSandboxConfig, c *cri.ContainerConfig) {
		if box.GetMetadata().GetName() == "web" && c.GetMetadata().GetName() == "main" {
			c.Command = []string{"sh", "-c", "exit 9"}
		}
	}})
	events, err := n.rt.GetContainerEvents(t.Context(), &cri.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, id := n.start(t, "sleep", "infinity")
	for {
		e, err := events.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if e.ContainerId == id && e.ContainerEventType == cri.ContainerEventType_CONTAINER_STOPPED_EVENT {
			break
		}
	}
	st, err := n.rt.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: id})
	if err != nil || st.Status.ExitCode != 9 {
		t.Errorf("the container ended with %v, %v, want code 9", st, err)
	}
	_, req := n.called(t, "CreateContainer")
	if !slices.Equal(req.(*cri.CreateContainerRequest).Config.Command, []string{"sleep", "infinity"}) {
		t.Errorf("the request is recorded as %v", req)
	}
	if config, _ := n.Container(id); !slices.Equal(config.GetCommand(), []string{"sleep", "infinity"}) {
		t.Errorf("the container's configuration is %v", config)
	}
}

// TestContainerBeforeItsSandboxIsAnswered creates a container while RunPodSandbox has not been answered yet.
func TestContainerBeforeItsSandboxIsAnswered(t *testing.T) {
	var named []string
	n := newNode(t, criproxy.Options{OnCreate: func(box *cri.PodSandboxConfig, _ *cri.ContainerConfig) {
		named = append(named, box.GetMetadata().GetName())
	}})
	n.fake.Inject(fakecri.Fault{Method: "RunPodSandbox", After: true, Delay: time.Hour, Times: 1})
	box := &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: "web", Namespace: "a", Uid: "uid-web"},
		LogDirectory: t.TempDir(),
	}
	go n.rt.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: box})
	events, err := n.rt.GetContainerEvents(t.Context(), &cri.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := events.Recv()
	if err != nil {
		t.Fatal(err)
	}
	_, err = n.rt.CreateContainer(t.Context(), &cri.CreateContainerRequest{
		PodSandboxId:  e.PodSandboxStatus.Id,
		SandboxConfig: box,
		Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: "main"},
			Image:    &cri.ImageSpec{Image: "busybox:1.37"},
			LogPath:  "main.log",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if made, _ := n.called(t, "CreateContainer"); made.Pod != "a/web" || made.UID != "uid-web" {
		t.Errorf("CreateContainer is recorded as %+v", made)
	}
	if !slices.Equal(named, []string{"web"}) {
		t.Errorf("the hook for creations was called for %q, want web", named)
	}
}

func TestExecIsAnswered(t *testing.T) {
	n := newNode(t, criproxy.Options{OnExec: func(e fakecri.Exec) (fakecri.ExecResult, bool) {
		switch {
		case e.Pod != "a/web" || e.Container != "main":
		case e.Command[0] == "probe":
			return fakecri.ExecResult{Stdout: "not well", Code: 1}, true
		case e.Command[0] == "slow":
			return fakecri.ExecResult{After: time.Hour}, true
		}
		return fakecri.ExecResult{}, false
	}})
	_, id := n.start(t, "sleep", "infinity")
	exec := func(command ...string) (*cri.ExecSyncResponse, error) {
		return n.rt.ExecSync(t.Context(), &cri.ExecSyncRequest{ContainerId: id, Cmd: command, Timeout: 1})
	}
	if res, err := exec("probe"); err != nil || string(res.Stdout) != "not well" || res.ExitCode != 1 {
		t.Errorf("the hook's exec: %v, %v", res, err)
	}
	if _, err := exec("slow"); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("an exec that takes too long: %v, want DeadlineExceeded", err)
	}
	if asked := n.fake.Usage()["ExecSync"].Calls; asked != 0 {
		t.Errorf("the runtime was asked %d times", asked)
	}
	if res, err := exec("echo", "hello"); err != nil || string(res.Stdout) != "hello\n" {
		t.Errorf("an exec that is forwarded: %v, %v", res, err)
	}
	if call, _ := n.called(t, "ExecSync"); !slices.Equal(call.Command, []string{"probe"}) || call.Timeout != 1 {
		t.Errorf("ExecSync is recorded as %+v", call)
	}
}

// TestOpenCalls counts a call for a pod while the runtime does not answer.
func TestOpenCalls(t *testing.T) {
	n := newNode(t, criproxy.Options{})
	_, id := n.start(t, "sleep", "infinity")
	fault := n.fake.Inject(fakecri.Fault{Method: "StopContainer", Delay: time.Hour, Times: 1})
	done := make(chan error)
	go func() {
		_, err := n.rt.StopContainer(t.Context(), &cri.StopContainerRequest{ContainerId: id})
		done <- err
	}()
	<-fault.Hit()
	if got := n.Open("a/web"); got != 1 {
		t.Errorf("%d calls are under way, want 1", got)
	}
	fault.Release()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestDisconnect disconnects clients from the proxy. After a reconnect the proxy still has what was created before.
func TestDisconnect(t *testing.T) {
	n := newNode(t, criproxy.Options{})
	box, id := n.start(t, "sleep", "infinity")
	n.Disconnect()
	if _, err := n.rt.Version(t.Context(), &cri.VersionRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("a call without a proxy: %v, want Unavailable", err)
	}
	if err := n.Listen(n.socket); err != nil {
		t.Fatal(err)
	}
	remove := &cri.RemoveContainerRequest{ContainerId: id}
	if _, err := n.rt.RemoveContainer(t.Context(), remove, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	if removed, _ := n.called(t, "RemoveContainer"); removed.Pod != "a/web" || removed.Container != "main" {
		t.Errorf("RemoveContainer is recorded as %+v", removed)
	}
	if config, _ := n.Container(id); config != nil {
		t.Errorf("a removed container is remembered: %v", config)
	}
	if config := n.Sandbox(box); config.GetMetadata().GetName() != "web" {
		t.Errorf("the sandbox is remembered as %v", config)
	}
}
