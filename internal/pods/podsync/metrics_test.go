package podsync

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/test/kit/parity"
	"keelson/test/kit/scrape"
)

// fakeDesired holds what it was given.
type fakeDesired map[types.UID]struct{ spec, mirror *v1.Pod }

func (f fakeDesired) Get(uid types.UID) (spec, mirror *v1.Pod, known bool) {
	p, ok := f[uid]
	return p.spec, p.mirror, ok
}
func (f fakeDesired) UIDs() []types.UID           { return slices.Collect(maps.Keys(f)) }
func (f fakeDesired) Ready() bool                 { return true }
func (f fakeDesired) SourceReady(pod.Source) bool { return true }

// fakeAllocation counts the pods it was given.
type fakeAllocation struct {
	Allocated
	pods []*v1.Pod
}

func (f *fakeAllocation) Account() []*v1.Pod { return f.pods }

// measured is a syncer whose turns are only measured.
type measured struct {
	*Syncer
	t       *testing.T
	clock   sync.Mutex // guards now while tasks run
	now     time.Time
	desired fakeDesired

	admitted *fakeAllocation
}

func newMeasured(t *testing.T) *measured {
	m := &measured{t: t, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), desired: fakeDesired{}}
	m.admitted = &fakeAllocation{}
	m.Syncer = New(Config{
		Desired:    m.desired,
		Allocation: Allocation{Allocated: m.admitted},
		Log:        slog.New(slog.NewTextHandler(t.Output(), nil)),
		Now:        m.time,
	})
	return m
}

func (m *measured) time() time.Time {
	m.clock.Lock()
	defer m.clock.Unlock()
	return m.now
}

// advance sets the clock forward while tasks run.
func (m *measured) advance(d time.Duration) {
	m.clock.Lock()
	defer m.clock.Unlock()
	m.now = m.now.Add(d)
}

func (m *measured) worker(uid types.UID, spec *v1.Pod) *worker {
	w := newWorker(m.Syncer, uid)
	w.source.spec, w.source.desired, w.source.known = spec, spec, spec != nil
	m.workers[uid] = w
	return w
}

func (m *measured) expect(want map[string]float64) {
	m.t.Helper()
	got := scrape.Of(m.t, m.Syncer)
	for name, n := range want {
		if got[name] != n {
			m.t.Errorf("%s = %v, want %v", name, got[name], n)
		}
	}
}

func podNamed(uid types.UID, source pod.Source) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			UID:         uid,
			Name:        string(uid),
			Namespace:   "ns",
			Annotations: map[string]string{pod.AnnotationConfigSource: string(source)},
		},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a"}, {Name: "b"}}},
	}
}

func TestPodCountMetrics(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-01")
	m := newMeasured(t)
	web, static, lost := podNamed("web", pod.SourceAPI), podNamed("static", pod.SourceFile), podNamed("lost",
		pod.SourceAPI)
	web.Spec.EphemeralContainers = []v1.EphemeralContainer{{}}
	m.desired["web"] = struct{ spec, mirror *v1.Pod }{spec: web}
	m.desired["static"] = struct{ spec, mirror *v1.Pod }{static, &v1.Pod{}}
	m.admitted.pods = []*v1.Pod{web, static}

	have := pod.Runtime{Containers: []pod.Container{{ID: "x", Name: "a"}}}
	m.worker("web", web).measure(m.now, pod.Runtime{}, false)
	w := m.worker("static", static)
	w.termination.Termination = &podplan.Termination{}
	w.measure(m.now, have, false)
	w = m.worker("lost", lost)
	w.source.known, w.termination.Termination = false, &podplan.Termination{}
	w.measure(m.now, pod.Runtime{}, true)
	w = m.worker("stray", nil)
	w.measure(m.now, have, false)
	w.measure(m.now, have, false)
	m.worker("new", podNamed("new", pod.SourceAPI)) // has not had a turn

	m.expect(map[string]float64{
		"kubelet_desired_pods{static=}":                                                  1,
		"kubelet_desired_pods{static=true}":                                              1,
		"kubelet_active_pods{static=}":                                                   1,
		"kubelet_active_pods{static=true}":                                               1,
		"kubelet_mirror_pods":                                                            1,
		"kubelet_managed_ephemeral_containers":                                           1,
		"kubelet_orphaned_runtime_pods_total":                                            1,
		"kubelet_working_pods{config=desired,lifecycle=sync,static=}":                    1,
		"kubelet_working_pods{config=desired,lifecycle=terminating,static=true}":         1,
		"kubelet_working_pods{config=orphan,lifecycle=terminated,static=}":               1,
		"kubelet_working_pods{config=runtime_only,lifecycle=terminating,static=unknown}": 1,
		"kubelet_working_pods{config=desired,lifecycle=sync,static=true}":                0,
	})
	n := 0
	for name := range scrape.Of(t, m.Syncer) {
		if len(name) > len(metricWorking) && name[:len(metricWorking)] == metricWorking {
			n++
		}
	}
	if n != 15 {
		t.Errorf("%d series of working pods, want every one there can be", n)
	}
}

func TestRestoredPodIsCounted(t *testing.T) {
	parity.ProvesPart(t, 3, "SRC-18")
	m := newMeasured(t)
	static := podNamed("static", pod.SourceFile)
	w := m.worker("static", static)
	m.desired["static"] = struct{ spec, mirror *v1.Pod }{spec: static}
	m.leave(w)
	m.leave(m.worker("gone", podNamed("gone", pod.SourceAPI)))
	m.expect(map[string]float64{
		"kubelet_restarted_pods_total{static=true}": 1,
		"kubelet_restarted_pods_total{static=}":     0,
	})
}

