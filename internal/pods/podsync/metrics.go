package podsync

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// metrics are those that are updated when something happens. Collect computes the others at each scrape.
type metrics struct {
	orphaned      prometheus.Counter
	restarted     *prometheus.CounterVec
	terminated    *prometheus.CounterVec
	containers    prometheus.Histogram
	worker        *prometheus.HistogramVec
	workerStart   prometheus.Histogram
	podStart      prometheus.Histogram
	podStartTotal prometheus.Histogram
	podStartSLI   prometheus.Histogram
	firstStart    prometheus.Gauge // zero: no pod with a network of its own has started
	first         sync.Once
}

// startBuckets are the buckets for the duration of a pod's start: up to an hour.
var startBuckets = []float64{
	0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600,
}

func newMetrics() *metrics {
	m := &metrics{
		orphaned: counter(metricOrphaned,
			"Number of pods that were found in the container runtime and that no source has"),
		restarted: counters(metricRestarted,
			"Number of pods that were added again with the same UID before they had terminated", "static"),
		terminated: counters(metricTerminated,
			"Number of containers that have terminated", "container_type", "exit_code", "reason"),
		containers: histogram(metricContainers,
			"Number of containers of a pod when it arrives", prometheus.ExponentialBuckets(1, 2, 5)),
		worker: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: metricWorker,
			Help: "Duration in seconds of one sync of a pod",
		}, []string{"operation_type"}),
		workerStart: histogram(metricWorkerStart,
			"Duration in seconds from the arrival of a pod to its first sync", nil),
		podStart: histogram(metricPodStart,
			"Duration in seconds from the arrival of a pod to the start of its last container", startBuckets),
		podStartTotal: histogram(metricPodStartTotal,
			"Duration in seconds from the creation of a pod to the start of its last container", startBuckets),
		podStartSLI: histogram(metricPodStartSLI,
			"Duration in seconds from the creation of a pod to the start of its last container, "+
				"without image pulls and init containers", startBuckets),
		firstStart: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: metricFirstStart,
			Help: "Duration in seconds from the creation to the start of the last container, " +
				"without image pulls and init containers, of the first pod with a network of its own",
		}),
	}
	for _, static := range []string{staticNo, staticYes} {
		m.restarted.WithLabelValues(static) // shown as zero before the first
	}
	return m
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Name: name,
		Help: help,
	})
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: name,
		Help: help,
	}, labels)
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    name,
		Help:    help,
		Buckets: buckets,
	})
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.orphaned, m.restarted, m.terminated, m.containers, m.worker, m.workerStart,
		m.podStart, m.podStartTotal, m.podStartSLI, m.firstStart,
	}
}

var (
	descDesired   = desc(metricDesired, "Number of desired pods", "static")
	descActive    = desc(metricActive, "Number of pods that take up resources of the node", "static")
	descMirror    = desc(metricMirror, "Number of static pods that have a mirror pod")
	descEphemeral = desc(metricEphemeral, "Number of ephemeral containers of desired pods")
	descWorking   = desc(metricWorking, "Number of pods that have a worker", "lifecycle", "config", "static")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe makes the Syncer a collector of its metrics.
func (s *Syncer) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descDesired, descActive, descMirror, descEphemeral, descWorking} {
		ch <- d
	}
	for _, m := range s.metrics.collectors() {
		m.Describe(ch)
	}
}

// Collect counts the pods that exist now.
func (s *Syncer) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	desired, mirrors, ephemeral := map[string]int{}, 0, 0
	for _, uid := range s.cfg.Desired.UIDs() {
		spec, mirror, ok := s.cfg.Desired.Get(uid)
		if !ok {
			continue
		}
		desired[staticLabel(spec)]++
		ephemeral += len(spec.Spec.EphemeralContainers)
		if mirror != nil {
			mirrors++
		}
	}
	active, working := s.tally()
	for _, static := range []string{staticNo, staticYes} {
		gauge(descDesired, desired[static], static)
		gauge(descActive, active[static], static)
	}
	gauge(descMirror, mirrors)
	gauge(descEphemeral, ephemeral)
	for _, life := range []lifecycle{lifeSync, lifeTerminating, lifeTerminated} {
		for _, at := range []place{
			{life, knownDesired, staticNo},
			{life, knownDesired, staticYes},
			{life, knownOrphan, staticNo},
			{life, knownOrphan, staticYes},
			{life, knownRuntime, staticUnknown},
		} {
			gauge(descWorking, working[at], string(at.life), string(at.known), at.static)
		}
	}
	for _, m := range s.metrics.collectors() {
		m.Collect(ch)
	}
}

// place has the labels of a pod in the count of pods that have a worker.
type place struct {
	life   lifecycle
	known  knownBy
	static string
}

// tally counts pods that are admitted, and those that have a worker.
func (s *Syncer) tally() (active map[string]int, working map[place]int) {
	active = map[string]int{}
	for _, p := range s.cfg.Allocation.Account() {
		active[staticLabel(p)]++
	}
	return active, s.board.places()
}

func staticLabel(p *v1.Pod) string {
	if pod.IsStatic(p) {
		return staticYes
	}
	return staticNo
}

