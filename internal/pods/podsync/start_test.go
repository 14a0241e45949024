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

// looking records the target containers of started containers.
type looking struct {
	into []string
}

func (l *looking) NotStarted(_ pod.Kind, reason string) { l.into = append(l.into, reason) }
func (l *looking) StartContainer(_ context.Context, s container.Start) (string, *container.StartError) {
	l.into = append(l.into, "into "+s.TargetID)
	return "c1", nil
}

// An ephemeral container is started once. It waits for its target container, and its status shows a failed creation
// until then.
func TestEphemeralContainerWaitsForTarget(t *testing.T) {
	m, l, logged := newMeasured(t), &looking{}, &noted{}
	m.cfg.Runtime.Starter, m.cfg.Events = l, logged
	m.cfg.Resources.ResourceContributor, m.cfg.Claims.ClaimContributor = plain{}, plainClaims{}
	m.cfg.Allocation.Actuation = keeper{asked: func(string) {}}
	p := podNamed("u", pod.SourceAPI)
	common := v1.EphemeralContainerCommon{Name: "shell"}
	p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: common, TargetContainerName: "a"}}
	w := m.worker("u", p)
	have := pod.Runtime{Sandboxes: []pod.Sandbox{{ID: "s", Ready: true}}}
	start := func() error {
		step := podplan.Step{Verb: podplan.Start, Target: podplan.Container("shell")}
		res, err := performer{w: w, in: &podplan.Input{Pod: p, Have: have}}.start(step)(t.Context())
		res.outcome.apply(w)
		return err
	}
	if err := start(); err == nil || w.waiting.containers["shell"].Reason != pod.ReasonCreateContainerConfig {
		t.Errorf("without its target: %v, waiting %+v", err, w.waiting.containers)
	}
	if want := []string{"Warning Failed Error: unable to find target container a"}; !slices.Equal(logged.logged, want) {
		t.Errorf("logged %q, want %q", logged.logged, want)
	}
	have.Containers = []pod.Container{{ID: "a-id", Name: "a", State: pod.StateRunning}}
	if err := start(); err != nil {
		t.Error(err)
	}
	p.Spec.EphemeralContainers[0].TargetContainerName = "" // it has no target
	have.Containers = nil
	if err := start(); err != nil {
		t.Error(err)
	}
	if want := []string{pod.ReasonCreateContainerConfig, "into a-id", "into "}; !slices.Equal(l.into, want) {
		t.Errorf("started %q, want %q", l.into, want)
	}
}

// willing starts all containers, and plain and plainClaims contribute nothing to them.
type (
	willing     struct{ Starter }
	plain       struct{ ResourceContributor }
	plainClaims struct{ ClaimContributor }
)

func (willing) StartContainer(context.Context, container.Start) (string, *container.StartError) {
	return "c1", nil
}
func (plain) Contribution(context.Context, *v1.Pod, *v1.Container) (pod.Contribution, error) {
	return pod.Contribution{}, nil
}
func (plainClaims) Contribution(*v1.Pod, *v1.Container) (pod.Contribution, error) {
	return pod.Contribution{}, nil
}

// keeper records the starts that are reported to it.
type keeper struct {
	Actuation
	asked func(what string)
}

func (k keeper) Starting(*v1.Pod, string, v1.ResourceRequirements)    { k.asked("before") }
func (k keeper) SetActuated(*v1.Pod, string, v1.ResourceRequirements) { k.asked("after") }

// The resources of a container are recorded before its start, in case the agent crashes, and after it.
func TestResourcesOfStartAreRecorded(t *testing.T) {
	m := newMeasured(t)
	p := podNamed("u", pod.SourceAPI)
	w := m.worker("u", p)
	var reported []string
	m.cfg.Runtime.Starter = willing{}
	m.cfg.Resources.ResourceContributor, m.cfg.Claims.ClaimContributor = plain{}, plainClaims{}
	m.cfg.Allocation.Actuation = keeper{asked: func(what string) { reported = append(reported, what) }}
	have := pod.Runtime{Sandboxes: []pod.Sandbox{{ID: "s", Ready: true}}}
	step := podplan.Step{Verb: podplan.Start, Target: podplan.Container("a")}
	res, err := performer{w: w, in: &podplan.Input{Pod: p, Have: have}}.start(step)(t.Context())
	if err != nil || res.effect.Container != "c1" || !slices.Equal(reported, []string{"before", "after"}) {
		t.Errorf("started %+v, %v; the allocation was reported %q", res, err, reported)
	}
}
