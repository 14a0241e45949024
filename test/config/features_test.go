package config

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"keelson/test/kit/parity"
	"keelson/test/script"
)

// TestResourcesOfAPodAreShownByTheirGate: the status shows the resources of a pod if the gate is on. It shows those
// of the containers in both cases.
func TestResourcesOfAPodAreShownByTheirGate(t *testing.T) {
	for gates, want := range map[string]bool{
		"": true,
		"featureGates: {InPlacePodLevelResourcesVerticalScaling: false}\n": false,
	} {
		script.Settled(t, gates, nil, func(t *testing.T, r *script.Run) {
			r.Pod(t, "app", "spec: {containers: [{name: main, resources: {requests: {cpu: 10m}}}]}\n")
			r.Must(t, "wait", "app", "Ready")
			p, err := r.API.CoreV1().Pods(script.Namespace).Get(t.Context(), "app", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			st := p.Status
			if (st.Resources != nil) != want || (st.AllocatedResources != nil) != want ||
				st.ContainerStatuses[0].AllocatedResources.Cpu().String() != "10m" {
				t.Errorf("%q: pod %v, granted %v, container granted %v", gates, st.Resources, st.AllocatedResources,
					st.ContainerStatuses[0].AllocatedResources)
			}
		})
	}
}

// TestAChangeThatNeedsAFeature: a resize that needs a feature which the node does not have is reported once, and is
// not done.
func TestAChangeThatNeedsAFeature(t *testing.T) {
	parity.ProvesPart(t, 20, "SRV-61")
	script.Settled(t, "featureGates: {InPlacePodVerticalScalingInitContainers: false}\n", nil,
		func(t *testing.T, r *script.Run) {
			r.Pod(t,
				"app", "spec: {initContainers: [{name: first, command: [sh, -c, 'sleep 600'], resources: {requests: {cpu: 10m}}}], containers: [{name: main, resources: {requests: {cpu: 10m}}}]}\n")
			r.Must(t, "wait", "app", "first=running")
			r.Must(t, "events", "app")
			r.Must(t, "resize", "app", "main", "cpu=20m")
			time.Sleep(time.Minute)
			if got := r.Must(t, "events", "app"); strings.Contains(got, "Features") {
				t.Errorf("of another client's change is reported: %s", got)
			}
			r.Must(t, "resize", "app", "first", "cpu=20m")
			time.Sleep(time.Minute)
			const want = "app Warning FailedNodeDeclaredFeaturesCheck: Pod requires node features that are not available: InPlacePodVerticalScalingInitContainers\n"
			if got := r.Must(t, "events", "app"); !strings.HasPrefix(got, want) || strings.Count(got, "Features") != 1 {
				t.Errorf("reported:\n%swant\n%s", got, want)
			}
		})
}

// TestStopSignalsAreAlpha: the stop signal of a container is sent to the runtime and shown in the status only if the
// gate is on. The gate is off by default.
func TestStopSignalsAreAlpha(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-58")
	for gates, want := range map[string]cri.Signal{
		"": cri.Signal_RUNTIME_DEFAULT,
		"featureGates: {ContainerStopSignals: true}\n": cri.Signal_SIGRTMINPLUS3,
	} {
		script.Settled(t, gates, nil, func(t *testing.T, r *script.Run) {
			r.Pod(t,
				"app", "spec: {os: {name: linux}, containers: [{name: main, lifecycle: {stopSignal: SIGRTMIN+3}}]}\n")
			r.Must(t, "wait", "app", "Ready")
			if got := r.Runtime.Pods()[0].Containers[0].Config.StopSignal; got != want {
				t.Errorf("%q: the runtime is reported %v, want %v", gates, got, want)
			}
			p, err := r.API.CoreV1().Pods(script.Namespace).Get(t.Context(), "app", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := p.Status.ContainerStatuses[0].StopSignal; (got != nil) != (gates != "") ||
				got != nil && *got != "SIGRTMIN+3" {
				t.Errorf("%q: the status shows %q", gates, ptr.Deref(got, ""))
			}
		})
	}
}
