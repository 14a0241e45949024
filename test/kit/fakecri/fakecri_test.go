package fakecri_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/kit/fakecri"
)

// node is a runtime in memory with a client.
type node struct {
	*fakecri.Runtime
	rt   cri.RuntimeServiceClient
	im   cri.ImageServiceClient
	logs string
}

func newNode(t *testing.T, opts fakecri.Options) *node {
	t.Helper()
	r := fakecri.New(opts)
	conn, err := r.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		r.Close()
	})
	return &node{r, cri.NewRuntimeServiceClient(conn), cri.NewImageServiceClient(conn), t.TempDir()}
}

// start runs a pod named a/NAME with one container, main.
func (n *node) start(t *testing.T, name string, command ...string) (sandbox, container string) {
	t.Helper()
	ctx := t.Context()
	sb := &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: name, Namespace: "a", Uid: "uid-" + name},
		LogDirectory: n.logs,
	}
	run, err := n.rt.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: sb})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.im.PullImage(ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: "busybox"}}); err != nil {
		t.Fatal(err)
	}
	made, err := n.rt.CreateContainer(ctx,
		&cri.CreateContainerRequest{PodSandboxId: run.PodSandboxId, SandboxConfig: sb, Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: "main"}, Image: &cri.ImageSpec{Image: "busybox"},
			Command: command, LogPath: name + ".log",
		}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.rt.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: made.ContainerId}); err != nil {
		t.Fatal(err)
	}
	return run.PodSandboxId, made.ContainerId
}

func (n *node) status(t *testing.T, id string) *cri.ContainerStatus {
	t.Helper()
	res, err := n.rt.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		t.Fatal(err)
	}
	return res.Status
}

func TestVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		begin := time.Now()
		_, id := n.start(t, "job", "sh", "-c", "echo begin; sleep 3600; echo end; exit 4")
		time.Sleep(time.Hour - time.Second)
		if st := n.status(t, id); st.State != cri.ContainerState_CONTAINER_RUNNING {
			t.Errorf("a second early it is %s", st.State)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		st := n.status(t, id)
		if st.State != cri.ContainerState_CONTAINER_EXITED || st.ExitCode != 4 {
			t.Errorf("%s, exit code %d", st.State, st.ExitCode)
		}
		if ran := time.Duration(st.FinishedAt - begin.UnixNano()).Round(time.Millisecond); ran != time.Hour {
			t.Errorf("it ran for %v", ran)
		}
		text, err := os.ReadFile(filepath.Join(n.logs, "job.log"))
		if err != nil || !strings.Contains(string(text), "stdout F begin\n") ||
			!strings.Contains(string(text), "01:00:00") {
			t.Errorf("log %q, %v", text, err)
		}
	})
}

func TestStopInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		_, id := n.start(t, "stubborn", "sh", "-c", "trap '' TERM; sleep infinity")
		stopping := func() bool { return n.Pods()[0].Containers[0].Stopping }
		before, during := stopping(), false
		time.AfterFunc(29*time.Second, func() { during = stopping() })
		begin := time.Now()
		if _, err := n.rt.StopContainer(t.Context(), &cri.StopContainerRequest{
			ContainerId: id,
			Timeout:     30,
		}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took != 30*time.Second {
			t.Errorf("it took %v", took)
		}
		if after := stopping(); before || !during || after {
			t.Errorf("it is stopping before, during and after: %v, %v, %v", before, during, after)
		}
		_, id = n.start(t, "server", "/server")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		n.Inject(fakecri.Fault{Method: "StopContainer", Hang: true})
		_, err := n.rt.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: id, Timeout: 30})
		if status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a hanging stop ends with %v", err)
		}
		if st := n.status(t, id); st.State != cri.ContainerState_CONTAINER_RUNNING {
			t.Errorf("the stop that hung took effect: %s", st.State)
		}
	})
}

