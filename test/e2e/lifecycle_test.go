//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"keelson/test/images"
	"keelson/test/kit/parity"
	"keelson/test/rig"
)

func initContainer(name string, args ...string) spec {
	return func(p *corev1.Pod) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{
			Name:  name,
			Image: images.Demo,
			Args:  args,
		})
	}
}

func sidecar(name string, args ...string) spec {
	return func(p *corev1.Pod) {
		initContainer(name, args...)(p)
		p.Spec.InitContainers[len(p.Spec.InitContainers)-1].RestartPolicy = ptr(corev1.ContainerRestartPolicyAlways)
	}
}

// TestInitOrder runs init containers one after another, and the regular one last.
func TestInitOrder(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	out := s.says(s.demo("steps", []string{"count", "/data/n"}, initContainer("one", "count", "/data/n"),
		initContainer("two", "count", "/data/n"), keepCount))
	one, two := s.kubectlDo("logs", "steps", "-c", "one"), s.kubectlDo("logs", "steps", "-c", "two")
	if one+two+out != "1\n2\n3\n" {
		t.Errorf("order of containers: one %q, two %q, main %q", one, two, out)
	}
	p := s.phase("steps", corev1.PodSucceeded)
	if c := condition(p, corev1.PodInitialized); c.Status != corev1.ConditionTrue || c.Reason != "PodCompleted" {
		t.Errorf("%+v", c)
	}
	for _, name := range []string{"one", "two"} {
		if c := container(p, name); !c.Ready || c.State.Terminated == nil || c.State.Terminated.ExitCode != 0 {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// TestInitFailure: a failed init container fails a pod with policy Never, and delays a pod that is restarted.
func TestInitFailure(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	s.create(s.demo("never", []string{"sleep"}, initContainer("setup", "exit", "3"), never))
	s.create(s.demo("always", []string{"sleep"}, initContainer("setup", "exit", "3")))
	p := s.phase("never", corev1.PodFailed)
	if c := container(p, "setup"); c.State.Terminated == nil || c.State.Terminated.ExitCode != 3 ||
		c.RestartCount != 0 {
		t.Errorf("init container: %+v", c)
	}
	if c := container(p, "main"); c.ContainerID != "" || c.State.Waiting == nil ||
		c.State.Waiting.Reason != "PodInitializing" {
		t.Errorf("the regular container: %+v", c)
	}
	p = s.pod("always", "in back-off", func(p *corev1.Pod) bool {
		c := container(p, "setup")
		return c.RestartCount >= 1 && c.State.Waiting != nil && c.State.Waiting.Reason == "CrashLoopBackOff"
	})
	if c := condition(p,
		corev1.PodInitialized); p.Status.Phase != corev1.PodPending || c.Status != corev1.ConditionFalse ||
		c.Reason != "ContainersNotInitialized" ||
		c.Message != "containers with incomplete status: [setup]" {
		t.Errorf("phase %s, %+v", p.Status.Phase, c)
	}
}

// TestSidecars start before and end after the regular containers, are restarted
// on their own, and do not keep a pod from completing.
func TestSidecars(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	s.create(s.shell("job", fed, sidecar("proxy", "serve"), sidecar("flaky", "exit", "0", "1s"), never))
	p := s.pod("job", "running", func(p *corev1.Pod) bool { return container(p, "main").State.Running != nil })
	proxy := container(p, "proxy")
	if proxy.State.Running == nil || proxy.Started == nil || !*proxy.Started ||
		container(p, "main").State.Running.StartedAt.Before(&proxy.State.Running.StartedAt) {
		t.Errorf("the sidecar when the container runs: %+v", proxy)
	}
	s.pod("job", "given its sidecar again", func(p *corev1.Pod) bool { return container(p, "flaky").RestartCount > 0 })
	s.feed("job", "end")
	p = s.phase("job", corev1.PodSucceeded)
	proxy, main := container(p, "proxy"), container(p, "main")
	if proxy.State.Terminated == nil || proxy.RestartCount != 0 ||
		proxy.State.Terminated.FinishedAt.Before(&main.State.Terminated.FinishedAt) {
		t.Errorf("the sidecar ended as %+v, the container as %+v", proxy, main)
	}
}

// TestSidecarsEndInReverse checks that each sidecar stops after the containers that come after it in the start order.
func TestSidecarsEndInReverse(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	const hook = 2 * time.Second
	s.create(s.demo("job", []string{"exit", "0", "2s"}, sidecar("first", "sleep"), sidecar("second", "sleep"), never,
		func(p *corev1.Pod) {
			p.Spec.TerminationGracePeriodSeconds = ptr(int64(600)) // more than the stop takes
			p.Spec.InitContainers[1].Lifecycle = &corev1.Lifecycle{
				PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: int64(hook / time.Second)}},
			}
		}))
	p := s.phase("job", corev1.PodSucceeded)
	ended := func(name string) time.Time {
		c := container(p, name)
		if c.State.Terminated == nil || c.State.Terminated.ExitCode != 0 {
			t.Fatalf("%s ended as %+v", name, c.State)
		}
		return c.State.Terminated.FinishedAt.Time
	}
	main, second, first := ended("main"), ended("second"), ended("first")
	if second.Sub(main) < hook-time.Second || first.Before(second) { // times are whole seconds
		t.Errorf("main ended at %v, the second sidecar at %v, the first at %v", main, second, first)
	}
}

// TestPreStopOutOfTime deletes pods whose preStop hooks take more than the grace period:
// their containers still get the stop signal, and have two seconds to exit.
func TestPreStopOutOfTime(t *testing.T) {
	t.Parallel()
	parity.Differs(t, "LIFE-57", "0028")
	s := shared(t).namespace(t)
	slow := func(p *corev1.Pod) {
		p.Spec.TerminationGracePeriodSeconds = ptr(int64(3))
		p.Finalizers = []string{"keelson.example/held"}
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{
			Command: []string{"/demo", "sleep", "60s"}}}}
	}
	s.create(s.demo("polite", []string{"sleep"}, slow))
	s.create(s.demo("deaf", []string{"deaf"}, slow))
	s.ready("polite")
	s.deafened("deaf")
	asked := time.Now()
	s.delete("polite", -1)
	s.delete("deaf", -1)
	for _, tc := range []struct {
		pod         string
		code        int32
		least, most time.Duration
	}{
		{pod: "polite", code: 0, least: 3 * time.Second, most: 5 * time.Second},
		{pod: "deaf", code: 137, least: 5 * time.Second, most: 20 * time.Second},
	} {
		p := s.pod(tc.pod, "ended", func(p *corev1.Pod) bool { return container(p, "main").State.Terminated != nil })
		end := container(p, "main").State.Terminated
		took := end.FinishedAt.Sub(asked) + time.Second // a time in a status has no fractions
		if end.ExitCode != tc.code || took < tc.least || took-time.Second > tc.most {
			t.Errorf("%s ended after %s as %+v", tc.pod, took, end)
		}
		s.event(tc.pod, "FailedPreStopHook", "PreStopHook failed")
		s.kubectlDo("patch", "pod", tc.pod, "--type=json", `-p=[{"op":"remove","path":"/metadata/finalizers"}]`)
	}
}

