//go:build e2e

package e2e

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"

	"keelson/test/kit/parity"
)

// otherwise are metrics of upstream's kubelet that this agent does not show on this
// node, by how their names begin, and why.
var otherwise = []struct{ names, why string }{
	{"workqueue_.*", "it has no work queue: each pod has a worker, which is woken"},
	{"registered_metrics_total", "the library that it is of is not part of it"},
	{"machine_nvm_.*", "memory of that kind is not looked for"},
	{"dra_.*|kubelet_(cpu_manager|memory_manager|topology_manager|graceful_shutdown)_.*|kubelet_pod_watch_events_dropped_total", "the parts that they are of are not built yet"},
	{"kubelet_(admission_rejections|container_requested_resizes|runtime_operations_errors|started_containers_errors|run_podsandbox_errors|websocket_streaming_requests)_total|" +
		"kubelet_pod_resize_duration_milliseconds|kubelet_volume_metric_collection_duration_seconds|rest_client_transport_ca_reload_total",
		"a series is there from the first time on that it happens, and other tests of this node may have made it happen"},
}

// counted is the last of them: present or not, both are right.
var counted = &otherwise[len(otherwise)-1]

// family is what a scraper relies on of a metric.
type family struct{ kind, labels string }

// upstreams are the metrics that upstream's kubelet v1.36.3 was seen to show, by
// endpoint and name.
func upstreams(t *testing.T) map[string]map[string]family {
	t.Helper()
	text, err := os.ReadFile("testdata/upstream-metrics.tsv")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]family{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(cells) != 4 {
			t.Fatalf("line %q", line)
		}
		if out[cells[0]] == nil {
			out[cells[0]] = map[string]family{}
		}
		out[cells[0]][cells[1]] = family{cells[2], cells[3]}
	}
	return out
}

// scraped are the metrics that an answer shows; a label counts that any series has.
func scraped(t *testing.T, text string) map[string]family {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]family{}
	for name, f := range families {
		labels := map[string]bool{}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				labels[l.GetName()] = true
			}
		}
		out[name] = family{strings.ToLower(dto.MetricType_name[int32(f.GetType())]), strings.Join(slices.Sorted(maps.Keys(labels)), ",")}
	}
	return out
}

// TestMetricsAreUpstreams compares what this agent shows with what upstream's did on
// such a node, with such pods: names, types and labels.
func TestMetricsAreUpstreams(t *testing.T) {
	parity.Proves(t, "SRV-56")
	s := shared(t).namespace(t)
	s.configMap("conf", map[string]string{"a": "1"})
	s.create(s.demo("web", []string{"sleep"}, func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: p.Spec.Containers[0].Image, Args: []string{"echo", "init"}}}
		p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/demo", "echo", "well"}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "c", MountPath: "/c"}}
		p.Spec.Volumes = []corev1.Volume{{Name: "c", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "conf"}}}}}
	}))
	s.create(s.demo("ends", []string{"exit", "3"}, never))
	s.ready("web")
	s.phase("ends", corev1.PodFailed)
	seen := 0
	for endpoint, want := range upstreams(t) {
		text, err := s.Kubelet.Get(t.Context(), endpoint)
		if err != nil {
			t.Fatal(err)
		}
		have := scraped(t, text)
		for name, w := range want {
			is, ok := have[name]
			i := slices.IndexFunc(otherwise, func(o struct{ names, why string }) bool {
				return regexp.MustCompile(`^(` + o.names + `)$`).MatchString(name)
			})
			switch {
			case ok && is != w:
				t.Errorf("%s: %s is %v, upstream's %v", endpoint, name, is, w)
			case ok && i >= 0 && &otherwise[i] != counted:
				t.Errorf("%s: %s is there, and said not to be: %s", endpoint, name, otherwise[i].why)
			case ok:
				seen++
			case i < 0 || endpoint == "/metrics/resource": // upstream calls those of the resources stable
				t.Errorf("%s: no %s", endpoint, name)
			}
		}
	}
	t.Logf("%d metrics are upstream's", seen)
}
