package stats

import (
	"bytes"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"keelson/internal/host/machine"
)

// A pod may give its interfaces any names. They must not make the scrape fail for other pods.
func TestMetricLabelsAreValidUTF8(t *testing.T) {
	e := &exposer{f: newFamilies()}
	e.network([]machine.Traffic{{
		Name:    "eth0",
		RxBytes: 1,
	}, {
		Name:    "a\xffb",
		RxBytes: 2,
	}, {Name: "a\xfeb", RxBytes: 3}, {Name: "\"é\\", RxBytes: 4}}, time.Unix(1, 0), identity{pod: "p"}.labels())
	var text bytes.Buffer
	for _, f := range e.f.sorted() {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	read, err := parser.TextToMetricFamilies(&text)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, m := range read["container_network_receive_bytes_total"].GetMetric() {
		for _, l := range m.Label {
			if l.GetName() == "interface" {
				got[l.GetValue()] = m.Counter.GetValue()
			}
		}
	}
	want := map[string]float64{"eth0": 1, `a\xffb`: 2, `a\xfeb`: 3, "\"é\\": 4}
	for name, n := range want {
		if got[name] != n {
			t.Errorf("%q received %v, want %v of %v", name, got[name], n, got)
		}
	}
}