// TestRestartOfAllContainers restarts all containers of a pod in its sandbox.
func TestRestartOfAllContainers(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	s.create(s.shell("gang", fed, initContainer("setup", "count", "/data/n"), sidecar("proxy", "sleep"), keepCount,
		never, func(p *corev1.Pod) {
			p.Spec.Containers[0].RestartPolicy = ptr(corev1.ContainerRestartPolicyNever)
			p.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{
				{Action: corev1.ContainerRestartRuleActionRestartAllContainers,
					ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
						Operator: corev1.ContainerRestartRuleOnExitCodesOpIn,
						Values:   []int32{88},
					}},
			}
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
				Name:  "other",
				Image: images.Demo,
				Args:  []string{"sleep"},
			})
		}))
	before := s.ready("gang")
	s.feed("gang", "end 88")
	s.pod("gang", "shown to restart all", func(p *corev1.Pod) bool {
		c := condition(p, corev1.AllContainersRestarting)
		return c.Status == corev1.ConditionTrue || container(p, "other").RestartCount > 0
	})
	p := s.pod("gang", "begun anew",
		func(p *corev1.Pod) bool { return container(p, "main").RestartCount == 1 && rig.PodReady(p) })
	if p.Status.PodIP != before.Status.PodIP {
		t.Errorf("the pod had address %s and has %s: its sandbox is another one", before.Status.PodIP, p.Status.PodIP)
	}
	for _, name := range []string{"setup", "proxy", "main", "other"} {
		was, is := container(before, name), container(p, name)
		last := is.LastTerminationState.Terminated
		if is.ContainerID == was.ContainerID || is.RestartCount != 1 || last == nil ||
			last.Reason != "RestartingAllContainers" || last.ExitCode != 137 {
			t.Errorf("%s was %s and is %s after %d restarts, its last end %+v", name, was.ContainerID, is.ContainerID,
				is.RestartCount, last)
		}
	}
	if got := s.kubectlDo("logs", "gang", "-c", "setup"); got != "2\n" {
		t.Errorf("the init container counted %q, want that it ran again on the same volume", got)
	}
}

