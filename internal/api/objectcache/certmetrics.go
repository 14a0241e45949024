package objectcache

import "github.com/prometheus/client_golang/prometheus"

// States of certificates, as named by the metric.
const (
	stateFresh   = "fresh"
	stateOverdue = "overdue_for_refresh"
	stateExpired = "expired"
	stateFailed  = "failed"
	stateDenied  = "denied"
)

var certificateStates = prometheus.NewDesc("kubelet_podcertificate_states",
	"Gauge vector reporting the number of pod certificate projected volume sources, faceted by signer_name and state.",
	[]string{"signer_name", "state"}, nil)

// Describe implements prometheus.Collector.
func (c *Certificates) Describe(ch chan<- *prometheus.Desc) { ch <- certificateStates }

// Collect implements prometheus.Collector. It counts certificates by signer and state, without those that were never
// answered.
func (c *Certificates) Collect(ch chan<- prometheus.Metric) {
	type signerState struct{ signer, state string }
	n := map[signerState]int{}
	c.mu.Lock()
	now := c.cfg.Now()
	for _, h := range c.all {
		state := ""
		switch {
		case h.refused != nil:
			state = h.state
		case h.good == nil:
			continue
		case now.After(h.good.expires):
			state = stateExpired
		case now.After(h.good.begin.Add(overdueAfter)):
			state = stateOverdue
		default:
			state = stateFresh
		}
		n[signerState{h.signer, state}]++
	}
	c.mu.Unlock()
	for k, count := range n {
		ch <- prometheus.MustNewConstMetric(certificateStates, prometheus.GaugeValue, float64(count), k.signer, k.state)
	}
}
