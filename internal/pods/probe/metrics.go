package probe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// metrics count the results of probes. Prober.mu guards it.
type metrics struct {
	total   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	// series are the label sets of each pod: they are deleted with the pod.
	series map[types.UID]map[series]bool
}

// series is the label set of one probe.
type series struct{ kind, container, pod, namespace string }

func newMetrics() metrics {
	return metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricTotal,
			Help: "Cumulative number of a liveness, readiness or startup probe for a container by result."},
			[]string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: metricSeconds,
			Help: "Duration in seconds for a probe response."},
			[]string{"probe_type", "container", "pod", "namespace"}),
		series: map[types.UID]map[series]bool{},
	}
}

// ran counts a run of a probe. The duration is observed for successful probes only.
func (m *metrics) ran(spec *v1.Pod, k *check, o outcome, took time.Duration) {
	if o == errored {
		return
	}
	s := series{k.kind, k.target.container.Name, spec.Name, spec.Namespace}
	of := m.series[spec.UID]
	if of == nil {
		of = map[series]bool{}
		m.series[spec.UID] = of
	}
	of[s] = true
	m.total.WithLabelValues(s.kind, resultOf(o), s.container, s.pod, s.namespace, string(spec.UID)).Inc()
	if o != failure {
		m.seconds.WithLabelValues(s.kind, s.container, s.pod, s.namespace).Observe(took.Seconds())
	}
}

// forget drops the series of a pod that is not probed any more.
func (m *metrics) forget(uid types.UID) {
	for s := range m.series[uid] {
		m.drop(uid, s)
	}
	delete(m.series, uid)
}

// forgetContainer drops the series of a container that is not probed any more.
func (m *metrics) forgetContainer(uid types.UID, name string) {
	for s := range m.series[uid] {
		if s.container == name {
			m.drop(uid, s)
			delete(m.series[uid], s)
		}
	}
}

func (m *metrics) drop(uid types.UID, s series) {
	for _, result := range results {
		m.total.DeleteLabelValues(s.kind, result, s.container, s.pod, s.namespace, string(uid))
	}
	m.seconds.DeleteLabelValues(s.kind, s.container, s.pod, s.namespace)
}

func resultOf(o outcome) string {
	if o == failure {
		return resultFailed
	}
	return resultSuccessful
}

// Describe makes the Prober a collector of its metrics.
func (p *Prober) Describe(ch chan<- *prometheus.Desc) {
	p.metrics.total.Describe(ch)
	p.metrics.seconds.Describe(ch)
}

// Collect shows the metrics of probes.
func (p *Prober) Collect(ch chan<- prometheus.Metric) {
	p.metrics.total.Collect(ch)
	p.metrics.seconds.Collect(ch)
}