// TestRestartPolicies counts the restarts by each policy, and checks the back-off.
func TestRestartPolicies(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	s.create(s.demo("always", []string{"exit", "0"}))
	s.create(s.demo("failing", []string{"exit", "4"}, onFailure))
	s.create(s.demo("fine", []string{"exit", "0"}, onFailure))
	s.create(s.demo("once", []string{"exit", "4"}, never))
	if c := container(s.phase("fine", corev1.PodSucceeded), "main"); c.RestartCount != 0 {
		t.Errorf("OnFailure, success: %+v", c)
	}
	if c := container(s.phase("once", corev1.PodFailed), "main"); c.RestartCount != 0 ||
		c.State.Terminated.ExitCode != 4 || c.State.Terminated.Reason != "Error" {
		t.Errorf("Never, failure: %+v", c)
	}
	for _, name := range []string{"always", "failing"} {
		p := s.pod(name, "in back-off", func(p *corev1.Pod) bool {
			c := container(p, "main")
			return c.RestartCount >= 1 && c.State.Waiting != nil && c.State.Waiting.Reason == "CrashLoopBackOff"
		})
		c := container(p, "main")
		want := fmt.Sprintf("restarting failed container=main pod=%s_%s(%s)", name, s.ns, p.UID)
		if !strings.HasPrefix(c.State.Waiting.Message, "back-off ") ||
			!strings.HasSuffix(c.State.Waiting.Message, want) || c.LastTerminationState.Terminated == nil {
			t.Errorf("%s: %+v", name, c)
		}
		if p.Status.Phase != corev1.PodRunning || rig.PodReady(p) {
			t.Errorf("%s: phase %s, Ready %v", name, p.Status.Phase, rig.PodReady(p))
		}
		s.event(name, "BackOff", "Back-off restarting failed container")
		// It is restarted after the back-off.
		s.pod(name, "restarted twice", func(p *corev1.Pod) bool { return container(p, "main").RestartCount >= 2 })
	}
}

// TestHooks runs postStart before a container counts as started and preStop
// before it gets the stop signal, within the grace period.
func TestHooks(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	hook := func(args ...string) *corev1.LifecycleHandler {
		return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: append([]string{"/demo"}, args...)}}
	}
	s.create(s.demo("good", []string{"sleep"}, keepCount, func(p *corev1.Pod) {
		p.Spec.TerminationGracePeriodSeconds = ptr(int64(30))
		p.Finalizers = []string{"keelson.example/held"}
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
			PostStart: hook("write", "/data/started", "yes"),
			PreStop:   hook("sleep", "3s"),
		}
	}))
	s.create(s.demo("bad", []string{"sleep"}, func(p *corev1.Pod) {
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: hook("exit", "9")}
	}))
	s.ready("good")
	if got := s.kubectlDo("exec", "good", "--", "/demo", "cat", "/data/started"); got != "yes" {
		t.Errorf("the postStart hook left %q", got)
	}
	asked := time.Now()
	s.delete("good", -1)
	p := s.pod("good", "ended", func(p *corev1.Pod) bool { return container(p, "main").State.Terminated != nil })
	if took := time.Since(asked); took < 3*time.Second || container(p, "main").State.Terminated.ExitCode != 0 {
		t.Errorf("ended after %s, before the preStop hook was done, as %+v", took,
			container(p, "main").State.Terminated)
	}
	s.kubectlDo("patch", "pod", "good", "--type=json", `-p=[{"op":"remove","path":"/metadata/finalizers"}]`)

	s.event("bad", "FailedPostStartHook", "PostStartHook failed")
	s.pod("bad", "restarted", func(p *corev1.Pod) bool { return container(p, "main").RestartCount >= 1 })
}