func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		version := func() error {
			_, err := n.rt.Version(t.Context(), &cri.VersionRequest{})
			return err
		}
		in := n.Inject(fakecri.Fault{Method: "Version", Skip: 1, Times: 2, Code: codes.Unavailable, Message: "away"})
		for i, want := range []codes.Code{codes.OK, codes.Unavailable, codes.Unavailable, codes.OK} {
			if err := version(); status.Code(err) != want {
				t.Errorf("call %d: %v, want %s", i, err, want)
			}
		}
		if in.Hits() != 2 {
			t.Errorf("%d hits", in.Hits())
		}
		in.Release()

		slow := n.Inject(fakecri.Fault{Delay: 130 * time.Millisecond})
		begin := time.Now()
		if err := version(); err != nil || time.Since(begin) != 130*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		slow.Release()

		// A call whose answer is lost has taken effect.
		lost := n.Inject(fakecri.Fault{Method: "RunPodSandbox", After: true, Code: codes.Unavailable})
		_, err := n.rt.RunPodSandbox(t.Context(),
			&cri.RunPodSandboxRequest{Config: &cri.PodSandboxConfig{Metadata: &cri.PodSandboxMetadata{
				Name:      "x",
				Namespace: "a",
			}}})
		if status.Code(err) != codes.Unavailable || len(n.Pods()) != 1 {
			t.Errorf("%v, %d pods", err, len(n.Pods()))
		}
		lost.Release()

		// Calls that hang continue when the fault is released.
		hang := n.Inject(fakecri.Fault{Method: "Version", Hang: true})
		done := make(chan error, 2)
		for range 2 {
			go func() { done <- version() }()
		}
		<-hang.Hit()
		synctest.Wait()
		if hang.Waiting() != 2 || n.Usage()["Version"].InFlight != 2 {
			t.Errorf("%d calls hang, %d are open", hang.Waiting(), n.Usage()["Version"].InFlight)
		}
		hang.Release()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if u := n.Usage()["Version"]; u.InFlight != 0 || u.MaxOpen != 2 || u.Errors != 2 {
			t.Errorf("usage %+v", u)
		}

		// A fault can be for one pod.
		n.Inject(fakecri.Fault{Pod: "bad", Code: codes.Internal})
		n.start(t, "good")
		_, err = n.rt.RunPodSandbox(t.Context(),
			&cri.RunPodSandboxRequest{Config: &cri.PodSandboxConfig{Metadata: &cri.PodSandboxMetadata{
				Name:      "bad",
				Namespace: "a",
			}}})
		if status.Code(err) != codes.Internal {
			t.Errorf("the bad pod: %v", err)
		}
	})
}

// A runtime that dies with a call sends neither an answer nor an event for what it has done.
func TestARuntimeThatDiesWithACall(t *testing.T) {
	for _, done := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, fakecri.Options{})
			events, err := n.rt.GetContainerEvents(t.Context(), &cri.GetEventsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			n.Inject(fakecri.Fault{Method: "RunPodSandbox", Dies: true, After: done})
			_, err = n.rt.RunPodSandbox(t.Context(),
				&cri.RunPodSandboxRequest{Config: &cri.PodSandboxConfig{Metadata: &cri.PodSandboxMetadata{
					Name:      "x",
					Namespace: "a",
				}}})
			calls := n.Calls(n.LastCall() - 1)
			if status.Code(err) != codes.Unavailable || (len(n.Pods()) == 1) != done || calls[0].Done != done {
				t.Errorf("done %v: %v, %d pods, call %+v", done, err, len(n.Pods()), calls[0])
			}
			if e, err := events.Recv(); status.Code(err) != codes.Unavailable {
				t.Errorf("done %v: event %v, %v", done, e, err)
			}
			if _, err := n.rt.Version(t.Context(), &cri.VersionRequest{}); status.Code(err) != codes.Unavailable {
				t.Errorf("done %v: it answers: %v", done, err)
			}
			conn, err := n.Dial()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if events, err = cri.NewRuntimeServiceClient(conn).GetContainerEvents(ctx,
				&cri.GetEventsRequest{}); err != nil {
				t.Fatal(err)
			}
			if e, err := events.Recv(); status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("done %v: it is back with event %v, %v", done, e, err)
			}
		})
	}
}

