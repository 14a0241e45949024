package values

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// Value is the value of one series.
type Value struct {
	Number float64
	Text   string // of a value that is not a number
	Grows  bool   // a counter, or the number of observations of a histogram
}

// Shot has the values of an endpoint at one moment, by series: name{label="value",…}, with the labels sorted.
type Shot map[string]Value

// OfMetrics is the shot of a metrics endpoint. The value of a histogram or summary is the number of its observations.
func OfMetrics(families map[string]*dto.MetricFamily) Shot {
	out := Shot{}
	for name, f := range families {
		for _, m := range f.Metric {
			v := Value{Number: m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()}
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				v.Grows = true
			case dto.MetricType_HISTOGRAM, dto.MetricType_SUMMARY:
				v.Grows = true
				v.Number = float64(m.GetHistogram().GetSampleCount() + m.GetSummary().GetSampleCount())
			}
			out[series(name, m.Label)] = v
		}
	}
	return out
}

func series(name string, labels []*dto.LabelPair) string {
	if len(labels) == 0 {
		return name
	}
	var parts []string
	for _, l := range labels {
		parts = append(parts, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	slices.Sort(parts)
	return name + "{" + strings.Join(parts, ",") + "}"
}

// named are the fields by which the members of a list are distinguished: a pod, a container, a volume, an interface.
var named = []string{"podRef", "name"}

// OfSummary is the shot of /stats/summary. A series is the path of a field. Its labels name the elements of lists on
// the path, such as the pod, the container and the volume.
func OfSummary(text string) (Shot, error) {
	var doc any
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		return nil, fmt.Errorf("read summary: %w", err)
	}
	out := Shot{}
	walk(out, "", nil, doc)
	return out, nil
}

func walk(out Shot, path string, labels []string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, field := range v {
			walk(out, strings.TrimPrefix(path+"."+k, "."), labels, field)
		}
	case []any:
		for i, member := range v {
			walk(out, path,
				append(slices.Clone(labels),
					fmt.Sprintf("%s=%q", path[strings.LastIndexByte(path, '.')+1:], nameOf(member, i))), member)
		}
	default:
		key := path
		if len(labels) > 0 {
			key += "{" + strings.Join(labels, ",") + "}"
		}
		out[key] = scalar(path, v)
	}
}

func nameOf(member any, i int) string {
	fields, ok := member.(map[string]any)
	if !ok {
		return fmt.Sprint(i)
	}
	for _, by := range named {
		switch v := fields[by].(type) {
		case string:
			return v
		case map[string]any:
			return fmt.Sprintf("%v/%v", v["namespace"], v["name"])
		}
	}
	return fmt.Sprint(i)
}

// growing are the fields of a summary that are counters.
var growing = []string{"usageCoreNanoSeconds", "pageFaults", "majorPageFaults", "rxBytes", "txBytes", "rxErrors",
	"txErrors", "total"}

func scalar(path string, v any) Value {
	field := path[strings.LastIndexByte(path, '.')+1:]
	switch v := v.(type) {
	case float64:
		return Value{Number: v, Grows: slices.Contains(growing, field)}
	case string:
		if at, err := time.Parse(time.RFC3339, v); err == nil && field == "time" {
			return Value{Number: float64(at.Unix()), Grows: true}
		}
		return Value{Text: v}
	default:
		return Value{Text: fmt.Sprint(v)}
	}
}

func (v Value) String() string {
	if v.Text != "" {
		return v.Text
	}
	if v.Number == math.Trunc(v.Number) && math.Abs(v.Number) < 1e15 {
		return fmt.Sprintf("%.0f", v.Number)
	}
	return fmt.Sprint(v.Number)
}
