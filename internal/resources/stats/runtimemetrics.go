package stats

import (
	"context"
	"fmt"
	"time"

	dto "github.com/prometheus/client_model/go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtimeMetrics adds the metrics of pods and containers that the runtime provides (KEP-2371). Their names and labels
// are up to the runtime. A series that does not match its descriptor is left out.
func (e *exposer) runtimeMetrics(ctx context.Context) error {
	descriptors, err := e.c.cfg.Runtime.ListMetricDescriptors(ctx, &runtimeapi.ListMetricDescriptorsRequest{})
	if err != nil {
		return err
	}
	described := map[string]*runtimeapi.MetricDescriptor{}
	for _, d := range descriptors.GetDescriptors() {
		described[d.GetName()] = d
	}
	resp, err := e.c.cfg.Runtime.ListPodSandboxMetrics(ctx, &runtimeapi.ListPodSandboxMetricsRequest{})
	if err != nil {
		return err
	}
	var bad error
	add := func(list []*runtimeapi.Metric) {
		for _, m := range list {
			if err := e.runtimeMetric(described[m.GetName()], m); err != nil && bad == nil {
				bad = err
			}
		}
	}
	for _, p := range resp.GetPodMetrics() {
		add(p.GetMetrics())
		for _, c := range p.GetContainerMetrics() {
			add(c.GetMetrics())
		}
	}
	return bad
}

// runtimeMetric adds one series. A live value has no timestamp.
func (e *exposer) runtimeMetric(d *runtimeapi.MetricDescriptor, m *runtimeapi.Metric) error {
	if d == nil {
		return fmt.Errorf("read metric %s of the runtime: no descriptor", m.GetName())
	}
	keys, values := d.GetLabelKeys(), m.GetLabelValues()
	if len(keys) != len(values) {
		return fmt.Errorf("read metric %s of the runtime: descriptor has %d labels, metric has %d",
			m.GetName(), len(keys), len(values))
	}
	var l labels
	for i := range keys {
		l = append(l, &dto.LabelPair{Name: &keys[i], Value: &values[i]})
	}
	what := gauge(d.GetName(), d.GetHelp())
	if m.GetMetricType() == runtimeapi.MetricType_COUNTER {
		what = counter(d.GetName(), d.GetHelp())
	}
	var at time.Time
	if ns := m.GetTimestamp(); ns != 0 {
		at = time.Unix(0, ns)
	}
	e.f.add(what, l.sorted(), float64(m.GetValue().GetValue()), at)
	return nil
}
