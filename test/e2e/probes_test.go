//go:build e2e

package e2e

import (
	"io"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"keelson/test/kit/parity"
	"keelson/test/rig"
)

// unhurried is the timeout in seconds of probes whose result the test does not check:
// more than a busy machine needs.
const unhurried = 60

func httpProbe(path string) *corev1.Probe {
	return &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1, TimeoutSeconds: unhurried,
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(8080)}}}
}

// listening makes the pod Ready only once a server accepts connections at port 8080.
func listening(p *corev1.Pod) {
	p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: unhurried,
		ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}}}
}

// onceUp is a startup probe like the other probe with a high failure threshold. After it the other
// probe can have a low one.
func onceUp(other *corev1.Probe) *corev1.Probe {
	p := other.DeepCopy()
	p.FailureThreshold = 10_000
	return p
}

// get requests a URL until the server answers.
func get(t *testing.T, url string) string {
	t.Helper()
	var body string
	client := http.Client{Timeout: 5 * time.Second}
	until(t, "an answer of "+url, func() (string, bool) {
		resp, err := client.Get(url)
		if err != nil {
			return err.Error(), false
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		body = string(data)
		return resp.Status + " " + body, err == nil && resp.StatusCode == http.StatusOK
	})
	return body
}

func TestReadinessProbe(t *testing.T) {
	t.Parallel()
	parity.Proves(t, "PROBE-12")
	s := shared(t).namespace(t)
	s.create(s.demo("web", []string{"serve"},
		func(p *corev1.Pod) { p.Spec.Containers[0].ReadinessProbe = httpProbe("/healthz") }))
	p := s.ready("web")
	url := "http://" + p.Status.PodIP + ":8080"
	get(t, url+"/break")
	p = s.pod("web", "not Ready", func(p *corev1.Pod) bool { return !rig.PodReady(p) })
	if c := condition(p, corev1.PodReady); c.Reason != "ContainersNotReady" ||
		c.Message != "containers with unready status: [main]" {
		t.Errorf("condition %+v", c)
	}
	s.event("web", "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503")
	get(t, url+"/mend")
	if p = s.ready("web"); container(p, "main").RestartCount != 0 {
		t.Error("a failing readiness probe restarted the container")
	}
}

func TestLivenessProbe(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	s.create(s.demo("web", []string{"serve"}, func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.LivenessProbe = httpProbe("/healthz")
		c.StartupProbe = onceUp(c.LivenessProbe)
	}))
	p := s.ready("web")
	get(t, "http://"+p.Status.PodIP+":8080/break")
	p = s.pod("web", "restarted", func(p *corev1.Pod) bool {
		return container(p, "main").RestartCount == 1 && rig.PodReady(p)
	})
	if last := container(p, "main").LastTerminationState.Terminated; last == nil {
		t.Error("nothing is shown of the instance before")
	}
	s.event("web", "Unhealthy", "Liveness probe failed")
	s.event("web", "Killing", "Container main failed liveness probe, will be restarted")
}

// TestStartupProbe: the other probes do not run until the startup probe has succeeded, and a
// container whose startup probe fails is killed.
func TestStartupProbe(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	s.create(s.demo("slow", []string{"sleep"}, keepCount, func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.LivenessProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1, TimeoutSeconds: unhurried,
			ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/demo", "check",
				"/data/up"}}}}
		c.StartupProbe = onceUp(c.LivenessProbe)
	}))
	s.create(s.demo("stuck", []string{"sleep"},
		func(p *corev1.Pod) { p.Spec.Containers[0].StartupProbe = httpProbe("/healthz") }))
	p := s.pod("slow", "running", func(p *corev1.Pod) bool { return container(p, "main").State.Running != nil })
	if c := container(p, "main"); c.Started == nil || *c.Started {
		t.Errorf("started before the startup probe succeeded: %+v", c)
	}
	s.event("slow", "Unhealthy", "Startup probe failed")
	s.kubectlDo("exec", "slow", "--", "/demo", "write", "/data/up", "yes")
	if p = s.ready("slow"); container(p, "main").RestartCount != 0 {
		t.Error("the liveness probe did not wait for the startup probe")
	}
	s.pod("stuck", "restarted", func(p *corev1.Pod) bool { return container(p, "main").RestartCount >= 1 })
	s.event("stuck", "Killing", "Container main failed startup probe, will be restarted")
}

// TestProbeHandlers probes a pod with each of the other handlers.
func TestProbeHandlers(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	s.create(s.demo("exec", []string{"sleep"}, keepCount, func(p *corev1.Pod) {
		p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: unhurried,
			ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/demo", "check",
				"/data/ready"}}}}
	}))
	s.create(s.demo("tcp", []string{"serve"}, listening))
	s.ready("tcp")
	s.pod("exec", "running", func(p *corev1.Pod) bool { return container(p, "main").State.Running != nil })
	s.event("exec", "Unhealthy", "Readiness probe failed")
	s.kubectlDo("exec", "exec", "--", "/demo", "write", "/data/ready", "yes")
	s.ready("exec")
}

// TestGRPCProbe probes a server of the gRPC health protocol at the pod's address, with the name of
// a service. A container whose service is unhealthy is restarted; an unknown service is a
// failure.
func TestGRPCProbe(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	asked := func(service string) *corev1.Probe {
		return &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1, TimeoutSeconds: unhurried,
			ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 9000, Service: &service}}}
	}
	s.create(s.demo("well", []string{"health", "demo.Shop", "9000"}, func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.ReadinessProbe, c.LivenessProbe, c.StartupProbe = asked("demo.Shop"), asked("demo.Shop"),
			onceUp(asked("demo.Shop"))
	}))
	s.create(s.demo("other", []string{"health", "demo.Shop", "9000"}, func(p *corev1.Pod) {
		p.Spec.Containers[0].ReadinessProbe = asked("demo.Bank")
	}))
	if p := s.ready("well"); container(p, "main").RestartCount != 0 {
		t.Error("it was restarted")
	}
	s.event("other", "Unhealthy", `unknown service "demo.Bank"`) // it listens
	if rig.PodReady(s.pod("other", "running", func(p *corev1.Pod) bool {
		return container(p, "main").State.Running != nil
	})) {
		t.Error("a service that is not there is Ready")
	}
	s.kubectlDo("exec", "well", "--", "/demo", "write", "/data/ill", "yes")
	s.pod("well", "restarted", func(p *corev1.Pod) bool {
		return container(p, "main").RestartCount == 1 && rig.PodReady(p)
	})
	s.event("well", "Unhealthy", "Liveness probe failed: service unhealthy")
}