// TestTerminationMessage reads the termination messages of containers.
func TestTerminationMessage(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	s.create(s.demo("file", []string{"message", "2", "no", "fuel"}, never))
	s.create(s.demo("elsewhere", []string{"message", "0", "all well"}, never, func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.TerminationMessagePath, c.Env = "/tmp/last-words", []corev1.EnvVar{
			{Name: "MESSAGE_FILE", Value: "/tmp/last-words"},
		}
	}))
	s.create(s.demo("log", []string{"cat", "/none"}, never, func(p *corev1.Pod) {
		p.Spec.Containers[0].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	}))
	for name, want := range map[string]string{
		"file":      "no fuel",
		"elsewhere": "all well",
		"log":       "demo: open /none: no such file or directory\n",
	} {
		p := s.pod(name, "ended", func(p *corev1.Pod) bool { return container(p, "main").State.Terminated != nil })
		if got := container(p, "main").State.Terminated.Message; got != want {
			t.Errorf("%s: message %q, want %q", name, got, want)
		}
	}
}

// TestActiveDeadline checks that a pod is terminated at its deadline.
func TestActiveDeadline(t *testing.T) {
	t.Parallel()
	parity.ProvesPart(t, 3, "LIFE-33")
	s := shared(t).namespace(t)
	s.create(s.demo("late", []string{"sleep"}, func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr(int64(4)) }))
	// A running pod gets a deadline that has passed already.
	s.create(s.demo("running", []string{"sleep"}))
	s.ready("running")
	s.kubectlDo("patch", "pod", "running", "-p", `{"spec":{"activeDeadlineSeconds":1}}`)
	for _, name := range []string{"late", "running"} {
		p := s.phase(name, corev1.PodFailed)
		if p.Status.Reason != "DeadlineExceeded" ||
			p.Status.Message != "Pod was active on the node longer than the specified deadline" {
			t.Errorf("%s: reason %q, message %q", name, p.Status.Reason, p.Status.Message)
		}
		// The first pod may reach its deadline before its container starts.
		if c := container(p, "main"); c.State.Running != nil || name == "running" && c.State.Terminated == nil {
			t.Errorf("%s has ended with a container that has not: %+v", name, c)
		}
		s.event(name, "DeadlineExceeded", "longer than the specified deadline")
	}
}

// TestImages checks the status and events of containers whose image cannot be pulled. No
// registry can be reached.
func TestImages(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	with := func(image string, policy corev1.PullPolicy) spec {
		return func(p *corev1.Pod) { p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = image, policy }
	}
	const missing = "127.0.0.1:9/none/such:1"
	s.create(s.demo("never", nil, with(missing, corev1.PullNever)))
	s.create(s.demo("missing", nil, with(missing, corev1.PullIfNotPresent)))
	s.create(s.demo("always", []string{"sleep"}, with("127.0.0.1:9/none/such:2", corev1.PullAlways)))
	s.create(s.demo("invalid", nil, with("not/VALID", corev1.PullIfNotPresent)))
	s.create(s.demo("local", []string{"sleep"}, with(images.Demo, corev1.PullNever)))
	waits := func(name string, reasons ...string) corev1.ContainerStateWaiting {
		var w corev1.ContainerStateWaiting
		s.pod(name, "waiting for "+strings.Join(reasons, " or "), func(p *corev1.Pod) bool {
			c := container(p, "main")
			if c.State.Waiting == nil {
				return false
			}
			w = *c.State.Waiting
			return slices.Contains(reasons, w.Reason)
		})
		return w
	}
	s.ready("local")
	if w := waits("never",
		"ErrImageNeverPull"); w.Message != fmt.Sprintf(`Container image %q is not present with pull policy of Never`,
		missing) {
		t.Errorf("message %q", w.Message)
	}
	s.event("never", "ErrImageNeverPull", "is not present with pull policy of Never")
	waits("invalid", "InvalidImageName")
	for _, name := range []string{"missing", "always"} {
		waits(name, "ErrImagePull")
		if w := waits(name, "ImagePullBackOff"); !strings.HasPrefix(w.Message, "Back-off pulling image ") {
			t.Errorf("message %q", w.Message)
		}
		s.event(name, "Pulling", "Pulling image ")
		s.event(name, "Failed", "Failed to pull image ")
		s.event(name, "Failed", "Error: ErrImagePull")
		s.event(name, "BackOff", "Back-off pulling image ")
	}
	for _, p := range s.pods() {
		if p.Name != "local" && p.Status.Phase != corev1.PodPending {
			t.Errorf("%s is %s", p.Name, p.Status.Phase)
		}
	}
}

