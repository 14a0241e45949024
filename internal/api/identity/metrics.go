package identity

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the metrics of certificate rotation, with upstream's names.
type Metrics struct {
	failed       prometheus.Counter   // failed rotations of the client certificate
	serverFailed prometheus.Counter   // failed rotations of the serving certificate
	lived        prometheus.Histogram // lifetime of serving certificates, in seconds

	registerer prometheus.Registerer
}

// NewMetrics returns Metrics. They are registered by Show.
func NewMetrics(r prometheus.Registerer) *Metrics {
	const day = 24 * time.Hour
	var buckets []float64
	for _, age := range []time.Duration{
		time.Minute, time.Hour, 4 * time.Hour, day, 7 * day, 30 * day, 90 * day, 180 * day, 360 * day, 1440 * day,
	} {
		buckets = append(buckets, age.Seconds())
	}
	return &Metrics{
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_certificate_manager_client_expiration_renew_errors",
			Help: "Counter of certificate renewal errors.",
		}),
		serverFailed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_server_expiration_renew_errors",
			Help: "Counter of certificate renewal errors.",
		}),
		lived: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "kubelet_certificate_manager_server_rotation_seconds",
			Buckets: buckets,
			Help:    "Histogram of the number of seconds the previous certificate lived before being rotated.",
		}),
		registerer: r,
	}
}

// Watch sets the callbacks of a rotator.
func (m *Metrics) Watch(cfg *Config) {
	if cfg.Signer == ClientSigner {
		cfg.OnFailure = m.failed.Inc
		return
	}
	cfg.OnFailure = m.serverFailed.Inc
	cfg.OnRotated = func(lived time.Duration) { m.lived.Observe(lived.Seconds()) }
}

// Show registers the metrics of a rotator.
func (m *Metrics) Show(r *Rotator) {
	if r.cfg.Signer == ClientSigner {
		m.registerer.MustRegister(m.failed, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "kubelet_certificate_manager_client_ttl_seconds",
			Help: "Gauge of the TTL (time-to-live) of the Kubelet's client certificate. The value is in seconds until " +
				"certificate expiry (negative if already expired). If client certificate is invalid or unused, the value will " +
				"be +INF.",
		},
			r.timeLeft))
		return
	}
	m.registerer.MustRegister(m.lived, m.serverFailed, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubelet_certificate_manager_server_ttl_seconds",
		Help: "Gauge of the shortest TTL (time-to-live) of the Kubelet's serving certificate. The value is in seconds " +
			"until certificate expiry (negative if already expired). If serving certificate is invalid or unused, the value " +
			"will be +INF.",
	},
		r.timeLeft))
}

func (r *Rotator) timeLeft() float64 {
	leaf := r.Leaf()
	if leaf == nil {
		return math.Inf(1)
	}
	return math.Trunc(leaf.NotAfter.Sub(r.cfg.Now()).Seconds())
}
