//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/test/kit/parity"
)

// deployment creates a deployment with the pod as its template and waits until all replicas are Ready.
func (s *space) deployment(name string, replicas int32, like *corev1.Pod) {
	s.t.Helper()
	labels := map[string]string{"app": name}
	_, err := s.Cluster.Client.AppsV1().Deployments(s.ns).Create(s.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: like.Spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.whole(name, replicas)
}

// whole waits until all replicas of a deployment are Ready.
func (s *space) whole(name string, replicas int32) {
	s.t.Helper()
	s.until(fmt.Sprintf("%d replicas of %s", replicas, name), func() (string, bool) {
		d, err := s.Cluster.Client.AppsV1().Deployments(s.ns).Get(s.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error(), false
		}
		return fmt.Sprintf("%d Ready", d.Status.ReadyReplicas), d.Status.ReadyReplicas == replicas &&
			d.Status.Replicas == replicas
	})
}

func (s *space) pods() []corev1.Pod {
	s.t.Helper()
	list, err := s.Cluster.Client.CoreV1().Pods(s.ns).List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return list.Items
}

func TestDeployment(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	s.deployment("web", 3, s.demo("web", []string{"serve"}))
	for _, p := range s.pods() {
		c := container(&p, "main")
		if p.Status.PodIP == "" || p.Status.HostIP != s.NodeIP() || p.Status.StartTime == nil || c.Started == nil ||
			!*c.Started ||
			c.State.Running == nil || !strings.HasPrefix(c.ContainerID, "containerd://") ||
			!strings.HasSuffix(c.Image, "keelson.local/demo:1") {
			t.Errorf("status of %s: %+v", p.Name, p.Status)
		}
		s.event(p.Name, "Scheduled", "")
		s.event(p.Name, "Pulled", "already present on machine")
		if e := s.event(p.Name, "Created", ""); e.Message != "Container created" ||
			e.InvolvedObject.FieldPath != "spec.containers{main}" || e.Source.Component != "kubelet" {
			t.Errorf("event %+v", e)
		}
		s.event(p.Name, "Started", "Container started")
	}
	if out := s.kubectlDo("get", "node", s.Kubelet.Node); !strings.Contains(out, " Ready ") {
		t.Errorf("kubectl get node says:\n%s", out)
	}
	// A pod that is deleted has a Killing event and is replaced.
	victim := s.pods()[0]
	s.kubectlDo("delete", "pod", victim.Name)
	s.event(victim.Name, "Killing", "Stopping container main")
	s.whole("web", 3)
	s.kubectlDo("delete", "deployment", "web", "--wait")
	s.until("no pods", func() (string, bool) {
		left := s.pods()
		return fmt.Sprint(len(left)), len(left) == 0
	})
}

func TestJob(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	_, err := s.Cluster.Client.BatchV1().Jobs(s.ns).Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "work"},
		Spec: batchv1.JobSpec{Completions: ptr(int32(2)), Parallelism: ptr(int32(2)), Template: corev1.PodTemplateSpec{
			Spec: s.demo("work", []string{"echo", "done"}, never).Spec,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.kubectlDo("wait", "--for=condition=complete", "--timeout="+patience.String(), "job/work")
	for _, p := range s.pods() {
		if c := container(&p, "main"); p.Status.Phase != corev1.PodSucceeded || c.State.Terminated == nil ||
			c.State.Terminated.Reason != "Completed" || c.RestartCount != 0 {
			t.Errorf("%s: phase %s, %+v", p.Name, p.Status.Phase, c)
		}
		for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
			if c := condition(&p, kind); c.Status != corev1.ConditionFalse || c.Reason != "PodCompleted" {
				t.Errorf("%s: %+v", p.Name, c)
			}
		}
		if log := s.kubectlDo("logs", p.Name); log != "done\n" {
			t.Errorf("log %q", log)
		}
	}
}

func TestLogs(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	s.create(s.demo("talk", []string{"log", "5"}, never))
	s.phase("talk", corev1.PodSucceeded)
	all := "line 1\nline 2\nline 3\nline 4\nline 5\n"
	for _, c := range []struct{ args, want string }{
		{"logs talk", all},
		{"logs talk -c main", all},
		{"logs talk --tail=2", "line 4\nline 5\n"},
		{"logs talk --tail=0", ""},
		{"logs talk --since=1h", all},
		{"logs talk --limit-bytes=9", "line 1\nli"},
		{"logs -f talk", all},
	} {
		if got := s.kubectlDo(strings.Fields(c.args)...); got != c.want {
			t.Errorf("kubectl %s: %q, want %q", c.args, got, c.want)
		}
	}
	if got := s.kubectlDo("logs", "talk", "--timestamps", "--tail=1"); !strings.HasSuffix(got, "Z line 5\n") {
		t.Errorf("with time: %q", got)
	}
	if got := s.kubectlDo("logs", "talk", "--since-time="+
		time.Now().Add(time.Hour).UTC().Format(time.RFC3339)); got != "" {
		t.Errorf("since an hour from now: %q", got)
	}
}

// TestFollowLog follows a log that is being written until the container ends. TestKubectlFollowsLogs
// checks that each line arrives when it is written.
func TestFollowLog(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	s.create(s.demo("talk", []string{"log", "40", "100ms"}, never))
	s.pod("talk", "started", func(p *corev1.Pod) bool { return p.Status.Phase != corev1.PodPending })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := s.kubectlCommand(ctx, s.ns, "logs", "-f", "talk")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	n := 0
	for lines.Scan() {
		n++
		if want := fmt.Sprintf("line %d", n); lines.Text() != want {
			t.Fatalf("line %q, want %q", lines.Text(), want)
		}
	}
	if err := cmd.Wait(); err != nil || n != 40 {
		t.Errorf("%d lines, then %v", n, err)
	}
}

func TestPreviousLog(t *testing.T) {
	t.Parallel()
	parity.ProvesPart(t, 2, "RT-50")
	s := shared(t).namespace(t)
	s.create(s.demo("again", []string{"count", "/data/n"}, keepCount, func(p *corev1.Pod) {
		p.Spec.Containers[0].TerminationMessagePolicy = corev1.TerminationMessageReadFile
	}))
	restarted := func(p *corev1.Pod) bool { return container(p, "main").RestartCount >= 1 }
	least := container(s.pod("again", "restarted", restarted), "main").RestartCount
	got := s.kubectlDo("logs", "again", "-p")
	most := container(s.pod("again", "restarted", restarted), "main").RestartCount
	// The log of the last instance that was restarted, or of the one after it, if that has ended.
	if n, err := strconv.Atoi(strings.TrimSuffix(got, "\n")); err != nil || n < int(least) || n > int(most)+1 {
		t.Errorf("log of the instance before, of %d to %d restarts: %q", least, most, got)
	}
}

// keepCount mounts a volume of the pod's own at /data.
func keepCount(p *corev1.Pod) {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{
		Name:         "data",
		VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
	})
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: "/data"})
	}
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: "/data"})
	}
}