// TestRejected checks pods that are bound without the scheduler and that the node has to
// reject.
func TestRejected(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	bound := func(p *corev1.Pod) { p.Spec.NodeName = s.Kubelet.Node }
	s.create(s.demo("greedy", []string{"sleep"}, bound, requests("cpu", "1000")))
	s.create(s.demo("elsewhere", []string{"sleep"}, bound,
		func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"no": "such"} }))
	for name, want := range map[string]string{"greedy": "OutOfcpu", "elsewhere": "NodeAffinity"} {
		p := s.phase(name, corev1.PodFailed)
		if p.Status.Reason != want || !strings.HasPrefix(p.Status.Message, "Pod was rejected: ") {
			t.Errorf("%s: reason %q, message %q", name, p.Status.Reason, p.Status.Message)
		}
		s.event(name, want, "")
		s.delete(name, -1)
		s.gone(name)
	}
}

func requests(name corev1.ResourceName, amount string) spec {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{name: quantity(amount)}
	}
}

// TestEphemeralContainer adds a container to a running pod.
func TestEphemeralContainer(t *testing.T) {
	t.Parallel()
	parity.ProvesPart(t, 3, "LIFE-42")
	s := shared(t).namespace(t)
	s.create(s.demo("box", []string{"sleep"}))
	before := s.ready("box")
	s.kubectlDo("debug", "box", "--image="+images.Demo,
		"--container=look", "--target=main", "--", "/demo", "cat", "/proc/1/cmdline")
	p := s.pod("box", "looked at", func(p *corev1.Pod) bool { return container(p, "look").State.Terminated != nil })
	if c := container(p, "look"); c.State.Terminated.ExitCode != 0 || c.RestartCount != 0 {
		t.Errorf("the ephemeral container: %+v", c)
	}
	// It sees the processes of its target.
	if got := s.kubectlDo("logs", "box", "-c", "look"); !strings.Contains(got, "sleep") {
		t.Errorf("its first process is %q", got)
	}
	if !rig.PodReady(p) || container(p, "main").ContainerID != container(before, "main").ContainerID {
		t.Error("the pod was disturbed")
	}
	s.delete("box", -1)
	s.gone("box")
}

// TestLostSandbox stops a sandbox without the agent. The container may be started
// once more in the dying sandbox before the agent detects that it is dead.
func TestLostSandbox(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	s.create(s.demo("box", []string{"sleep"}))
	before := s.ready("box")
	out, err := s.Runtime.Crictl(t.Context(), "pods", "-q", "--label", "io.kubernetes.pod.uid="+string(before.UID))
	if err != nil {
		t.Fatal(err)
	}
	// The agent may stop the sandbox at the same time, and then one of the two fails to remove its interface.
	if out, err := s.Runtime.Crictl(t.Context(), "stopp", strings.TrimSpace(out)); err != nil {
		t.Logf("stop sandbox: %v: %s", err, out)
	}
	p := s.pod("box", "in a new sandbox", func(p *corev1.Pod) bool {
		return rig.PodReady(p) && container(p, "main").ContainerID != container(before, "main").ContainerID
	})
	if c := container(p, "main"); c.RestartCount == 0 {
		t.Error("the new container counts as the first")
	}
	s.event("box", "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
}