// A late call takes effect after its caller has given up.
func TestACallThatIsDoneLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		n.Inject(fakecri.Fault{Method: "RunPodSandbox", Late: 2 * time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := n.rt.RunPodSandbox(ctx,
			&cri.RunPodSandboxRequest{Config: &cri.PodSandboxConfig{Metadata: &cri.PodSandboxMetadata{
				Name:      "x",
				Namespace: "a",
			}}})
		if status.Code(err) != codes.DeadlineExceeded {
			t.Error(err)
		}
		for _, want := range []int{0, 1} { // after 1 s, and after 3 s
			synctest.Wait()
			if got := len(n.Pods()); got != want {
				t.Errorf("%d pods, want %d", got, want)
			}
			time.Sleep(2 * time.Second)
		}
	})
}

func TestCallLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		n.Inject(fakecri.Fault{Method: "RunPodSandbox", Delay: 100 * time.Millisecond})
		n.Inject(fakecri.Fault{Method: "StartContainer", Delay: 50 * time.Millisecond})
		begin := time.Now()
		_, id := n.start(t, "web")
		time.Sleep(20 * time.Millisecond)
		end := time.Now()
		if _, err := n.rt.StopContainer(t.Context(), &cri.StopContainerRequest{
			ContainerId: id,
			Timeout:     3,
		}); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range n.Calls(0) {
			got = append(got, c.Method+" "+c.Key())
		}
		want := "RunPodSandbox a/web, PullImage busybox, CreateContainer a/web/main, StartContainer a/web/main, StopContainer a/web/main"
		if strings.Join(got, ", ") != want {
			t.Errorf("calls %q, want %q", got, want)
		}
		last := n.Calls(n.LastCall() - 1)
		if len(last) != 1 || last[0].Timeout != 3 || last[0].UID != "uid-web" {
			t.Errorf("last call %+v", last)
		}
		if inside, all := fakecri.TimeInside(n.Calls(0), begin, end), end.Sub(begin); inside != 150*time.Millisecond ||
			all-inside != 20*time.Millisecond {
			t.Errorf("%v of %v inside calls", inside, all)
		}
	})
}

func TestTimeInsideCountsOverlapOnce(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }
	calls := []fakecri.Call{
		{Start: at(10), End: at(30)}, {Start: at(20), End: at(40)}, // overlap: 30
		{Start: at(0), End: at(5)},   // before the span
		{Start: at(50), End: at(55)}, // 5
		{Start: at(90)},              // under way still: 10
	}
	if got := fakecri.TimeInside(calls, at(8), at(100)); got != 45*time.Millisecond {
		t.Errorf("%v, want 45ms", got)
	}
}

func TestBoundedCallLog(t *testing.T) {
	n := newNode(t, fakecri.Options{MaxCalls: 20})
	for range 100 {
		if _, err := n.rt.Version(t.Context(), &cri.VersionRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	if calls := n.Calls(0); len(calls) > 20 || calls[len(calls)-1].Seq != 100 {
		t.Errorf("%d calls kept, the last is %d", len(calls), calls[len(calls)-1].Seq)
	}
	if u := n.Usage()["Version"]; u.Calls != 100 {
		t.Errorf("%d calls counted", u.Calls)
	}
}

func TestExitFromOutside(t *testing.T) {
	n := newNode(t, fakecri.Options{})
	_, id := n.start(t, "web")
	if err := n.Exit("web", "main", 9); err != nil {
		t.Fatal(err)
	}
	if st := n.status(t, id); st.ExitCode != 9 || st.Reason != "Error" {
		t.Errorf("exit code %d, reason %q", st.ExitCode, st.Reason)
	}
	if err := n.Exit("web", "main", 9); err == nil {
		t.Error("an exited container exits again")
	}
	_, id = n.start(t, "fat")
	if err := n.OOMKill("a/fat", "main"); err != nil {
		t.Fatal(err)
	}
	if st := n.status(t, id); st.ExitCode != 137 || st.Reason != "OOMKilled" {
		t.Errorf("exit code %d, reason %q", st.ExitCode, st.Reason)
	}
	sb, id := n.start(t, "gone")
	if err := n.KillSandbox("gone"); err != nil {
		t.Fatal(err)
	}
	res, err := n.rt.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: sb})
	if err != nil || res.Status.State != cri.PodSandboxState_SANDBOX_NOTREADY || n.status(t, id).ExitCode != 137 {
		t.Errorf("%v, %v", res, err)
	}
	var lines []string
	for _, p := range n.Pods() {
		lines = append(lines, p.String())
	}
	want := "a/web ready: main#0 exited 9\na/fat ready: main#0 exited 137\na/gone notready: main#0 exited 137"
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("pods\n%s\nwant\n%s", got, want)
	}
}

func TestEventsBrokenAndKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		open := func() cri.RuntimeService_GetContainerEventsClient {
			s, err := n.rt.GetContainerEvents(t.Context(), &cri.GetEventsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return s
		}
		s := open()
		if n.EventStreams() != 1 {
			t.Fatalf("%d streams", n.EventStreams())
		}
		n.BreakEvents(status.Error(codes.Unavailable, "broken"))
		if _, err := s.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("a broken stream ends with %v", err)
		}
		sb, id := n.start(t, "quiet") // while no client listens
		s = open()
		for _, want := range []string{sb, sb, id, id} {
			if e, err := s.Recv(); err != nil || e.ContainerId != want {
				t.Fatalf("%v, %v, want an event of %s", e, err, want)
			}
		}

		// Events that are kept for more than five minutes are lost.
		n.BreakEvents(errors.New("again"))
		n.start(t, "removed")
		time.Sleep(6 * time.Minute)
		s = open()
		_, id = n.start(t, "seen")
		var last *cri.ContainerEventResponse
		for last.GetContainerId() != id {
			e, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if e.PodSandboxStatus.GetMetadata().GetName() == "removed" {
				t.Errorf("an old event is delivered: %v", e)
			}
			last = e
		}
	})
}

func TestDisconnectKeepsPods(t *testing.T) {
	r := fakecri.New(fakecri.Options{})
	t.Cleanup(r.Close)
	first, err := r.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	cfg := &cri.PodSandboxConfig{Metadata: &cri.PodSandboxMetadata{Name: "x", Namespace: "a"}}
	if _, err := cri.NewRuntimeServiceClient(first).RunPodSandbox(t.Context(),
		&cri.RunPodSandboxRequest{Config: cfg}); err != nil {
		t.Fatal(err)
	}
	r.Disconnect()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := cri.NewRuntimeServiceClient(first).Version(ctx, &cri.VersionRequest{}); err == nil {
		t.Error("a runtime that is away answers")
	}
	second, err := r.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	res, err := cri.NewRuntimeServiceClient(second).ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{})
	if err != nil || len(res.Items) != 1 {
		t.Errorf("%v, %v", res, err)
	}
}

func TestPrivateImage(t *testing.T) {
	n := newNode(t, fakecri.Options{})
	n.Protect("registry.example/team/app:1", fakecri.Credentials{Username: "u", Password: "p"})
	pull := func(auth *cri.AuthConfig) error {
		_, err := n.im.PullImage(t.Context(), &cri.PullImageRequest{
			Image: &cri.ImageSpec{Image: "registry.example/team/app:1"},
			Auth:  auth,
		})
		return err
	}
	if err := pull(nil); err == nil {
		t.Error("pulled without credentials")
	}
	if err := pull(&cri.AuthConfig{Username: "u", Password: "wrong"}); err == nil {
		t.Error("pulled with the wrong password")
	}
	if err := pull(&cri.AuthConfig{Auth: "dTpw"}); err != nil { // u:p
		t.Error(err)
	}
	pulls := n.Pulls()
	if len(pulls) != 3 || !pulls[0].Refused || !pulls[1].Refused || pulls[2].Refused ||
		pulls[1].Auth.GetPassword() != "wrong" {
		t.Errorf("pulls %+v", pulls)
	}
}

