package differ

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// How long nothing may have changed for a life to be at rest: where both sides look the same
// and wait for nothing, and otherwise. The former is longer for lives with probes.
const (
	shortRest = 1500 * time.Millisecond
	longRest  = 20 * time.Second // upstream's agent looks again after 15 s at the latest
	restBound = 75 * time.Second
)

// rest waits until both sides have come to rest, and compares what they look like then.
func (p *play) rest(ctx context.Context, l *Life, at string) error {
	if p.isRefused(l) {
		return nil
	}
	enough := shortRest + probing(l)
	ok, err := p.wait(ctx, l, p.patience, func() (left time.Duration) {
		quiet := p.quietFor(l)
		need := longRest
		if p.alike(l) && !p.busy(l) {
			need = enough
		}
		return need - quiet
	})
	if err != nil {
		return err
	}
	if !ok {
		p.found.Lock()
		p.result.Restless++
		p.found.Unlock()
	}
	return p.compareRest(l, at)
}

// probing is how long it may take until probes have made up their mind.
func probing(l *Life) (longest time.Duration) {
	for _, c := range containers(l.Pod) {
		for _, pr := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
			if pr == nil {
				continue
			}
			n := max(pr.FailureThreshold, pr.SuccessThreshold, 1)
			longest = max(longest, time.Duration(pr.InitialDelaySeconds+max(pr.PeriodSeconds, 1)*n)*time.Second)
		}
	}
	return longest
}

// wait lets time pass until none is left, and reports whether that came before the bound.
// Whatever changes, what is left is asked for again.
func (p *play) wait(ctx context.Context, l *Life, bound time.Duration, left func() time.Duration) (bool, error) {
	end := time.Now().Add(bound)
	for {
		ours, theirs := p.sides[0].record.track(l.Name), p.sides[1].record.track(l.Name)
		newsA, newsB := ours.newsOf(), theirs.newsOf()
		d := left()
		if d <= 0 {
			return true, nil
		}
		if time.Now().After(end) {
			return false, nil
		}
		// What a runtime does by itself is no news.
		t := time.NewTimer(min(d, 500*time.Millisecond))
		select {
		case <-ctx.Done():
			t.Stop()
			return false, context.Cause(ctx)
		case <-newsA:
		case <-newsB:
		case <-t.C:
		}
		t.Stop()
	}
}

func (t *track) newsOf() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.news
}

// quietFor is for how long nothing has changed on either side.
func (p *play) quietFor(l *Life) time.Duration {
	var last time.Time
	for _, s := range p.sides {
		t := s.record.track(l.Name)
		t.mu.Lock()
		if t.changed.After(last) {
			last = t.changed
		}
		t.mu.Unlock()
	}
	return time.Since(last)
}

// alike reports whether both sides look the same, but for differences on purpose: the pod, and
// what was asked of the runtime.
func (p *play) alike(l *Life) bool {
	if !slices.Equal(p.sides[0].asked(l), p.sides[1].asked(l)) {
		return false
	}
	ours, theirs := p.sides[0].look(l), p.sides[1].look(l)
	for _, path := range unlike(ours, theirs) {
		if ruleFor(Difference{Kind: "pod", Where: path, Ours: ours.at(path), Theirs: theirs.at(path), Life: l, ended: p.ended(l)}) == nil {
			return false
		}
	}
	return true
}

// ended reports whether the pod has, on both sides.
func (p *play) ended(l *Life) bool {
	for _, s := range p.sides {
		if phase := s.look(l)["status.phase"]; phase != string(corev1.PodSucceeded) && phase != string(corev1.PodFailed) {
			return false
		}
	}
	return true
}

// waiting are the reasons of containers that something will become of by itself.
var waiting = []string{"CrashLoopBackOff", "ErrImagePull", "ImagePullBackOff", "ContainerCreating", "PodInitializing", "CreateContainerError", "RunContainerError", "CreateContainerConfigError"}

// busy reports whether something is known to come without any doing: of a pod that is not
// there yet or being deleted, of one whose containers wait, or of one whose containers run a
// program that ends.
func (p *play) busy(l *Life) bool {
	for _, s := range p.sides {
		t := s.record.track(l.Name)
		t.mu.Lock()
		pod, gone := t.pod, t.gone
		t.mu.Unlock()
		if gone {
			continue
		}
		if pod == nil || pod.DeletionTimestamp != nil || pod.Status.Phase == "" {
			return true
		}
		for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses) {
			if w := c.State.Waiting; w != nil && slices.Contains(waiting, w.Reason) {
				return true
			}
		}
		if s.works(l) {
			return true
		}
	}
	return false
}

// works reports whether a container runs a program that will end by itself.
func (s *side) works(l *Life) bool {
	for _, pod := range s.podsOf(l) {
		for _, c := range pod.Containers {
			m := c.Status.GetMetadata()
			if c.Status.GetState() == cri.ContainerState_CONTAINER_RUNNING && !strings.HasSuffix(l.program(m.GetName(), m.GetAttempt()), forever) {
				return true
			}
		}
	}
	return false
}

// untilGone waits until the pod is gone on both sides, or nothing more comes of it.
func (p *play) untilGone(ctx context.Context, l *Life) error {
	ok, err := p.wait(ctx, l, 2*time.Minute, func() time.Duration {
		for _, s := range p.sides {
			t := s.record.track(l.Name)
			t.mu.Lock()
			there := t.pod != nil && !t.gone
			t.mu.Unlock()
			if there {
				return time.Second
			}
		}
		return 0
	})
	if err != nil || ok {
		return err
	}
	for i, s := range p.sides {
		t := s.record.track(l.Name)
		t.mu.Lock()
		gone := t.gone
		t.mu.Unlock()
		if !gone {
			p.differ(l, "end", "2 min after the pod was deleted", "pod", []string{"still there", "gone"}[i], []string{"gone", "still there"}[i])
		}
	}
	return nil
}

// untilQuiet waits until nothing has changed for a while.
func (p *play) untilQuiet(ctx context.Context, l *Life, quiet, bound time.Duration) error {
	_, err := p.wait(ctx, l, bound, func() time.Duration {
		need := quiet
		if !p.alike(l) {
			need = 2 * quiet
		}
		return need - p.quietFor(l)
	})
	return err
}
