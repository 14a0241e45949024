package gc

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// newCounter returns the counter of removed images, by reason.
func newCounter(r prometheus.Registerer) (*prometheus.CounterVec, error) {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Subsystem: "kubelet",
		Name:      "image_garbage_collected_total",
		Help:      "Cumulative number of images removed by garbage collection, by reason (age or space)",
	}, []string{"reason"})
	if r == nil {
		return c, nil
	}
	if err := r.Register(c); err != nil {
		return nil, fmt.Errorf("register image collection metrics: %w", err)
	}
	return c, nil
}
