package script

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"keelson/test/kit/parity"
)

// TestResourcesOfAPodAreShownByTheirGate: those of its containers are shown either way.
func TestResourcesOfAPodAreShownByTheirGate(t *testing.T) {
	for gates, want := range map[string]bool{"": true, "featureGates: {InPlacePodLevelResourcesVerticalScaling: false}\n": false} {
		settled(t, gates, nil, func(t *testing.T, r *run) {
			r.pod(t, "app", "spec: {containers: [{name: main, resources: {requests: {cpu: 10m}}}]}\n")
			r.must(t, "wait", "app", "Ready")
			p, err := r.api.CoreV1().Pods(namespace).Get(t.Context(), "app", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			st := p.Status
			if (st.Resources != nil) != want || (st.AllocatedResources != nil) != want || st.ContainerStatuses[0].AllocatedResources.Cpu().String() != "10m" {
				t.Errorf("%q: pod %v, granted %v, container granted %v", gates, st.Resources, st.AllocatedResources, st.ContainerStatuses[0].AllocatedResources)
			}
		})
	}
}

// A resize that needs a feature which the node does not have is told of, once, and the
// pod goes on as it was.
func TestAChangeThatNeedsAFeature(t *testing.T) {
	parity.ProvesPart(t, 20, "SRV-61")
	settled(t, "featureGates: {InPlacePodVerticalScalingInitContainers: false}\n", nil, func(t *testing.T, r *run) {
		r.pod(t, "app", "spec: {initContainers: [{name: first, command: [sh, -c, 'sleep 600'], resources: {requests: {cpu: 10m}}}], containers: [{name: main, resources: {requests: {cpu: 10m}}}]}\n")
		r.must(t, "wait", "app", "first=running")
		r.must(t, "events", "app")
		r.must(t, "resize", "app", "main", "cpu=20m")
		time.Sleep(time.Minute)
		if got := r.must(t, "events", "app"); strings.Contains(got, "Features") {
			t.Errorf("of another change is told: %s", got)
		}
		r.must(t, "resize", "app", "first", "cpu=20m")
		time.Sleep(time.Minute)
		const want = "app Warning FailedNodeDeclaredFeaturesCheck: Pod requires node features that are not available: InPlacePodVerticalScalingInitContainers\n"
		if got := r.must(t, "events", "app"); !strings.HasPrefix(got, want) || strings.Count(got, "Features") != 1 {
			t.Errorf("told:\n%swant\n%s", got, want)
		}
	})
}

// TestStopSignalsAreAlpha: the signal of a container is passed on and shown with its gate alone, which is off by default.
func TestStopSignalsAreAlpha(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-58")
	for gates, want := range map[string]cri.Signal{
		"": cri.Signal_RUNTIME_DEFAULT,
		"featureGates: {ContainerStopSignals: true}\n": cri.Signal_SIGRTMINPLUS3,
	} {
		settled(t, gates, nil, func(t *testing.T, r *run) {
			r.pod(t, "app", "spec: {os: {name: linux}, containers: [{name: main, lifecycle: {stopSignal: SIGRTMIN+3}}]}\n")
			r.must(t, "wait", "app", "Ready")
			if got := r.runtime.Pods()[0].Containers[0].Config.StopSignal; got != want {
				t.Errorf("%q: the runtime is told %v, want %v", gates, got, want)
			}
			p, err := r.api.CoreV1().Pods(namespace).Get(t.Context(), "app", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := p.Status.ContainerStatuses[0].StopSignal; (got != nil) != (gates != "") || got != nil && *got != "SIGRTMIN+3" {
				t.Errorf("%q: the status shows %q", gates, ptr.Deref(got, ""))
			}
		})
	}
}