func TestExec(t *testing.T) {
	t.Parallel()
	parity.Proves(t, "SRV-19")
	s := shared(t).namespace(t)
	s.create(s.demo("box", []string{"sleep"}))
	s.ready("box")
	if got := s.kubectlDo("exec", "box", "--", "/demo", "echo", "hello", "there"); got != "hello there\n" {
		t.Errorf("exec says %q", got)
	}
	// Standard error and the exit code come back separately.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := s.kubectlCommand(ctx, s.ns, "exec", "box", "--", "/demo", "exit", "7")
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("exit code of the command: %v", err)
	}
	cmd = s.kubectlCommand(ctx, s.ns, "exec", "box", "--", "/demo", "cat", "/none")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err == nil || stdout.Len() > 0 || !strings.Contains(stderr.String(), "/none") {
		t.Errorf("%v, standard output %q, standard error %q", err, &stdout, &stderr)
	}
	cmd = s.kubectlCommand(ctx, s.ns, "exec", "box", "--", "/nothing")
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("a program that is not there: %s", out)
	}
	// In a terminal, standard error comes with the output.
	cmd = s.kubectlCommand(ctx, s.ns, "exec", "-it", "box", "--", "/demo", "cat", "/none")
	screen := inTerminal(t, cmd, 24, 80)
	if got, err := screen.ended(); !errors.As(err, &exit) || exit.ExitCode() != 1 ||
		!strings.Contains(got, "open /none: no such file or directory\r\n") {
		t.Errorf("with a terminal: %v, %q", err, got)
	}
	// Input is forwarded, and so is its end.
	cmd = s.kubectlCommand(ctx, s.ns, "exec", "-i", "box", "--", "/demo", "cat", "/dev/stdin")
	cmd.Stdin = strings.NewReader("through the pipe")
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "through the pipe" {
		t.Errorf("with input: %v, %q", err, out)
	}
}

