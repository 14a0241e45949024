package podsync

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/internal/runtime/container"
)

// willing starts what it is asked to, and plain gives containers nothing of their own.
type (
	willing     struct{ Containers }
	plain       struct{ Resources }
	plainClaims struct{ Claims }
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

// keeper of the account, which is asked something each time that a container starts.
type keeper struct {
	Allocation
	asked func(what string)
}

func (k keeper) Starting(*v1.Pod, string, v1.ResourceRequirements) { k.asked("before") }
func (k keeper) Enforced(*v1.Pod, string, v1.ResourceRequirements) { k.asked("after") }

// Who keeps the account ends pods for others with its own lock held. A start that told it
// of itself with the pod's lock held would have both wait for ever.
func TestTheAccountIsToldOfAStartWithNoLockHeld(t *testing.T) {
	m := newMeasured(t)
	w := m.worker("u", podNamed("u", pod.SourceAPI))
	var told []string
	m.cfg.Containers, m.cfg.Resources, m.cfg.Claims = willing{}, plain{}, plainClaims{}
	m.cfg.Allocation = keeper{asked: func(what string) {
		told = append(told, what)
		if !w.mu.TryLock() {
			t.Errorf("%s the start the lock of the pod is held", what)
			return
		}
		w.mu.Unlock()
	}}
	have := pod.Runtime{Sandboxes: []pod.Sandbox{{ID: "s", Ready: true}}}
	effect, err := w.start(podplan.Step{Verb: podplan.Start, Target: "a"}, have)(t.Context())
	if err != nil || effect.Container != "c1" || len(told) != 2 {
		t.Errorf("started %+v, %v; the account was told %q", effect, err, told)
	}
}

// unlisted is a runtime of which nothing is known yet.
type unlisted struct{ Observed }

func (unlisted) Synced() <-chan struct{} { return nil }

// Pods that arrive together are judged together, and one may have to go before its own
// worker was made. Another waits for its end.
func TestAPodThatHasNoWorkerYetIsPreempted(t *testing.T) {
	m := newMeasured(t)
	m.cfg.Observed = unlisted{}
	ctx, stop := context.WithCancel(t.Context())
	defer func() {
		stop()
		m.group.Wait()
	}()
	m.Syncer.ctx = ctx
	m.Preempt("u", 7*time.Second, "Preempting", "make room", "")
	m.Syncer.mu.Lock()
	w := m.workers["u"]
	m.Syncer.mu.Unlock()
	if w == nil {
		t.Fatal("nobody ends it")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.verdict == nil || w.verdict.Override.Reason != "Preempting" {
		t.Errorf("the verdict on it is %+v", w.verdict)
	}
}
