package differ

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A life is at rest when nothing has changed for shortRest, if both sides are alike and no change is
// pending, and for longRest otherwise. shortRest is extended for lives with probes. The bounds limit
// the wait.
const (
	shortRest     = 1500 * time.Millisecond
	longRest      = 14 * time.Second // upstream's agent syncs a pod again after 7.5 s, and statuses after 10 s
	restBound     = 45 * time.Second
	realRestBound = 2 * time.Minute // on containerd
	// knownBound is longer than any program that ends, any delay of a runtime call and any grace period.
	knownBound = 32 * time.Second
)

// delayedStop is by how much a StopContainer call may take longer than its grace period.
func delayedStop(l *Life) (longest time.Duration) {
	for _, f := range l.Faults {
		if f.Method == "StopContainer" {
			longest = max(longest, time.Duration(f.DelayMS)*time.Millisecond)
		}
	}
	return longest
}

// rest waits until both sides are at rest, and compares them.
func (p *play) rest(ctx context.Context, l *Life, at string) error {
	if p.isRefused(l) || !p.sides[0].record.track(l.Name).entered() {
		return nil
	}
	began := p.clock.now()
	enough := shortRest + probing(l)
	ok, err := p.wait(ctx, l, p.patience+delayedStop(l), func() (left time.Duration) {
		quiet := min(p.quietFor(l), p.clock.now()-began) // a step may take effect later
		if quiet < enough {
			return enough - quiet
		}
		switch {
		case p.unfinished(l), p.waits(l) && !p.alike(l):
			// Everything that is known to be pending has happened by then, or has no visible effect.
			if quiet > knownBound+delayedStop(l) && p.alike(l) {
				return 0
			}
			return time.Second
		case quiet < longRest && (!p.alike(l) || p.waits(l) || p.filesUnlike(l)):
			return time.Second
		}
		return 0
	})
	if err != nil {
		return err
	}
	if !ok && !p.alike(l) {
		if ok, err = p.catchUp(ctx, l, enough); err != nil {
			return err
		}
	}
	if !ok {
		p.found.Lock()
		p.result.Restless++
		p.found.Unlock()
	}
	if took := p.clock.now() - began; took > slow {
		p.say("%s, %s: took %d s; alike %v, unfinished %v, quiet for %d s",
			l.Name, at, int(took.Seconds()), p.alike(l), p.unfinished(l), int(p.quietFor(l).Seconds()))
	}
	return p.compareRest(l, at)
}

// catchUp waits, for a life whose time to come to rest is over, until one side has followed the other, and reports
// whether both are alike then. After slow retries the time may be over just when a container ends.
func (p *play) catchUp(ctx context.Context, l *Life, enough time.Duration) (bool, error) {
	_, err := p.wait(ctx, l, p.patience, func() time.Duration {
		quiet := p.quietFor(l)
		if quiet >= longRest || p.alike(l) && quiet >= enough {
			return 0
		}
		return time.Second
	})
	return p.alike(l), err
}

// slow is the time to come to rest from which on it is printed.
const slow = 30 * time.Second

// probing is how long it may take until probes have their result.
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