func TestMessageThroughMount(t *testing.T) {
	n := newNode(t, fakecri.Options{})
	n.AddImage(fakecri.Image{Name: "busybox"})
	host := filepath.Join(t.TempDir(), "message")
	if err := os.WriteFile(host, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	sb := &cri.PodSandboxConfig{Metadata: &cri.PodSandboxMetadata{Name: "x", Namespace: "a"}}
	run, err := n.rt.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: sb})
	if err != nil {
		t.Fatal(err)
	}
	made, err := n.rt.CreateContainer(t.Context(),
		&cri.CreateContainerRequest{PodSandboxId: run.PodSandboxId, SandboxConfig: sb, Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: "main"},
			Image:    &cri.ImageSpec{Image: "docker.io/library/busybox:latest"},
			Command:  []string{"sh", "-c"},
			Args:     []string{"echo why > /dev/termination-log; touch /tmp/x; test -f /tmp/x && exit 3"},
			Mounts:   []*cri.Mount{{ContainerPath: "/dev/termination-log", HostPath: host}},
		}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.rt.StartContainer(t.Context(),
		&cri.StartContainerRequest{ContainerId: made.ContainerId}); err != nil {
		t.Fatal(err)
	}
	if st := n.status(t, made.ContainerId); st.ExitCode != 3 {
		t.Errorf("exit code %d", st.ExitCode)
	}
	if text, err := os.ReadFile(host); err != nil || string(text) != "why\n" {
		t.Errorf("message %q, %v", text, err)
	}
}

func TestScriptedExec(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		healthy := false
		n := newNode(t, fakecri.Options{OnExec: func(e fakecri.Exec) (fakecri.ExecResult, bool) {
			if e.Pod != "a/web" || e.Container != "main" || e.Command[0] != "probe" {
				return fakecri.ExecResult{}, false
			}
			if healthy {
				return fakecri.ExecResult{Stdout: "fine", After: time.Second}, true
			}
			return fakecri.ExecResult{Code: 1}, true
		}})
		_, id := n.start(t, "web")
		exec := func(cmd ...string) (*cri.ExecSyncResponse, error) {
			return n.rt.ExecSync(t.Context(), &cri.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: 5})
		}
		if res, err := exec("probe"); err != nil || res.ExitCode != 1 {
			t.Errorf("%v, %v", res, err)
		}
		healthy = true
		begin := time.Now()
		if res, err := exec("probe"); err != nil || string(res.Stdout) != "fine" || time.Since(begin) != time.Second {
			t.Errorf("%v, %v after %v", res, err, time.Since(begin))
		}
		if res, err := exec("echo", "hi"); err != nil || string(res.Stdout) != "hi\n" {
			t.Errorf("%v, %v", res, err)
		}
		if _, err := exec("no-such-command"); err == nil {
			t.Error("an unknown command runs")
		}
	})
}

// As many answers as Skip says are true, and as many as Times says after them are false.
func TestLiesAreCounted(t *testing.T) {
	n := newNode(t, fakecri.Options{})
	n.Inject(fakecri.Fault{Method: "PullImage", Skip: 1, Times: 2, Lie: "other-ids"})
	var reported []string
	for range 5 {
		got, err := n.im.PullImage(t.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: "busybox"}})
		if err != nil {
			t.Fatal(err)
		}
		reported = append(reported, got.ImageRef)
	}
	for i, ref := range reported {
		if lied := i == 1 || i == 2; (ref != reported[0]) != lied {
			t.Errorf("answer %d is %s, the first was %s", i, ref, reported[0])
		}
	}
}
