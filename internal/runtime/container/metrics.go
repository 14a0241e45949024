package container

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
)

// metrics are what the verbs count.
type metrics struct {
	sandboxSeconds    *prometheus.HistogramVec
	sandboxErrors     *prometheus.CounterVec
	pods              prometheus.Counter
	podErrors         prometheus.Counter
	usernsPods        prometheus.Counter
	usernsPodErrors   prometheus.Counter
	containers        *prometheus.CounterVec
	containerErrors   *prometheus.CounterVec
	httpFallbacks     prometheus.Counter
	sleepsEndedBefore prometheus.Counter
	imageVolumes      prometheus.Counter
	imageMounts       prometheus.Counter
	imageMountErrors  prometheus.Counter
}

func newMetrics(r prometheus.Registerer) (metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Subsystem: "kubelet", Name: name, Help: help})
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: "kubelet", Name: name, Help: help}, labels)
	}
	m := metrics{
		sandboxSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Subsystem: "kubelet", Name: "run_podsandbox_duration_seconds",
			Help: "Seconds that RunPodSandbox took, by runtime handler", Buckets: prometheus.DefBuckets}, []string{"runtime_handler"}),
		sandboxErrors:     vec("run_podsandbox_errors_total", "RunPodSandbox calls that failed, by runtime handler", "runtime_handler"),
		pods:              counter("started_pods_total", "Pod sandboxes that were to be started"),
		podErrors:         counter("started_pods_errors_total", "Pod sandboxes that could not be started"),
		usernsPods:        counter("started_user_namespaced_pods_total", "Pod sandboxes with users of their own that were to be started"),
		usernsPodErrors:   counter("started_user_namespaced_pods_errors_total", "Pod sandboxes with users of their own that could not be started"),
		containers:        vec("started_containers_total", "Containers that were to be started", "container_type"),
		containerErrors:   vec("started_containers_errors_total", "Containers that could not be started", "container_type", "code"),
		httpFallbacks:     counter("lifecycle_handler_http_fallbacks_total", "Lifecycle hooks over HTTPS that were answered only over HTTP"),
		sleepsEndedBefore: counter("sleep_action_terminated_early_total", "Sleep hooks that the grace period ended before their time"),
		imageVolumes:      counter("image_volume_requested_total", "Mounts of image volumes that containers were to have"),
		imageMounts:       counter("image_volume_mounted_succeed_total", "Mounts of image volumes that containers have"),
		imageMountErrors:  counter("image_volume_mounted_errors_total", "Mounts of image volumes of containers that could not be made"),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.sandboxSeconds, m.sandboxErrors, m.pods, m.podErrors, m.usernsPods,
		m.usernsPodErrors, m.containers, m.containerErrors, m.httpFallbacks, m.sleepsEndedBefore,
		m.imageVolumes, m.imageMounts, m.imageMountErrors} {
		if err := r.Register(c); err != nil {
			return m, fmt.Errorf("register container metrics: %w", err)
		}
	}
	return m, nil
}

// sandbox counts the start of a sandbox, and returns what counts its end.
func (m metrics) sandbox(p *v1.Pod) func(err error) {
	userns := p.Spec.HostUsers != nil && !*p.Spec.HostUsers
	m.pods.Inc()
	if userns {
		m.usernsPods.Inc()
	}
	return func(err error) {
		if err == nil {
			return
		}
		m.podErrors.Inc()
		if userns {
			m.usernsPodErrors.Inc()
		}
	}
}

func (m metrics) ran(handler string, took time.Duration, err error) {
	m.sandboxSeconds.WithLabelValues(handler).Observe(took.Seconds())
	if err != nil {
		m.sandboxErrors.WithLabelValues(handler).Inc()
	}
}

func (m metrics) container(kind pod.Kind, err *StartError) {
	m.containers.WithLabelValues(metricKind(kind)).Inc()
	if err != nil {
		m.containerErrors.WithLabelValues(metricKind(kind), err.Reason).Inc()
	}
}

// imagesMounted counts the image volumes of a container that was made or not.
func (m metrics) imagesMounted(mounts []*runtimeapi.Mount, err error) {
	n := 0.
	for _, mount := range mounts {
		if mount.Image != nil {
			n++
		}
	}
	m.imageVolumes.Add(n)
	if err != nil {
		m.imageMountErrors.Add(n)
	} else {
		m.imageMounts.Add(n)
	}
}

func metricKind(k pod.Kind) string {
	switch k {
	case pod.Init, pod.Sidecar:
		return "init_container"
	case pod.Ephemeral:
		return "ephemeral_container"
	default:
		return "container"
	}
}
