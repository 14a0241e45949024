package image

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// counted returns the values of a metric by its labels.
func counted(t *testing.T, r *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			out[strings.Join(labels, " ")] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	inTime(t, func(c *Config) { c.Registry = reg }, func(t *testing.T, r *rig) {
		r.fake.images["here:1"] = &runtimeapi.Image{Id: "sha256:here"}
		r.reached(want("u1", "here:1", v1.PullIfNotPresent, 0))
		r.reached(want("u2", "web:1", v1.PullIfNotPresent, 0))
		r.reached(want("u3", "web", v1.PullAlways, 0))
		r.reached(want("u4", "none:1", v1.PullNever, 0))
		got := counted(t, reg, "kubelet_image_manager_ensure_image_requests_total")
		want := map[string]float64{
			"present_locally=true pull_policy=ifnotpresent pull_required=false": 1,
			"present_locally=false pull_policy=ifnotpresent pull_required=true": 1,
			"present_locally=unknown pull_policy=always pull_required=true":     1,
			"present_locally=false pull_policy=never pull_required=true":        1,
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("requests counted: %v, want %v", got, want)
		}
		if got := counted(t, reg, "kubelet_image_pull_duration_seconds"); len(got) != 1 ||
			got["image_size_in_bytes=0-10MB"] != 2 {
			t.Errorf("pulls counted: %v", got)
		}
	})
}

func TestSizeClass(t *testing.T) {
	for size, want := range map[uint64]string{
		0:          "N/A",
		1:          "0-10MB",
		10 << 20:   "0-10MB",
		10<<20 + 1: "10MB-100MB",
		3 << 30:    "1GB-5GB",
		200 << 30:  "GT100GB",
	} {
		if got := sizeClass(size); got != want {
			t.Errorf("sizeClass(%d) = %s, want %s", size, got, want)
		}
	}
}
