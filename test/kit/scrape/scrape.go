// Package scrape reads metrics as a scraper would, for tests.
package scrape

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Of returns the series of a collector by name{label=value,...}, or by the name alone
// without labels. The value of a histogram is the number of its observations.
func Of(t testing.TB, c prometheus.Collector) map[string]float64 {
	t.Helper()
	values, _ := read(t, c)
	return values
}

// Sums returns the sum of the observations of each histogram, by series.
func Sums(t testing.TB, c prometheus.Collector) map[string]float64 {
	t.Helper()
	_, sums := read(t, c)
	return sums
}

func read(t testing.TB, c prometheus.Collector) (values, sums map[string]float64) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values, sums = map[string]float64{}, map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			name := f.GetName()
			if len(labels) > 0 {
				name = fmt.Sprintf("%s{%s}", name, strings.Join(labels, ","))
			}
			values[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() +
				float64(m.GetHistogram().GetSampleCount())
			if h := m.GetHistogram(); h != nil {
				sums[name] = h.GetSampleSum()
			}
		}
	}
	return values, sums
}
