package differ

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Played is the result of a history.
type Played struct {
	Differences []Difference
	Ruled       map[*Rule]int // differences that a rule explains
	Restless    int           // waits for rest that took too long
	Refused     int           // pods that the API server rejected
	Followed    int           // differences of lives that had differed before
	Differ      int           // lives that differed
	Left        [2][]string   // leftovers that were not cleaned up, ours and theirs
}

// play is a history that is being run.
type play struct {
	*Stage
	history *History
	found   sync.Mutex // guards what follows
	result  Played
	refused map[string]bool   // lives whose pod the API server rejected
	known   map[string]bool   // signatures
	first   map[string]string // by life: the moment at which it differed first
}

// Play runs a history on both sides and compares them.
func (s *Stage) Play(ctx context.Context, h *History) (*Played, error) {
	p := &play{Stage: s, history: h, refused: map[string]bool{}, known: map[string]bool{}, first: map[string]string{}}
	p.result.Ruled = map[*Rule]int{}
	s.enter(h.Lives)
	defer s.leave(h.Lives)
	for act := range acts(h) {
		err := p.each(ctx, func(ctx context.Context, l *Life) error {
			if err := p.enterInTurn(ctx, l, act); err != nil {
				return err
			}
			return p.act(ctx, l, act)
		})
		if err != nil {
			return nil, err
		}
		if act < len(h.Between) {
			if err := p.interlude(ctx, act); err != nil {
				return nil, err
			}
		}
	}
	if err := p.each(ctx, p.end); err != nil {
		return nil, err
	}
	if err := p.left(ctx); err != nil {
		return nil, err
	}
	return &p.result, nil
}

// entrance is the time between the creations of two pods. If all were created at once, the machine would be
// so busy that an agent seems to be at rest while it waits for a CPU.
const (
	entrance     = 100 * time.Millisecond
	realEntrance = 700 * time.Millisecond // on containerd, where each pod takes more CPU time
)

