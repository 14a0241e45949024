package node

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Startup measures the duration of the startup of a new node, from the boot of the machine. For an existing node it
// measures nothing.
type Startup struct {
	boot, begun time.Time // of the machine; of the agent

	mu         sync.Mutex
	tried      time.Time // the first attempt to register
	registered time.Time // as a new node
	ready      bool

	preKubelet, preRegistration, registration, postRegistration, total prometheus.Gauge
}

// NewStartup returns a Startup and registers its metrics.
func NewStartup(r prometheus.Registerer, boot, begun time.Time) *Startup {
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_node_startup_" + name + "duration_seconds",
			Help: "Duration in seconds of node startup " + help + ".",
		})
		r.MustRegister(g)
		return g
	}
	return &Startup{
		boot:             boot,
		begun:            begun,
		preKubelet:       gauge("pre_kubelet_", "before kubelet starts"),
		preRegistration:  gauge("pre_registration_", "before registration"),
		registration:     gauge("registration_", "during registration"),
		postRegistration: gauge("post_registration_", "after registration"),
		total:            gauge("", "in total"),
	}
}

// tries notes an attempt to register.
func (s *Startup) tries(now time.Time) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tried.IsZero() {
		s.tried = now
	}
}

// created notes that the node was created.
func (s *Startup) created(now time.Time) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.registered = now
}

// isReady notes that the API server has the node as ready.
func (s *Startup) isReady(now time.Time) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready || s.registered.IsZero() || s.boot.IsZero() {
		return
	}
	s.ready = true
	s.preKubelet.Set(s.begun.Sub(s.boot).Seconds())
	s.preRegistration.Set(s.tried.Sub(s.begun).Seconds())
	s.registration.Set(s.registered.Sub(s.tried).Seconds())
	s.postRegistration.Set(now.Sub(s.registered).Seconds())
	s.total.Set(now.Sub(s.boot).Seconds())
}