// TestPortForward connects to a port of the pod through API server and agent.
func TestPortForward(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	s.create(s.demo("web", []string{"serve"}, listening))
	s.ready("web")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := s.kubectlCommand(ctx, s.ns, "port-forward", "--address", s.Loopback(), "pod/web", ":8080")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = cmd.Wait() // the error is that it was killed
	}()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatalf("kubectl port-forward says nothing: %v", lines.Err())
	}
	addr, _, _ := strings.Cut(strings.TrimPrefix(lines.Text(), "Forwarding from "), " ")
	if body := get(t, "http://"+addr+"/"); !strings.HasPrefix(body, "hello from web") {
		t.Errorf("through the forwarded port: %q", body)
	}
}

// deafened waits until the pod's first process ignores SIGTERM.
func (s *space) deafened(name string) {
	s.t.Helper()
	s.ready(name)
	s.until("SIGTERM to be ignored", func() (string, bool) {
		for line := range strings.Lines(s.kubectlDo("exec", name, "--", "/demo", "cat", "/proc/1/status")) {
			if mask, ok := strings.CutPrefix(line, "SigIgn:"); ok {
				bits, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
				return line, err == nil && bits&(1<<(unix.SIGTERM-1)) != 0
			}
		}
		return "no SigIgn", false
	})
}

// TestDelete: a pod that handles SIGTERM ends at once, and one that ignores it is killed.
func TestDelete(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	const long = int64(4 * patience / time.Second) // no test waits this long
	s.create(s.demo("polite", []string{"sleep"},
		func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr(long) }))
	s.create(s.demo("deaf", []string{"deaf"},
		func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr(int64(3)) }))
	s.create(s.demo("hurry", []string{"deaf"},
		func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr(long) }))
	s.ready("polite")
	s.deafened("deaf")
	s.deafened("hurry")
	start := time.Now()
	s.delete("polite", -1)
	s.delete("deaf", -1)
	s.delete("hurry", -1)
	s.gone("polite")
	s.gone("deaf")
	if took := time.Since(start); took < 3*time.Second {
		t.Errorf("a pod was killed after %s of its 3 s of grace", took)
	}
	// A second deletion with a shorter grace period takes effect.
	s.delete("hurry", 1)
	s.gone("hurry")
}

// TestKilledStatus watches the last status of a pod that has to be killed.
func TestKilledStatus(t *testing.T) {
	t.Parallel()
	parity.Proves(t, "LIFE-62")
	s := shared(t).namespace(t)
	p := s.demo("deaf", []string{"deaf"})
	p.Finalizers = []string{"keelson.example/held"}
	s.create(p)
	s.deafened("deaf")
	s.delete("deaf", 1)
	end := s.phase("deaf", corev1.PodFailed)
	if c := container(end, "main").State.Terminated; c == nil || c.ExitCode != 137 || c.Reason != "Error" {
		t.Errorf("container ended as %+v", c)
	}
	s.kubectlDo("patch", "pod", "deaf", "--type=json", `-p=[{"op":"remove","path":"/metadata/finalizers"}]`)
	s.gone("deaf")
}