// enterInTurn waits until the first act of a life begins.
func (p *play) enterInTurn(ctx context.Context, l *Life, act int) error {
	if act > 0 {
		return nil
	}
	each := entrance
	if p.cfg.Real {
		each = realEntrance
	}
	select {
	case <-time.After(time.Duration(slices.Index(p.history.Lives, l)) * each):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func acts(h *History) int {
	n := len(h.Between) + 1
	for _, l := range h.Lives {
		n = max(n, len(l.Acts))
	}
	return n
}

// enter adds lives to the stage, and their faults to the runtimes.
func (s *Stage) enter(lives []*Life) {
	s.lives.mu.Lock()
	for _, l := range lives {
		s.lives.of[l.Name] = l
	}
	s.lives.mu.Unlock()
	for _, side := range s.sides {
		for _, l := range lives {
			side.record.track(l.Name)
			side.inject(l)
		}
	}
}

// leave removes lives from the stage, and all faults.
func (s *Stage) leave(lives []*Life) {
	for _, side := range s.sides {
		for _, l := range lives {
			side.record.forget(l.Name)
		}
		side.release()
	}
	s.lives.mu.Lock()
	defer s.lives.mu.Unlock()
	for _, l := range lives {
		delete(s.lives.of, l.Name)
	}
}

// each calls do for all lives at the same time.
func (p *play) each(ctx context.Context, do func(context.Context, *Life) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, l := range p.history.Lives {
		g.Go(func() error { return do(ctx, l) })
	}
	return g.Wait()
}

// act takes the steps of one act of a life, and waits after each until both sides are at rest. After the first
// step it does not wait for that if the second step creates an object that the pod lacks.
func (p *play) act(ctx context.Context, l *Life, n int) error {
	if n >= len(l.Acts) {
		return nil
	}
	for i, step := range l.Acts[n].Steps {
		if err := p.step(ctx, l, step); err != nil {
			return err
		}
		if i == 0 && len(l.Acts[n].Steps) > 1 && l.comesLate(l.Acts[n].Steps[1].Object) {
			if err := p.untilLacking(ctx, l); err != nil {
				return err
			}
			continue
		}
		if err := p.rest(ctx, l, fmt.Sprintf("act %d, step %d: %s", n+1, i+1, step)); err != nil {
			return err
		}
	}
	return nil
}

// step takes a step on both sides. A different result of the step is a difference.
func (p *play) step(ctx context.Context, l *Life, step Step) error {
	if p.isRefused(l) {
		return nil
	}
	var results [2]string
	var wait sync.WaitGroup
	for i, side := range p.sides {
		wait.Go(func() {
			results[i] = "done"
			side.record.track(l.Name).tookStep(step.String())
			if err := side.take(ctx, l, step); err != nil {
				results[i] = side.normal(err.Error(), side.record.track(l.Name).knownUIDs())
			}
		})
	}
	wait.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	if results[0] != results[1] {
		p.differ(l, "step", step.String(), step.Verb, results[0], results[1])
	} else if step.Verb == create && results[0] != "done" {
		p.found.Lock()
		p.refused[l.Name] = true
		p.result.Refused++
		p.found.Unlock()
		p.say("%s is refused: %s", l.Name, results[0])
	}
	return nil
}

func (p *play) isRefused(l *Life) bool {
	p.found.Lock()
	defer p.found.Unlock()
	return p.refused[l.Name]
}

// end deletes the pod of a life, if it still exists, and compares everything that was recorded of the life.
func (p *play) end(ctx context.Context, l *Life) error {
	if p.isRefused(l) {
		return p.dropObjects(ctx, l)
	}
	var wait sync.WaitGroup
	var errs [2]error
	for i, side := range p.sides {
		wait.Go(func() { errs[i] = side.finish(ctx, l) })
	}
	wait.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	if err := p.untilGone(ctx, l); err != nil {
		return err
	}
	if err := p.untilQuiet(ctx, l, 3*time.Second, 20*time.Second); err != nil {
		return err
	}
	p.compareWhole(l)
	if err := p.keep(l); err != nil {
		return err
	}
	return p.dropObjects(ctx, l)
}

// interlude runs an interlude on both nodes, with the steps that lives take meanwhile.
func (p *play) interlude(ctx context.Context, n int) error {
	kind := p.history.Between[n]
	p.say("between act %d and %d: %s", n+1, n+2, kind)
	var g errgroup.Group
	for _, side := range p.sides {
		g.Go(func() error { return side.away(ctx, kind) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	// Steps during the eviction of pods would have random results, so they come after it. Steps while
	// nodes are cut off come before the nodes are marked unreachable.
	order := []func() error{func() error { return p.down(ctx, n) }, func() error { return p.meanwhile(ctx, n, kind) }}
	if kind == taintNode || kind == pressNode {
		slices.Reverse(order)
	}
	for _, do := range order {
		if err := do(); err != nil {
			return err
		}
	}
	var back errgroup.Group
	for _, side := range p.sides {
		back.Go(func() error { return side.back(ctx, kind) })
	}
	if err := back.Wait(); err != nil {
		return err
	}
	if kind == taintNode {
		if err := p.downSteps(ctx, n, func(s Step) bool { return s.Verb == create }); err != nil {
			return err
		}
	}
	return p.each(ctx, func(ctx context.Context, l *Life) error {
		return p.rest(ctx, l, fmt.Sprintf("after act %d: %s", n+1, kind))
	})
}

// down takes the steps of lives in an interlude. A pod that is created on a tainted node is either rejected or evicted
// at once, which is random: it is created afterwards.
func (p *play) down(ctx context.Context, n int) error {
	tainted := p.history.Between[n] == taintNode
	return p.downSteps(ctx, n, func(s Step) bool { return !tainted || s.Verb != create })
}

// downSteps takes the steps in an interlude for which meant returns true.
func (p *play) downSteps(ctx context.Context, n int, meant func(Step) bool) error {
	return p.each(ctx, func(ctx context.Context, l *Life) error {
		if n >= len(l.Acts) {
			return nil
		}
		for _, step := range l.Acts[n].Down {
			if !meant(step) {
				continue
			}
			if err := p.step(ctx, l, step); err != nil {
				return err
			}
		}
		return nil
	})
}

// meanwhile waits in an interlude for the effects that controllers cause.
func (p *play) meanwhile(ctx context.Context, n int, kind string) error {
	switch kind {
	case taintNode:
		return p.each(ctx, func(ctx context.Context, l *Life) error {
			return p.untilEvicted(ctx, l, fmt.Sprintf("after act %d: tainted", n+1))
		})
	case cutOffLong:
		for _, side := range p.sides {
			if err := side.untilLost(ctx); err != nil {
				return err
			}
		}
		return p.each(ctx, p.untilUnready)
	case pressNode:
		return p.untilPressed(ctx)
	}
	return nil
}

// away begins an interlude on one side.
func (s *side) away(ctx context.Context, kind string) error {
	switch kind {
	case nothing:
	case restartAgent:
		s.kubelet.Stop()
	case killAgent:
		s.kubelet.Kill9()
	case freezeAgent:
		s.kubelet.Freeze()
	case restartRuntime:
		s.runtime.drop()
	case loseEvents:
		if s.fake == nil {
			return errOnFakeOnly
		}
		s.fake.LoseEvents()
	case taintNode:
		return s.setTaint(ctx, true)
	case cordonNode:
		return s.cordon(ctx, true)
	case cutOff, cutOffLong:
		s.link.cut()
	case pressNode:
		return s.fillDisk()
	default:
		return fmt.Errorf("no interlude is called %q", kind)
	}
	return nil
}

// back ends an interlude on one side.
func (s *side) back(ctx context.Context, kind string) error {
	switch kind {
	case restartAgent, killAgent:
		return s.kubelet.Start(ctx)
	case freezeAgent:
		s.kubelet.Thaw()
	case restartRuntime:
		return s.runtime.open(ctx)
	case taintNode:
		return s.setTaint(ctx, false)
	case cordonNode:
		return s.cordon(ctx, false)
	case cutOff, cutOffLong:
		s.link.mend()
		return s.kubelet.WaitReady(ctx)
	case pressNode:
		return s.emptyDisk(ctx)
	}
	return nil
}

// differ records a difference, unless a rule explains it. Later differences of the same life may
// result from the first one, and are only counted.
func (p *play) differ(l *Life, kind, at, where, ours, theirs string) {
	d := newDifference(l, kind, at, where, ours, theirs)
	d.scene = p.scene(l)
	d.Seed, d.Between = p.history.Seed, p.history.Between
	p.found.Lock()
	defer p.found.Unlock()
	if r := ruleFor(d); r != nil {
		p.result.Ruled[r]++
		return
	}
	switch p.first[l.Name] {
	case "":
		p.first[l.Name] = d.moment()
		p.result.Differ++
	case d.moment():
	default:
		p.result.Followed++
		return
	}
	if !p.known[d.Signature] { // printed at once, for runs that are interrupted
		p.known[d.Signature] = true
		p.say("%s, %s: %s at %s: ours %.200q, theirs %.200q", l.Name, at, d.Kind, d.Where, ours, theirs)
	}
	p.result.Differences = append(p.result.Differences, d)
}
