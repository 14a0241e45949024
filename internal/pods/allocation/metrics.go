package allocation

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	rejections *prometheus.CounterVec
	preempted  *prometheus.CounterVec
	requested  *prometheus.CounterVec
	infeasible *prometheus.CounterVec
	accepted   *prometheus.CounterVec
	duration   *prometheus.HistogramVec
}

func newMetrics() metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return metrics{
		rejections: counter(metricRejections, "Number of pods that were rejected at admission", "reason"),
		preempted: counter(metricPreempted, "Number of pods that were preempted for a critical pod",
			"preemption_signal"),
		requested: counter(metricRequested, "Number of requested changes of container resources",
			"resource", "requirement", "operation"),
		infeasible: counter(metricInfeasible, "Number of resizes that are infeasible on this node", "reason_detail"),
		accepted:   counter(metricAccepted, "Number of resizes that were deferred and then accepted", "retry_trigger"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    metricDuration,
			Help:    "Duration in milliseconds of the actuation of a resize",
			Buckets: []float64{10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000},
		}, []string{"success"}),
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.rejections, m.preempted, m.requested, m.infeasible, m.accepted, m.duration}
}

func (m *metrics) took(d time.Duration, failed error) {
	success := "true"
	if failed != nil {
		success = "false"
	}
	m.duration.WithLabelValues(success).Observe(float64(d.Milliseconds()))
}

var (
	descPending = prometheus.NewDesc(metricPending, "Number of resizes that were not accepted yet",
		[]string{"reason"}, nil)
	descInProgress = prometheus.NewDesc(metricInProgress,
		"Number of resizes that were accepted and are not actuated yet", nil, nil)
)

// Describe makes the Ledger a collector of its metrics.
func (l *Ledger) Describe(ch chan<- *prometheus.Desc) {
	ch <- descPending
	ch <- descInProgress
	for _, m := range l.metrics.all() {
		m.Describe(ch)
	}
}

// Collect counts the pending resizes and those in progress, and collects the other metrics.
func (l *Ledger) Collect(ch chan<- prometheus.Metric) {
	l.mu.Lock()
	count, progress := l.resizes.numbers()
	l.mu.Unlock()
	for reason, n := range count {
		ch <- prometheus.MustNewConstMetric(descPending, prometheus.GaugeValue, float64(n), strings.ToLower(reason))
	}
	ch <- prometheus.MustNewConstMetric(descInProgress, prometheus.GaugeValue, float64(progress))
	for _, m := range l.metrics.all() {
		m.Collect(ch)
	}
}

// counted are the reasons that the metric has as labels: those of upstream's set, which lacks the predicates for nodes,
// ports and taints. All others share a label.
var counted = map[string]bool{
	"AppArmor": true, "PodOSSelectorNodeLabelDoesNotMatch": true, "PodOSNotSupported": true, "InvalidNodeInfo": true,
	"InitContainerRestartPolicyForbidden": true, "SupplementalGroupsPolicyNotSupported": true, ReasonUnexpected: true,
	"UnknownReason": true, "UnexpectedPredicateFailureType": true, "PodLevelResourcesNotSupported": true,
	"PodFeatureUnsupported": true, "OutOfcpu": true, "OutOfmemory": true, "OutOfephemeral-storage": true,
	"OutOfpods": true, "Evicted": true, "SysctlForbidden": true, "TopologyAffinityError": true,
	"NodeShutdown": true, "VolumeAttachmentLimitExceeded": true,
}

// countedAs is the label for a reason. The number of its values is bounded.
func countedAs(reason string) string {
	switch {
	case counted[reason]:
		return reason
	case strings.HasPrefix(reason, "OutOf"):
		return "OutOfExtendedResources"
	}
	return "Other"
}