func TestPodStartIsMeasuredOnce(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-15")
	m := newMeasured(t)
	spec := podNamed("web", pod.SourceAPI)
	spec.CreationTimestamp = metav1.NewTime(m.now.Add(-time.Second))
	spec.Spec.InitContainers = []v1.Container{{Name: "i"}}
	w := m.worker("web", spec)
	m.now = m.now.Add(time.Second)
	w.images["a"] = image{}
	w.measure(m.now, pod.Runtime{}, false) // images are pulled from now on
	m.now = m.now.Add(10 * time.Second)
	w.images["a"] = image{result: ImageResult{Ready: true}}
	w.measure(m.now, pod.Runtime{}, false)
	started := func(name string) pod.Container {
		return pod.Container{ID: name, Name: name, State: pod.StateRunning, StartedAt: m.now}
	}
	init := pod.Container{
		ID:         "i",
		Name:       "i",
		State:      pod.StateExited,
		StartedAt:  m.now,
		FinishedAt: m.now.Add(20 * time.Second),
	}
	m.now = m.now.Add(20 * time.Second)
	w.measure(m.now, pod.Runtime{Containers: []pod.Container{init, started("a")}}, false)
	m.expect(map[string]float64{"kubelet_pod_start_duration_seconds": 0})
	m.now = m.now.Add(3 * time.Second)
	all := pod.Runtime{Containers: []pod.Container{init, started("a"), started("b")}}
	w.measure(m.now, all, false)
	edited := *spec
	w.source.spec = &edited
	w.measure(m.now, all, false)
	m.expect(map[string]float64{
		"kubelet_pod_start_duration_seconds":                         1,
		"kubelet_pod_start_total_duration_seconds":                   1,
		"kubelet_pod_start_sli_duration_seconds":                     1,
		"kubelet_pod_worker_start_duration_seconds":                  1,
		"kubelet_containers_per_pod_count":                           1,
		"kubelet_pod_worker_duration_seconds{operation_type=create}": 1,
		"kubelet_pod_worker_duration_seconds{operation_type=sync}":   3,
		"kubelet_pod_worker_duration_seconds{operation_type=update}": 1,
	})
	w.ends.note(true, false)
	w.measure(m.now, pod.Runtime{}, true)
	w.measure(m.now, pod.Runtime{}, true) // a source has it still, and nothing is done
	m.expect(map[string]float64{
		"kubelet_pod_worker_duration_seconds{operation_type=terminated}": 1,
		"kubelet_pod_worker_duration_seconds{operation_type=sync}":       3,
	})
	for name, want := range map[string]float64{
		metricPodStart:      34,
		metricPodStartTotal: 35,
		metricPodStartSLI:   5,
		metricWorkerStart:   1,
		metricContainers:    2,
	} {
		if got := scrape.Sums(t, m.Syncer)[name]; got != want {
			t.Errorf("%s counted %v, want %v", name, got, want)
		}
	}

	// A pod that ran before the agent did was started by another.
	m.worker("old", podNamed("old", pod.SourceAPI)).measure(m.now, all, false)
	m.expect(map[string]float64{"kubelet_pod_start_duration_seconds": 1})
}

func TestFirstNetworkPodMetric(t *testing.T) {
	m := newMeasured(t)
	for i, p := range []*v1.Pod{
		podNamed("host", pod.SourceAPI),
		podNamed("first", pod.SourceAPI),
		podNamed("second", pod.SourceAPI),
	} {
		p.Spec.HostNetwork = p.Name == "host"
		p.CreationTimestamp = metav1.NewTime(m.now)
		w := m.worker(p.UID, p)
		w.measure(m.now, pod.Runtime{}, false)
		m.now = m.now.Add(time.Duration(i+1) * time.Second)
		w.measure(m.now, pod.Runtime{
			Containers: []pod.Container{{ID: "a", Name: "a", StartedAt: m.now}, {ID: "b", Name: "b", StartedAt: m.now}},
		}, false)
		m.expect(map[string]float64{"kubelet_first_network_pod_start_sli_duration_seconds": []float64{0, 2, 2}[i]})
	}
}

func TestEndedContainersAreCountedOnce(t *testing.T) {
	m := newMeasured(t)
	spec := podNamed("web", pod.SourceAPI)
	spec.Spec.InitContainers = []v1.Container{{Name: "i"}}
	w := m.worker("web", spec)
	ended := func(id, name string, code int32, reason string) pod.Container {
		return pod.Container{ID: id, Name: name, State: pod.StateExited, ExitCode: code, Reason: reason}
	}
	before := ended("1", "a", 1, "Error")
	w.measure(m.now, pod.Runtime{Containers: []pod.Container{before}}, false)
	have := pod.Runtime{Containers: []pod.Container{
		before,
		ended("2", "a", 137, "OOMKilled"),
		ended("3", "i", 0, "Completed"),
		{ID: "4", Name: "b", State: pod.StateRunning},
	}}
	w.measure(m.now, have, false)
	w.measure(m.now, have, false)
	m.expect(map[string]float64{
		"kubelet_terminated_containers_total{container_type=container,exit_code=137,reason=OOMKilled}":    1,
		"kubelet_terminated_containers_total{container_type=init_container,exit_code=0,reason=Completed}": 1,
		"kubelet_terminated_containers_total{container_type=container,exit_code=1,reason=Error}":          0,
	})
}
