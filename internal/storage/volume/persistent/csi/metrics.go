package csi

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// NewMetrics registers the metric of CSI driver calls and returns its Observer.
func NewMetrics(r prometheus.Registerer) Observer {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "csi_operations_seconds",
		Help:    "Container Storage Interface operation duration with gRPC error code status total",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, []string{"driver_name", "method_name", "grpc_status_code", "migrated"})
	r.MustRegister(h)
	return func(driver, method, code string, migrated bool, took time.Duration) {
		h.WithLabelValues(driver, "/csi.v1.Node/"+method, code, strconv.FormatBool(migrated)).Observe(took.Seconds())
	}
}
