//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/test/images"
	"keelson/test/kit/scrape"
)

// meter answers metrics.k8s.io for the cluster, as metrics-server does: CPU as the
// rate between two scrapes of the node, memory from the newer one. It reaches the node
// through the API server.
type meter struct {
	*space
	before, after map[string]*dto.MetricFamily
}

// usage is the usage of a node or of a container in the API.
type usage struct {
	Metadata  metav1.ObjectMeta   `json:"metadata,omitzero"`
	Name      string              `json:"name,omitempty"`
	Timestamp metav1.Time         `json:"timestamp,omitzero"`
	Window    string              `json:"window,omitempty"`
	Usage     corev1.ResourceList `json:"usage,omitempty"`
	// Containers are the containers of a pod.
	Containers []usage `json:"containers,omitempty"`
}

const meterKinds = `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "metrics.k8s.io/v1beta1", "resources": [
	{"name": "nodes", "singularName": "", "namespaced": false, "kind": "NodeMetrics", "verbs": ["get", "list"]},
	{"name": "pods", "singularName": "", "namespaced": true, "kind": "PodMetrics", "verbs": ["get", "list"]}]}`

// meterService is the service of the meter. A service of type ExternalName needs no kube-proxy on the node.
const meterService = `{"kind": "List", "apiVersion": "v1", "items": [
	{"kind": "Service", "apiVersion": "v1", "metadata": {"name": "meter"}, "spec": {"type": "ExternalName", "externalName": %q}},
	{"kind": "APIService", "apiVersion": "apiregistration.k8s.io/v1", "metadata": {"name": "v1beta1.metrics.k8s.io"}, "spec": {
		"service": {"namespace": %q, "name": "meter", "port": %d}, "group": "metrics.k8s.io", "version": "v1beta1",
		"insecureSkipTLSVerify": true, "groupPriorityMinimum": 100, "versionPriority": 100}}]}`

func (m *meter) scrape(ctx context.Context) map[string]*dto.MetricFamily {
	m.t.Helper()
	text, err := m.Cluster.Client.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes", m.Kubelet.Node,
		"proxy", "metrics", "resource").DoRaw(ctx)
	if err != nil {
		m.t.Fatal(err)
	}
	return scrape.Families(m.t, string(text))
}

// of is the usage by the series with these labels.
func (m *meter) of(cpu, memory string, labels ...string) (usage, error) {
	first, a, ok := scrape.Value(m.before[cpu], labels...)
	last, b, ok2 := scrape.Value(m.after[cpu], labels...)
	_, bytes, ok3 := scrape.Value(m.after[memory], labels...)
	if !ok || !ok2 || !ok3 {
		return usage{}, fmt.Errorf("find %s and %s of %v: missing", cpu, memory, labels)
	}
	window := time.Duration(last.GetTimestampMs()-first.GetTimestampMs()) * time.Millisecond
	if window <= 0 {
		return usage{}, fmt.Errorf("%s of %v: read at the same time twice", cpu, labels)
	}
	return usage{Timestamp: metav1.NewTime(time.UnixMilli(last.GetTimestampMs())), Window: window.String(),
		Usage: corev1.ResourceList{
			"cpu":    *resource.NewMilliQuantity(int64((b-a)/window.Seconds()*1000), resource.DecimalSI),
			"memory": *resource.NewQuantity(int64(bytes), resource.BinarySI),
		}}, nil
}

func (m *meter) nodes() ([]usage, error) {
	u, err := m.of("node_cpu_usage_seconds_total", "node_memory_working_set_bytes")
	u.Metadata.Name = m.Kubelet.Node
	return []usage{u}, err
}

func (m *meter) pods() ([]usage, error) {
	var out []usage
	for _, series := range m.after["pod_cpu_usage_seconds_total"].GetMetric() {
		labels := map[string]string{}
		for _, l := range series.Label {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["namespace"] != m.ns {
			continue
		}
		p := usage{Metadata: metav1.ObjectMeta{Namespace: m.ns, Name: labels["pod"]}}
		for _, c := range m.after["container_cpu_usage_seconds_total"].GetMetric() {
			if _, _, ok := scrape.Value(&dto.MetricFamily{Metric: []*dto.Metric{c}}, "namespace", m.ns,
				"pod", labels["pod"]); !ok {
				continue
			}
			for _, l := range c.Label {
				if l.GetName() != "container" {
					continue
				}
				u, err := m.of("container_cpu_usage_seconds_total", "container_memory_working_set_bytes",
					"namespace", m.ns, "pod", labels["pod"], "container", l.GetValue())
				if err != nil {
					return nil, err
				}
				u.Name, p.Timestamp, p.Window = l.GetValue(), u.Timestamp, u.Window
				u.Timestamp, u.Window = metav1.Time{}, ""
				p.Containers = append(p.Containers, u)
			}
		}
		out = append(out, p)
	}
	return out, nil
}

func (m *meter) serve(w http.ResponseWriter, r *http.Request) {
	const root = "/apis/metrics.k8s.io/v1beta1"
	var items []usage
	var err error
	kind := "NodeMetricsList"
	switch r.URL.Path {
	case root:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(meterKinds)) // the client may have gone
		return
	case root + "/nodes":
		items, err = m.nodes()
	case root + "/namespaces/" + m.ns + "/pods":
		kind = "PodMetricsList"
		items, err = m.pods()
	default:
		http.NotFound(w, r)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind":       kind,
		"apiVersion": "metrics.k8s.io/v1beta1",
		"metadata":   map[string]any{},
		"items":      items,
	})
}

