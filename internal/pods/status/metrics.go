package status

import "github.com/prometheus/client_golang/prometheus"

const metricSync = "kubelet_pod_status_sync_duration_seconds"

func newSyncSeconds() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: metricSync,
		Help: "Duration in seconds from the first change of a pod's status to its update at the API server, " +
			"including all changes in between",
		Buckets: []float64{0.010, 0.050, 0.100, 0.500, 1, 5, 10, 20, 30, 45, 60},
	})
}

// Describe makes the Writer a collector of its metrics.
func (w *Writer) Describe(ch chan<- *prometheus.Desc) { w.syncSeconds.Describe(ch) }

// Collect collects the metrics of the Writer.
func (w *Writer) Collect(ch chan<- prometheus.Metric) { w.syncSeconds.Collect(ch) }
