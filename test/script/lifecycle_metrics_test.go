package script

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"keelson/test/kit/fakecri"
	"keelson/test/kit/parity"
)

// TestMetricsOfLives makes pods start, fail and end, and reads the metrics of that.
func TestMetricsOfLives(t *testing.T) {
	parity.Proves(t, "SRV-49")
	parity.ProvesPart(t, 2, "PROBE-30")
	s := Listening(t, "", Rights)
	pods := s.API.CoreV1().Pods(Namespace)
	create := func(name, container string, edit func(*corev1.PodSpec)) {
		t.Helper()
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name:      name,
			Namespace: Namespace,
		}, Spec: corev1.PodSpec{NodeName: Node, RestartPolicy: corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers:                    []corev1.Container{{Name: container, Image: Image}}}}
		if edit != nil {
			edit(&p.Spec)
		}
		if _, err := pods.Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	phase := func(name string, want corev1.PodPhase) {
		t.Helper()
		if err := s.Awaits(name, Unhurried, func(p *corev1.Pod) bool { return p.Status.Phase == want }); err != nil {
			t.Fatal(err)
		}
	}
	s.Runtime.Inject(fakecri.Fault{Method: "CreateContainer", Container: "unmade", Message: "no", Code: 2})
	create("web", "main", func(spec *corev1.PodSpec) {
		spec.InitContainers = []corev1.Container{{Name: "first", Image: Image, Command: []string{"sh", "-c", "exit 0"}}}
		spec.Containers[0].ReadinessProbe = &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"healthy"}}},
		}
	})
	create("broken", "main", func(spec *corev1.PodSpec) { spec.Containers[0].Command = []string{"sh", "-c", "exit 3"} })
	create("unmade", "unmade", nil)
	create("short", "main", nil)
	phase("web", corev1.PodRunning)
	phase("short", corev1.PodRunning)
	phase("broken", corev1.PodFailed)
	if err := pods.Delete(t.Context(), "short", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`kubelet_node_name{node="` + Node + `"} 1`,
		`kubelet_desired_pods{static=""} 3`,
		`kubelet_active_pods{static=""} 2`,
		`kubelet_mirror_pods 0`,
		`kubelet_working_pods{config="desired",lifecycle="sync",static=""} 2`,
		`kubelet_orphaned_runtime_pods_total 0`,
		`kubelet_started_pods_total 4`,
		`kubelet_started_pods_errors_total 0`,
		`kubelet_started_containers_total{container_type="init_container"} 1`,
		`kubelet_started_containers_errors_total{code="CreateContainerError",container_type="container"}`,
		`kubelet_terminated_containers_total{container_type="container",exit_code="3",reason="Error"} 1`,
		`kubelet_terminated_containers_total{container_type="init_container",exit_code="0",reason="Completed"} 1`,
		`kubelet_running_pods 2`,
		`kubelet_running_containers{container_state="running"} 1`,
		`kubelet_managed_ephemeral_containers 0`,
		`kubelet_containers_per_pod_count_count 4`,
		`kubelet_started_user_namespaced_pods_total 0`,
		`kubelet_started_user_namespaced_pods_errors_total 0`,
		`kubelet_lifecycle_handler_http_fallbacks_total 0`,
		`kubelet_sleep_action_terminated_early_total 0`,
		`kubelet_first_network_pod_start_sli_duration_seconds`,
		`kubelet_image_volume_requested_total 0`,
		`kubelet_image_volume_mounted_succeed_total 0`,
		`kubelet_image_volume_mounted_errors_total 0`,
	}
	s.Soon(t, "the figures", 0, func() (int, string) {
		_, text := s.Ask(t, "/metrics", "good", nil)
		var missing []string
		for _, line := range want {
			if !strings.Contains(text, "\n"+line) {
				missing = append(missing, line)
			}
		}
		var have []string
		for line := range strings.Lines(text) {
			for _, m := range missing {
				name, _, _ := strings.Cut(m, "{")
				name, _, _ = strings.Cut(name, " ")
				if strings.HasPrefix(line, name) {
					have = append(have, line)
				}
			}
		}
		return len(missing), "without " + strings.Join(missing, "\n") + "\nbut with\n" + strings.Join(have, "")
	})
	// Metrics of probes have an endpoint of their own.
	s.Soon(t, "the probes", 0, func() (int, string) {
		_, text := s.Ask(t, "/metrics/probes", "good", nil)
		_, others := s.Ask(t, "/metrics", "good", nil)
		missing := 0
		for _, series := range []string{
			`prober_probe_total{container="main",namespace="default",pod="web",pod_uid="`,
			`prober_probe_duration_seconds_count{container="main",namespace="default",pod="web",probe_type="Readiness"} `,
		} {
			if !strings.Contains(text, "\n"+series) || strings.Contains(others, "\n"+series) {
				missing++
			}
		}
		return missing, text
	})
	// Of the process metrics, the endpoint of probes has the start time only.
	if _, text := s.Ask(t, "/metrics/probes", "good", nil); !strings.Contains(text, "\nprocess_start_time_seconds ") ||
		strings.Contains(text, "process_cpu") {
		t.Errorf("/metrics/probes:\n%s", text)
	}
}
