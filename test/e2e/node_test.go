//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson/test/images"
	"keelson/test/kit/await"
	"keelson/test/kit/need"
	"keelson/test/parts"
	"keelson/test/rig"
)

// patience bounds every wait of these tests.
const patience = 5 * time.Minute

// node is a one-node cluster that runs the agent.
type node struct {
	*rig.Rig
	parts   *parts.Builder
	kubectl string
	ours    string // the agent's binary

	shellOnce sync.Once
	shellErr  error
}

// common is the node that most tests share.
var common struct {
	once sync.Once
	node *node
	err  error
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run runs the tests and removes the shared node. The whole run fails if something of
// the node is left on the machine.
func run(m *testing.M) int {
	code := m.Run()
	if common.node == nil {
		return code
	}
	n := common.node
	if code != 0 {
		dir, err := n.KeepLogs("")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		fmt.Fprintln(os.Stderr, "logs of the shared node are in", dir)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := n.Close(ctx)
	if err == nil {
		err = machineHas(n.Dir, n.Name)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL: after the last test:", err)
		return 1
	}
	return code
}

// shared is the node that tests share. It starts with the first call.
func shared(t *testing.T) *node {
	t.Helper()
	need.Root(t, "running containers")
	common.once.Do(func() { common.node, common.err = open(context.Background()) })
	if common.err != nil {
		t.Fatal(common.err)
	}
	return common.node
}

func open(ctx context.Context) (*node, error) {
	b, err := parts.New(os.Stderr)
	if err != nil {
		return nil, err
	}
	r, err := rig.Open(ctx, rig.Config{Purpose: "e2e", Parts: b, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return nil, err
	}
	n := &node{Rig: r, parts: b}
	if err := n.start(ctx); err != nil {
		dir, kept := n.KeepLogs("")
		fmt.Fprintln(os.Stderr, "logs of the node are in", dir)
		return nil, errors.Join(err, kept, r.Close(ctx))
	}
	return n, nil
}

func (n *node) start(ctx context.Context) (err error) {
	if n.kubectl, err = n.parts.Path(ctx, "kubectl"); err != nil {
		return err
	}
	bin := filepath.Join(n.Dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return err
	}
	if n.ours, err = rig.OurKubelet(ctx, bin); err != nil {
		return err
	}
	if _, err = n.StartRuntime(ctx, rig.RuntimeConfig{}); err != nil {
		return err
	}
	if _, err = n.StartCluster(ctx, rig.ClusterConfig{}); err != nil {
		return err
	}
	_, err = n.StartKubelet(ctx, rig.KubeletConfig{Binary: n.ours, Edit: quick})
	return err
}

// quick makes the agent read manifests often, and send every event, which the tests read.
func quick(c *kubeletconfig.KubeletConfiguration) {
	c.FileCheckFrequency = metav1.Duration{Duration: time.Second}
	c.EventRecordQPS = new(int32)
}

// kubectlCommand is kubectl as the cluster's administrator.
func (n *node) kubectlCommand(ctx context.Context, ns string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, n.kubectl,
		append([]string{"--kubeconfig", n.Cluster.Kubeconfig, "-n", ns}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+n.Dir) // for its discovery cache
	return cmd
}

// space is a test's own namespace.
type space struct {
	*node
	t  *testing.T
	ns string
}

// namespace creates a namespace that is deleted at the end of the test.
func (n *node) namespace(t *testing.T) *space {
	t.Helper()
	s := &space{node: n, t: t}
	client := n.Cluster.Client.CoreV1()
	ns, err := client.Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.ns = ns.Name
	t.Cleanup(func() {
		// The test's own context has ended.
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if t.Failed() {
			s.describe(ctx)
		}
		at := int64(1)
		err := errors.Join(
			client.Pods(s.ns).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &at},
				metav1.ListOptions{}),
			client.Namespaces().Delete(ctx, s.ns, metav1.DeleteOptions{}))
		if err != nil {
			t.Error(err)
		}
	})
	// The API server rejects pods until a controller has created the default service account.
	s.until("service account", func() (string, bool) {
		_, err := client.ServiceAccounts(s.ns).Get(t.Context(), "default", metav1.GetOptions{})
		return fmt.Sprint(err), err == nil
	})
	return s
}

// bothAgents is a node that has not been started yet. It can run our agent or upstream's.
func bothAgents(t *testing.T) (n *node, upstream string) {
	t.Helper()
	b, err := parts.New(os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	n = &node{parts: b}
	for name, path := range map[string]*string{"kubectl": &n.kubectl, "kubelet": &upstream} {
		if *path, err = b.Path(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if n.ours, err = rig.OurKubelet(t.Context(), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	return n, upstream
}

// describe shows the pods of a failed test.
func (s *space) describe(ctx context.Context) {
	out, err := s.kubectlCommand(ctx, s.ns, "describe", "pods").CombinedOutput()
	s.t.Logf("pods at the end: %v\n%s", err, out)
}

// until polls until look reports true. look also returns the present state.
func (s *space) until(what string, look func() (saw string, ok bool)) {
	s.t.Helper()
	until(s.t, what, look)
}

func until(t *testing.T, what string, look func() (saw string, ok bool)) {
	t.Helper()
	await.Within(t, patience, 100*time.Millisecond, what, look)
}

// kubectlDo runs kubectl in the namespace and returns what it prints; it must succeed.
func (s *space) kubectlDo(args ...string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	out, err := s.kubectlCommand(ctx, s.ns, args...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// spec changes a pod that is being built.
type spec func(*corev1.Pod)

// demo is a pod with one container of the demo image that runs a verb.
func (s *space) demo(name string, args []string, edits ...spec) *corev1.Pod {
	at := int64(2)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.ns},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &at,
			Containers:                    []corev1.Container{{Name: "main", Image: images.Demo, Args: args}},
		},
	}
	for _, e := range edits {
		e(p)
	}
	return p
}

func never(p *corev1.Pod)     { p.Spec.RestartPolicy = corev1.RestartPolicyNever }
func onFailure(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }

// create creates the pod.
func (s *space) create(p *corev1.Pod) *corev1.Pod {
	s.t.Helper()
	made, err := s.Cluster.Client.CoreV1().Pods(s.ns).Create(s.t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return made
}

// pod waits until the pod is as wanted.
func (s *space) pod(name, what string, want func(*corev1.Pod) bool) *corev1.Pod {
	s.t.Helper()
	ctx, cancel := context.WithTimeoutCause(s.t.Context(), patience,
		fmt.Errorf("pod %s is not %s after %s", name, what, patience))
	defer cancel()
	p, err := s.Cluster.UntilPod(ctx, s.ns, name, want)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

func (s *space) ready(name string) *corev1.Pod {
	s.t.Helper()
	return s.pod(name, "Ready", rig.PodReady)
}

func (s *space) phase(name string, phase corev1.PodPhase) *corev1.Pod {
	s.t.Helper()
	return s.pod(name, string(phase), func(p *corev1.Pod) bool { return p.Status.Phase == phase })
}

// delete deletes the pod; grace is in seconds, the pod's own if negative.
func (s *space) delete(name string, grace int64) {
	s.t.Helper()
	o := metav1.DeleteOptions{}
	if grace >= 0 {
		o.GracePeriodSeconds = &grace
	}
	if err := s.Cluster.Client.CoreV1().Pods(s.ns).Delete(s.t.Context(), name, o); err != nil {
		s.t.Fatal(err)
	}
}

func (s *space) gone(name string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeoutCause(s.t.Context(), patience,
		fmt.Errorf("pod %s is still there after %s", name, patience))
	defer cancel()
	if err := s.Cluster.UntilGone(ctx, s.ns, name); err != nil {
		s.t.Fatal(err)
	}
}

// says runs the pod to completion, which must succeed, and returns its log.
func (s *space) says(p *corev1.Pod) string {
	s.t.Helper()
	never(p)
	s.create(p)
	end := s.pod(p.Name, "at its end", func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	})
	log := s.kubectlDo("logs", p.Name, "-c", "main")
	if end.Status.Phase != corev1.PodSucceeded {
		s.t.Fatalf("pod %s ended as %s (%s %s), saying: %s", p.Name, end.Status.Phase, end.Status.Reason,
			end.Status.Message, log)
	}
	return log
}

// event waits until the pod has an event with this reason whose message contains the
// text.
func (s *space) event(name, reason, text string) corev1.Event {
	s.t.Helper()
	var found corev1.Event
	s.until(fmt.Sprintf("event %s %q of %s", reason, text, name), func() (string, bool) {
		var seen []string
		for _, e := range s.events(name) {
			if e.Reason == reason && strings.Contains(e.Message, text) {
				found = e
				return "", true
			}
			seen = append(seen, e.Reason+": "+e.Message)
		}
		return strings.Join(seen, "\n"), false
	})
	return found
}

func (s *space) events(name string) []corev1.Event {
	s.t.Helper()
	list, err := s.Cluster.Client.CoreV1().Events(s.ns).List(s.t.Context(),
		metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil {
		s.t.Fatal(err)
	}
	return list.Items
}

// container is the status of a container of any kind.
func container(p *corev1.Pod, name string) corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses,
		p.Status.EphemeralContainerStatuses} {
		for _, c := range list {
			if c.Name == name {
				return c
			}
		}
	}
	return corev1.ContainerStatus{}
}

func condition(p *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

func ptr[T any](v T) *T { return &v }
