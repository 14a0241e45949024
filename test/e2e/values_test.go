//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson/test/differ/values"
	"keelson/test/kit/need"
	"keelson/test/kit/scrape"
	"keelson/test/parts"
)

const summaryPath = "/stats/summary"

// steadyPods creates pods that do not change while the agents are swapped.
func (n *node) steadyPods(t *testing.T) *space {
	t.Helper()
	s := n.namespace(t)
	st := s.storage(nil)
	st.volume("data", false, nil)
	s.configMap("conf", map[string]string{"a": "b"})
	size := resource.MustParse("16Mi")
	s.create(s.demo("whole", []string{"serve"}, initContainer("one", "echo", "hi"),
		sidecar("side", "serve", "-port", "8081"),
		limited("100m", "64Mi"), claimed("data", "/claim"),
		mounted("empty", "/empty", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &size}}),
		mounted("memory", "/memory", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
			Medium: corev1.StorageMediumMemory, SizeLimit: &size}}),
		mounted("conf", "/conf", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "conf"}}}),
		func(p *corev1.Pod) {
			main := &p.Spec.Containers[0]
			main.ReadinessProbe, main.LivenessProbe = httpProbe("/healthz"), httpProbe("/healthz")
		}))
	s.create(s.demo("host", []string{"sleep"}, requests("cpu", "100m"),
		func(p *corev1.Pod) { p.Spec.HostNetwork = true }))
	s.create(s.demo("modest", []string{"serve"}))
	s.create(s.demo("finished", []string{"echo", "done"}, never))
	s.manifest("steady", s.static("steady", "serve"))
	s.phase("finished", corev1.PodSucceeded)
	s.ready("whole")
	s.ready("host")
	s.ready("modest")
	s.ready("steady-" + s.Kubelet.Node)
	return s
}

// shots are the values of all endpoints of the running agent. They are taken once it has measured everything: two
// successive reads have the same series.
func (s *space) shots() map[string]values.Shot {
	s.t.Helper()
	take := func() map[string]values.Shot {
		all := map[string]values.Shot{}
		// first, because this agent measures volumes only while there are requests
		text, err := s.Kubelet.Get(s.t.Context(), summaryPath)
		if err != nil {
			s.t.Fatal(err)
		}
		if all[summaryPath], err = values.OfSummary(text); err != nil {
			s.t.Fatal(err)
		}
		for _, endpoint := range exposed {
			text, err := s.Kubelet.Get(s.t.Context(), endpoint)
			if err != nil {
				s.t.Fatal(err)
			}
			all[endpoint] = values.OfMetrics(scrape.Families(s.t, text))
		}
		return all
	}
	s.until("what the pods use", func() (string, bool) {
		return s.missing(map[string][]string{
			"/metrics/resource": {`container_cpu_usage_seconds_total{container="main",namespace="` + s.ns +
				`",pod="whole"}`},
			"/metrics": {`kubelet_volume_stats_used_bytes{namespace="` + s.ns +
				`",persistentvolumeclaim="data"}`},
			"/metrics/probes": {`pod="whole"`},
			summaryPath:       {`"usageNanoCores"`, `"swap"`, `"` + s.ns + `"`},
		})
	})
	last := take()
	for range 12 { // periodic measurements are made within a minute
		select {
		case <-s.t.Context().Done():
			s.t.Fatal(s.t.Context().Err())
		case <-time.After(10 * time.Second):
		}
		now := take()
		same := true
		for endpoint := range now {
			same = same &&
				maps.EqualFunc(now[endpoint], last[endpoint], func(values.Value, values.Value) bool { return true })
		}
		if last = now; same {
			break
		}
	}
	return last
}

// places are the devices, mount points and network interfaces that the machine has now, as series name them.
func places(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		out[m.Source], out[m.Mountpoint] = true, true
		out[fmt.Sprintf("%s_%d-%d", m.Source, m.Major, m.Minor)] = true
	}
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		out[l.Name] = true
	}
	return out
}

// TestMetricValuesAreUpstreams runs the same pods on one node under upstream's agent, this one, and upstream's again,
// and compares every series of all endpoints with its labels and value. Differences are listed, with the reason, in
// docs/parity/metrics-differences.md.
func TestMetricValuesAreUpstreams(t *testing.T) {
	if os.Getenv("DIFFER") != "values" {
		need.Skip(t, "runs by make differ-values only")
	}
	n := shared(t)
	peer, err := n.parts.Path(t.Context(), "kubelet")
	if err != nil {
		t.Fatal(err)
	}
	root, err := parts.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "parity", "metrics-differences.md"))
	if err != nil {
		t.Fatal(err)
	}
	rules, err := values.ReadRules(string(text))
	if err != nil {
		t.Fatal(err)
	}
	names := listedDifferences(t)
	n.reconfigure(t, func(c *kubeletconfig.KubeletConfiguration) {
		c.VolumeStatsAggPeriod = metav1.Duration{Duration: time.Second}
	})
	// By default upstream's agent reads the names of containers from the machine's containerd.
	n.Kubelet.SetFlags("--containerd=" + strings.TrimPrefix(n.Runtime.Endpoint(), "unix://"))
	t.Cleanup(func() { n.Kubelet.SetFlags() })
	var turns []map[string]values.Shot
	var there []map[string]bool
	s := n.steadyPods(t)
	for _, binary := range []string{peer, n.ours, peer} {
		if err := n.Kubelet.Swap(t.Context(), binary); err != nil {
			t.Fatal(err)
		}
		turns, there = append(turns, s.shots()), append(there, places(t))
	}
	values.Steady(turns, there)
	var findings []values.Finding
	for _, endpoint := range append(slices.Clone(exposed), summaryPath) {
		before, here, after := turns[0][endpoint], turns[1][endpoint], turns[2][endpoint]
		if len(before) == 0 || len(here) == 0 {
			t.Fatalf("%s: %d series of upstream, %d here", endpoint, len(before), len(here))
		}
		found := values.Compare(endpoint, values.Whose(endpoint == "/metrics" || endpoint == "/metrics/probes"), before,
			here, after)
		equal := values.Common(before, here, after)
		t.Logf("%s: %d series of upstream, %d here, %d values compared, %d differ",
			endpoint, len(before), len(here), equal, len(found))
		for _, f := range found {
			if !listedByName(t, names, f) {
				findings = append(findings, f)
			}
		}
	}
	open, idle := values.Judge(findings, rules)
	for _, l := range values.ByRule(findings, rules) {
		t.Log("ruled: " + l)
	}
	for _, f := range open {
		t.Errorf("not listed: %s", strings.ReplaceAll(f.String(), s.ns, "NAMESPACE"))
	}
	for _, r := range idle {
		t.Errorf("listed, and differs no more: %s", fmt.Sprintf("%s %s %s, %s", r.Endpoint, r.Name, r.Labels, r.How))
	}
}

// listedByName reports whether the metric is listed as one that only one of the agents has.
func listedByName(t *testing.T, names []difference, f values.Finding) bool {
	t.Helper()
	name, _, _ := strings.Cut(f.Series, "{")
	return slices.ContainsFunc(names,
		func(d difference) bool { return d.covers(t, difference{f.Endpoint, name, f.How}) })
}