// wait waits until left returns 0, and reports whether that was before the bound. It calls left again
// after each change of the life.
func (p *play) wait(ctx context.Context, l *Life, bound time.Duration, left func() time.Duration) (bool, error) {
	end := p.clock.now() + bound
	for {
		ours, theirs := p.sides[0].record.track(l.Name), p.sides[1].record.track(l.Name)
		newsA, newsB := ours.newsOf(), theirs.newsOf()
		d := left()
		if d <= 0 {
			return true, nil
		}
		if p.clock.now() > end {
			return false, nil
		}
		// Changes that the runtime makes by itself are not notified.
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

// quietFor is how long nothing has changed on both sides.
func (p *play) quietFor(l *Life) time.Duration {
	var last time.Duration
	for _, s := range p.sides {
		t := s.record.track(l.Name)
		t.mu.Lock()
		last = max(last, t.changed)
		t.mu.Unlock()
	}
	return p.clock.now() - last
}

// alike reports whether the pod and the calls to the runtime are the same on both sides, apart from differences
// that a rule explains.
func (p *play) alike(l *Life) bool {
	scene := p.scene(l)
	ruled := func(kind, where, ours, theirs string) bool {
		return ruleFor(Difference{
			Kind:    kind,
			Where:   where,
			Ours:    ours,
			Theirs:  theirs,
			Life:    l,
			Between: p.history.Between,
			scene:   scene,
		}) != nil
	}
	for i, list := range scene.asked {
		for _, call := range list {
			if _, both := slices.BinarySearch(scene.asked[1-i], call); both {
				continue
			}
			if words := [2]string{call, absent}; !ruled("call", call, words[i], words[1-i]) {
				return false
			}
		}
	}
	for _, d := range podsUnlike(scene.looks[0], scene.looks[1]) {
		if !ruled("pod", d.where, d.ours, d.theirs) {
			return false
		}
	}
	return true
}

// scene is the present state of both sides.
func (p *play) scene(l *Life) *scene {
	sc := &scene{}
	for i, s := range p.sides {
		sc.looks[i], sc.asked[i] = s.look(l), s.asked(l)
		sc.reported[i], sc.spoke[i] = s.reported(l)
		sc.ended[i], sc.refused[i] = s.record.track(l.Name).ended()
		sc.shown[i] = s.record.track(l.Name).shown()
	}
	sc.changed = p.sides[1].record.track(l.Name).changedWhileStopped()
	return sc
}

// waiting are the waiting reasons of containers whose state will change without a further step.
var waiting = []string{"CrashLoopBackOff", "ErrImagePull", "ImagePullBackOff", "ContainerCreating", "PodInitializing",
	"CreateContainerError", "RunContainerError", "CreateContainerConfigError"}

// waits reports whether a waiting container may change its state without a further step.
func (p *play) waits(l *Life) bool {
	for _, s := range p.sides {
		pod := s.record.track(l.Name).there()
		if pod == nil {
			continue
		}
		for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses,
			pod.Status.EphemeralContainerStatuses) {
			if w := c.State.Waiting; w != nil && slices.Contains(waiting, w.Reason) {
				return true
			}
		}
	}
	return false
}

// unfinished reports whether a change is known to come without a further step: the pod does not
// exist yet, has no status or one of an older generation, or is being deleted; or a container runs
// a program that ends or an image that was replaced; or a call to the runtime is delayed.
func (p *play) unfinished(l *Life) bool {
	for _, s := range p.sides {
		t := s.record.track(l.Name)
		pod := t.there()
		switch {
		case pod == nil:
			if !t.went() && !l.Static { // a static pod may not be shown at all
				return true
			}
		case pod.DeletionTimestamp != nil, pod.Status.StartTime == nil && !l.Static,
			s.works(l), s.hangs(l), s.outdated(l, pod):
			return true
		case deferredByPressure(pod):
			return true
		case unseen(pod) && !p.scene(l).waitsForVolumes():
			return true
		case t.lacked(l) && !p.alike(l): // if both are alike, the pod may lack a further object
			return true
		}
	}
	return false
}

// deferredByPressure reports whether a resize waits for the end of the node's pressure, which has ended.
func deferredByPressure(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodResizePending && strings.Contains(c.Message, "[DiskPressure]")
	})
}

// lacked reports whether a pod that is still pending lacked an object that a step has created since: upstream's
// agent retries with an increasing back-off.
func (t *track) lacked(l *Life) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone || t.pod == nil || t.pod.Status.Phase != corev1.PodPending {
		return false
	}
	return slices.ContainsFunc(t.steps, func(s taken) bool {
		return slices.ContainsFunc(l.lateObjects(),
			func(o Object) bool { return strings.HasPrefix(s.text, putObject+" "+o.Name) })
	})
}

// untilLacking waits until both agents have reported that an object does not exist. Creating it early
// keeps the back-off of upstream's agent short.
func (p *play) untilLacking(ctx context.Context, l *Life) error {
	_, err := p.wait(ctx, l, restBound, func() time.Duration {
		for _, s := range p.sides {
			if t := s.record.track(l.Name); !t.lacks() {
				return time.Second
			}
		}
		return 0
	})
	return err
}

// lacks reports whether the agent has sent an event that an object of the pod was not found.
func (t *track) lacks() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.events {
		if e.Type == corev1.EventTypeWarning && strings.Contains(e.Message, "not found") {
			return true
		}
	}
	return false
}

// there is the pod, or nil if it does not exist.
func (t *track) there() *corev1.Pod {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone {
		return nil
	}
	return t.pod
}

func (t *track) went() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.gone
}

// unseen reports whether the observed generation in the status is older than the pod's generation.
func unseen(p *corev1.Pod) bool {
	ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	_, static := p.Annotations[staticUID]
	return !ended && !static && p.Status.ObservedGeneration < p.Generation
}

// works reports whether a container runs a program that will end by itself.
func (s *side) works(l *Life) bool {
	for _, pod := range s.podsOf(l) {
		for _, c := range pod.Containers {
			m := c.Status.GetMetadata()
			if c.Status.GetState() == cri.ContainerState_CONTAINER_RUNNING &&
				!strings.HasSuffix(l.program(m.GetName(), m.GetAttempt()), forever) {
				return true
			}
		}
	}
	return false
}

// outdated reports whether a container runs another image than the pod's specification has now, and
// will therefore be restarted.
func (s *side) outdated(l *Life, p *corev1.Pod) bool {
	want := map[string]string{}
	for _, c := range containers(p) {
		want[c.Name] = c.Image
	}
	for _, pod := range s.podsOf(l) {
		for _, c := range pod.Containers {
			image, ok := want[c.Status.GetMetadata().GetName()]
			runs := c.Status.GetState() == cri.ContainerState_CONTAINER_RUNNING
			if ok && runs && c.Config.GetImage().GetUserSpecifiedImage() != image {
				return true
			}
		}
	}
	return false
}

// untilGone waits until the pod is gone on both sides. After 2 minutes a pod that still exists is a difference.
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
			p.differ(l, "end", "2 min after the pod was deleted", "pod", []string{"still there", "gone"}[i],
				[]string{"gone", "still there"}[i])
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
