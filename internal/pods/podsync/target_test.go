package podsync

import (
	"context"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/internal/runtime/container"
)

// looking notes what started containers look into.
type looking struct {
	Containers
	into []string
}

func (l *looking) NotStarted(_ pod.Kind, reason string) { l.into = append(l.into, reason) }
func (l *looking) StartContainer(_ context.Context, s container.Start) (string, *container.StartError) {
	l.into = append(l.into, "into "+s.TargetID)
	return "c1", nil
}

// An ephemeral container is started once. It waits for the container whose processes it
// is to see, and is told of as one that cannot be made until then.
func TestAnEphemeralContainerWaitsForItsTarget(t *testing.T) {
	m, l, said := newMeasured(t), &looking{}, &noted{}
	m.cfg.Containers, m.cfg.Resources, m.cfg.Claims, m.cfg.Events = l, plain{}, plainClaims{}, said
	m.cfg.Allocation = keeper{asked: func(string) {}}
	p := podNamed("u", pod.SourceAPI)
	common := v1.EphemeralContainerCommon{Name: "shell"}
	p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: common, TargetContainerName: "a"}}
	w := m.worker("u", p)
	have := pod.Runtime{Sandboxes: []pod.Sandbox{{ID: "s", Ready: true}}}
	start := func() error {
		_, err := w.start(podplan.Step{Verb: podplan.Start, Target: "shell"}, have)(t.Context())
		return err
	}
	if err := start(); err == nil || w.waiting["shell"].Reason != pod.ReasonCreateContainerConfig {
		t.Errorf("without its target: %v, waiting %+v", err, w.waiting)
	}
	if want := []string{"Warning Failed Error: unable to find target container a"}; !slices.Equal(said.said, want) {
		t.Errorf("said %q, want %q", said.said, want)
	}
	have.Containers = []pod.Container{{ID: "a-id", Name: "a", State: pod.StateRunning}}
	if err := start(); err != nil {
		t.Error(err)
	}
	p.Spec.EphemeralContainers[0].TargetContainerName = "" // it looks into none
	have.Containers = nil
	if err := start(); err != nil {
		t.Error(err)
	}
	if want := []string{pod.ReasonCreateContainerConfig, "into a-id", "into "}; !slices.Equal(l.into, want) {
		t.Errorf("started %q, want %q", l.into, want)
	}
}
