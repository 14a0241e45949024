package image

import (
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
)

// metrics are the metrics of image pulls.
type metrics struct {
	ensures *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) (metrics, error) {
	m := metrics{
		ensures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: "kubelet",
			Name:      "image_manager_ensure_image_requests_total",
			Help: "Cumulative number of image pull requests, by pull policy, presence of the image and whether a pull " +
				"was required",
		}, []string{"pull_policy", "present_locally", "pull_required"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: "kubelet",
			Name:      "image_pull_duration_seconds",
			Help:      "Duration in seconds of image pulls, by image size",
			Buckets:   []float64{1, 5, 10, 20, 30, 60, 180, 300, 600, 900, 1200, 1800, 2700, 3600},
		}, []string{"image_size_in_bytes"}),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.ensures, m.seconds} {
		if err := r.Register(c); err != nil {
			return m, fmt.Errorf("register image metrics: %w", err)
		}
	}
	return m, nil
}

// ensured counts a request. With the policy Always, presence is not checked and counts as unknown.
func (m metrics) ensured(policy v1.PullPolicy, present bool, next step) {
	locally := fmt.Sprint(present)
	if policy == v1.PullAlways {
		locally = "unknown"
	}
	m.ensures.WithLabelValues(strings.ToLower(string(policy)), locally, fmt.Sprint(next != use)).Inc()
}

func (m metrics) pulled(took time.Duration, size uint64) {
	m.seconds.WithLabelValues(sizeClass(size)).Observe(took.Seconds())
}

// sizeClass returns the label for an image size.
func sizeClass(size uint64) string {
	if size == 0 {
		return "N/A"
	}
	for _, c := range []struct {
		below uint64
		name  string
	}{
		{10 << 20, "0-10MB"},
		{100 << 20, "10MB-100MB"},
		{500 << 20, "100MB-500MB"},
		{1 << 30, "500MB-1GB"},
		{5 << 30, "1GB-5GB"},
		{10 << 30, "5GB-10GB"},
		{20 << 30, "10GB-20GB"},
		{30 << 30, "20GB-30GB"},
		{40 << 30, "30GB-40GB"},
		{60 << 30, "40GB-60GB"},
		{100 << 30, "60GB-100GB"},
	} {
		if size <= c.below {
			return c.name
		}
	}
	return "GT100GB"
}
