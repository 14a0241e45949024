package stats

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// families collects series with the time of their reading. It makes them directly, without descriptions that a registry
// would check each time: a node with a hundred pods has ten thousand series.
type families struct{ byName map[string]*dto.MetricFamily }

func newFamilies() *families { return &families{map[string]*dto.MetricFamily{}} }

// labels are name-value pairs, made once for all series that share them.
type labels []*dto.LabelPair

func makeLabels(pairs ...string) labels {
	var out labels
	for i := 0; i < len(pairs); i += 2 {
		pairs[i+1] = validUTF8(pairs[i+1])
		out = append(out, &dto.LabelPair{Name: &pairs[i], Value: &pairs[i+1]})
	}
	return out.sorted()
}

// validUTF8 returns a valid UTF-8 value. Names from the kernel, such as those of a pod's interfaces, can be any bytes,
// and one invalid value would make the whole scrape fail.
func validUTF8(value string) string {
	if utf8.ValidString(value) {
		return value
	}
	quoted := strconv.Quote(value)
	return quoted[1 : len(quoted)-1]
}

func (l labels) sorted() labels {
	slices.SortFunc(l, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
	return l
}

// with returns the labels with some more.
func (l labels) with(pairs ...string) labels {
	return append(slices.Clone(l), makeLabels(pairs...)...).sorted()
}

// metric describes a family.
type metric struct {
	name, help string
	kind       dto.MetricType
}

func counter(name, help string) metric { return metric{name, help, dto.MetricType_COUNTER} }
func gauge(name, help string) metric   { return metric{name, help, dto.MetricType_GAUGE} }

// add adds a series. With a zero time it has no timestamp.
func (f *families) add(m metric, l labels, value float64, at time.Time) {
	fam := f.byName[m.name]
	if fam == nil {
		fam = &dto.MetricFamily{Name: &m.name, Help: &m.help, Type: &m.kind}
		f.byName[m.name] = fam
	}
	s := &dto.Metric{Label: l}
	if m.kind == dto.MetricType_COUNTER {
		s.Counter = &dto.Counter{Value: &value}
	} else {
		s.Gauge = &dto.Gauge{Value: &value}
	}
	if !at.IsZero() {
		ms := at.UnixMilli()
		s.TimestampMs = &ms
	}
	fam.Metric = append(fam.Metric, s)
}

// sorted returns the families in the order of a registry.
func (f *families) sorted() []*dto.MetricFamily {
	out := make([]*dto.MetricFamily, 0, len(f.byName))
	for _, fam := range f.byName {
		out = append(out, fam)
	}
	slices.SortFunc(out, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out
}

// gatherer adapts a function to a Gatherer.
type gatherer func() []*dto.MetricFamily

func (g gatherer) Gather() ([]*dto.MetricFamily, error) { return g(), nil }

var _ prometheus.Gatherer = gatherer(nil)