// TestKubectlTop checks the usage of pods and node, which comes from the node's own metrics.
func TestKubectlTop(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	s.create(s.demo("works", []string{"hog", "64"}, func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name:  "busy",
			Image: images.Demo,
			Args:  []string{"spin"},
		})
	}))
	s.create(s.demo("rests", []string{"sleep"}))
	s.ready("works")
	s.ready("rests")
	m := &meter{space: s}
	var spun float64
	s.until("the load to be seen", func() (string, bool) {
		now := m.scrape(t.Context())
		_, spent, _ := scrape.Value(now["container_cpu_usage_seconds_total"], "namespace", s.ns, "container", "busy")
		_, held, _ := scrape.Value(now["container_memory_working_set_bytes"], "namespace", s.ns,
			"pod", "works", "container", "main")
		logged := fmt.Sprintf("%v s, %v bytes", spent, held)
		switch {
		case held < 64<<20:
		case m.before == nil:
			m.before, spun = now, spent
		case spent-spun >= 1: // a second of CPU later
			m.after = now
			_, err := m.nodes() // fails until the agent has measured the node again
			return fmt.Sprint(err), err == nil
		}
		return logged, false
	})
	l, err := net.Listen("tcp", s.Loopback()+":0")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(m.serve))
	server.Listener.Close()
	server.Listener = l
	server.StartTLS()
	t.Cleanup(server.Close)
	object := fmt.Sprintf(meterService, s.Loopback(), s.ns, l.Addr().(*net.TCPAddr).Port)
	apply := s.kubectlCommand(t.Context(), s.ns, "create", "-f", "-")
	apply.Stdin = strings.NewReader(object)
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// Before the server ends: a discovery of all API groups would fail without it.
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if out, err := s.kubectlCommand(ctx, s.ns,
			"delete", "apiservice", "v1beta1.metrics.k8s.io").CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	s.kubectlDo("wait", "--for=condition=Available", "--timeout="+patience.String(),
		"apiservice/v1beta1.metrics.k8s.io")
	shown := map[string][]string{}
	s.until("kubectl top pod", func() (string, bool) { // the group is found a moment later
		out, err := s.kubectlCommand(t.Context(), s.ns, "top", "pod", "--containers", "--no-headers").CombinedOutput()
		for line := range strings.Lines(string(out)) {
			if f := strings.Fields(line); len(f) == 4 {
				shown[f[0]+"/"+f[1]] = f[2:]
			}
		}
		return string(out), err == nil
	})
	amount := func(who, what string, i int) int64 {
		t.Helper()
		if len(shown[who]) <= i {
			t.Fatalf("no %s of %s in %v", what, who, shown)
		}
		q, err := resource.ParseQuantity(shown[who][i])
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			return q.MilliValue()
		}
		return q.Value() >> 20
	}
	if len(shown) != 3 {
		t.Errorf("kubectl top pod shows %v", shown)
	}
	if mib := amount("works/main", "memory", 1); mib < 64 || mib > 90 {
		t.Errorf("a container that holds 64 MiB is shown with %d", mib)
	}
	if mib := amount("rests/main", "memory", 1); mib > 20 {
		t.Errorf("a container that holds nothing is shown with %d MiB", mib)
	}
	busy := amount("works/busy", "CPU", 0)
	if rest := amount("rests/main", "CPU", 0) + amount("works/main", "CPU", 0); rest > 20 || busy < 10*max(rest, 1) {
		t.Errorf("a container that spins is shown with %d m, two that do not with %d m", busy, rest)
	}
	_, node, _ := scrape.Value(m.after["node_memory_working_set_bytes"])
	out := s.kubectlDo("top", "node", "--no-headers")
	if f := strings.Fields(out); len(f) == 5 {
		shown["node"] = []string{f[1], f[3]}
	}
	if mib := amount("node", "memory", 1); mib != int64(node)>>20 {
		t.Errorf("kubectl top node shows %s, want %d MiB", out, int64(node)>>20)
	}
	// The two were read at different times.
	if m := amount("node", "CPU", 0); m < busy/2 {
		t.Errorf("kubectl top node shows less than one of its containers uses: %s, %d m", out, busy)
	}
}
