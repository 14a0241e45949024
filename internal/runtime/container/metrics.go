package container

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
)

// metrics are the metrics of the operations.
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
		sandboxSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: "kubelet",
			Name:      "run_podsandbox_duration_seconds",
			Help:      "Duration in seconds of RunPodSandbox calls, by runtime handler",
			Buckets:   prometheus.DefBuckets,
		}, []string{"runtime_handler"}),
		sandboxErrors: vec("run_podsandbox_errors_total",
			"Cumulative number of failed RunPodSandbox calls, by runtime handler",
			"runtime_handler"),
		pods:      counter("started_pods_total", "Cumulative number of attempts to start a pod sandbox"),
		podErrors: counter("started_pods_errors_total", "Cumulative number of failed attempts to start a pod sandbox"),
		usernsPods: counter("started_user_namespaced_pods_total",
			"Cumulative number of attempts to start a sandbox of a pod with a user namespace"),
		usernsPodErrors: counter("started_user_namespaced_pods_errors_total",
			"Cumulative number of failed attempts to start a sandbox of a pod with a user namespace"),
		containers: vec("started_containers_total",
			"Cumulative number of attempts to start a container, by container type",
			"container_type"),
		containerErrors: vec("started_containers_errors_total",
			"Cumulative number of failed attempts to start a container, by container type and reason", "container_type",
			"code"),
		httpFallbacks: counter("lifecycle_handler_http_fallbacks_total",
			"Cumulative number of lifecycle hooks that fell back from HTTPS to HTTP"),
		sleepsEndedBefore: counter("sleep_action_terminated_early_total",
			"Cumulative number of sleep hooks that the grace period cut short"),
		imageVolumes: counter("image_volume_requested_total",
			"Cumulative number of image volume mounts requested for containers"),
		imageMounts: counter("image_volume_mounted_succeed_total",
			"Cumulative number of image volumes mounted into containers"),
		imageMountErrors: counter("image_volume_mounted_errors_total",
			"Cumulative number of image volume mounts that failed"),
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

// sandbox counts the start of a sandbox. The returned function counts its result.
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

// imagesMounted counts the image volumes of a CreateContainer call by its result.
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