// placeOf returns the place of a pod; spec is nil if only the runtime has the pod.
func placeOf(spec *v1.Pod, known, terminating, stopped bool) place {
	at := place{life: lifeSync, known: knownDesired}
	switch {
	case spec == nil:
		at.known, at.static, terminating = knownRuntime, staticUnknown, true
	case !known:
		at.known, at.static = knownOrphan, staticLabel(spec)
	default:
		at.static = staticLabel(spec)
	}
	switch {
	case terminating && stopped:
		at.life = lifeTerminated
	case terminating:
		at.life = lifeTerminating
	}
	return at
}

// times are the data that the metrics of one worker are computed from. Only its turns access them.
type times struct {
	arrived   time.Time // when the worker was made
	turns     int       // how many were measured
	finished  bool      // the last of them found all that the pod held released
	spec      *v1.Pod   // of the turn before
	pulling   time.Time // when an image was first waited for; zero: none was
	pulled    time.Time // when the last of them was ready
	started   bool      // the start was measured, or began before this agent
	exited    map[string]bool
	exitsRead bool // what had ended before the first turn is not counted
	orphan    bool // the pod was counted as one that only the runtime has
}

// seeStart measures the start of a pod once all of its containers have started.
func (m *metrics) seeStart(t *times, spec *v1.Pod, have pod.Runtime, now time.Time) {
	if t.started || spec == nil {
		return
	}
	if t.turns == 0 && !have.Empty() {
		t.started = true
		return
	}
	for i := range spec.Spec.Containers {
		if c, ok := have.Latest(spec.Spec.Containers[i].Name); !ok || c.StartedAt.IsZero() {
			return
		}
	}
	t.started = true
	m.podStart.Observe(now.Sub(t.arrived).Seconds())
	if spec.CreationTimestamp.IsZero() || pod.IsStatic(spec) {
		return
	}
	total := now.Sub(spec.CreationTimestamp.Time)
	own := total - initTime(spec, have)
	if !t.pulling.IsZero() {
		own -= max(t.pulled.Sub(t.pulling), 0)
	}
	m.podStartTotal.Observe(total.Seconds())
	m.podStartSLI.Observe(max(own, 0).Seconds())
	if !spec.Spec.HostNetwork {
		m.first.Do(func() { m.firstStart.Set(max(own, 0).Seconds()) })
	}
}

// initTime is the time from the start of the first init container to the end of the last. Sidecars do not count.
func initTime(spec *v1.Pod, have pod.Runtime) time.Duration {
	var first, last time.Time
	for kind, c := range pod.Containers(spec) {
		if kind != pod.Init {
			continue
		}
		for _, run := range have.Instances(c.Name) {
			if first.IsZero() || run.StartedAt.Before(first) {
				first = run.StartedAt
			}
			if run.FinishedAt.After(last) {
				last = run.FinishedAt
			}
		}
	}
	return max(last.Sub(first), 0)
}

// seeExits counts containers that ended since the turn before.
func (m *metrics) seeExits(t *times, spec *v1.Pod, have pod.Runtime) {
	exited := map[string]bool{}
	for _, c := range have.Containers {
		if c.State != pod.StateExited {
			continue
		}
		exited[c.ID] = true
		if t.exitsRead && !t.exited[c.ID] {
			m.terminated.WithLabelValues(containerType(spec, c.Name), strconv.Itoa(int(c.ExitCode)), c.Reason).Inc()
		}
	}
	t.exited, t.exitsRead = exited, true
}

func containerType(spec *v1.Pod, name string) string {
	if spec != nil {
		switch kind, _, _ := pod.Find(spec, name); kind {
		case pod.Init, pod.Sidecar:
			return "init_container"
		case pod.Ephemeral:
			return "ephemeral_container"
		}
	}
	return "container"
}

// seeTurn measures a turn that had the pod's specification. The one that found the
// pod finished is the last that counts.
func (m *metrics) seeTurn(t *times, spec *v1.Pod, finished bool, began, ended time.Time) {
	if t.finished {
		return
	}
	if t.turns == 0 {
		m.workerStart.Observe(began.Sub(t.arrived).Seconds())
		m.containers.Observe(float64(len(spec.Spec.Containers)))
	}
	operation := "sync"
	switch {
	case finished:
		operation, t.finished = "terminated", true
	case t.turns == 0:
		operation = "create"
	case spec != t.spec:
		operation = "update"
	}
	t.turns, t.spec = t.turns+1, spec
	m.worker.WithLabelValues(operation).Observe(ended.Sub(began).Seconds())
}

// seePull records when images were first waited for and when all were ready.
func (t *times) seePull(waits bool, now time.Time) {
	switch {
	case waits && t.pulling.IsZero():
		t.pulling = now
	case !waits && !t.pulling.IsZero() && t.pulled.IsZero():
		t.pulled = now
	}
}

// measure updates the metrics after a turn, before the pod may be removed.
func (w *worker) measure(began time.Time, have pod.Runtime, stopped bool) {
	m, t, now, spec := w.s.metrics, &w.times, w.s.cfg.Now(), w.source.spec
	t.seePull(w.images.pulling(), now)
	m.seeStart(t, spec, have, now)
	m.seeExits(t, spec, have)
	if spec != nil {
		m.seeTurn(t, spec, w.ends.isReleased(), began, now)
	} else if !t.orphan && !have.Empty() {
		t.orphan = true
		m.orphaned.Inc()
	}
	w.place = placeOf(spec, w.source.known, w.termination.Termination != nil, stopped)
	w.s.board.post(w.uid, w.place)
}
