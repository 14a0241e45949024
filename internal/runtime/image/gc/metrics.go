package gc

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// newCounter counts removed images by reason.
func newCounter(r prometheus.Registerer) (*prometheus.CounterVec, error) {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: "kubelet", Name: "image_garbage_collected_total",
		Help: "Images that were removed because they were old (age) or the disk was full (space)"}, []string{"reason"})
	if r == nil {
		return c, nil
	}
	if err := r.Register(c); err != nil {
		return nil, fmt.Errorf("register image collection metrics: %w", err)
	}
	return c, nil
}
