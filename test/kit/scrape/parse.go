package scrape

import (
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Families parses the text format of an endpoint. The keys are the names of the metrics.
func Families(t testing.TB, text string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("read metrics: %v", err)
	}
	return families
}

// Value is the value of the first series of a counter or gauge that has these labels, given
// as name, value pairs.
func Value(f *dto.MetricFamily, labels ...string) (m *dto.Metric, value float64, ok bool) {
	for _, m := range f.GetMetric() {
		if has(m, labels) {
			return m, m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue(), true
		}
	}
	return nil, 0, false
}

// Total is the sum of the series of a counter or gauge that have these labels, given as name, value pairs.
func Total(f *dto.MetricFamily, labels ...string) (sum float64) {
	for _, m := range f.GetMetric() {
		if has(m, labels) {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
		}
	}
	return sum
}

func has(m *dto.Metric, labels []string) bool {
	for i := 0; i+1 < len(labels); i += 2 {
		found := false
		for _, l := range m.Label {
			found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
		}
		if !found {
			return false
		}
	}
	return true
}
