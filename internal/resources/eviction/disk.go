package eviction

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// watchDisks looks at file systems and at process numbers, and at the limits of pods.
func (e *Evictor) watchDisks(ctx context.Context) {
	w := diskWatch{e: e, base: slices.DeleteFunc(slices.Clone(e.cfg.Thresholds), func(t Threshold) bool { return t.Signal.memory() })}
	if len(w.base) == 0 && !e.cfg.Limits {
		e.show(diskLane, nil)
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(w.look(ctx))
	}
}

// diskWatch is what the disk loop knows.
type diskWatch struct {
	e     *Evictor
	base  []Threshold // as configured
	disks *Disks      // nil: the runtime has not told yet
	state State
}

// look looks once, and does what has to be done. It tells when to look again.
func (w *diskWatch) look(ctx context.Context) time.Duration {
	e := w.e
	thresholds := w.base
	if w.disks == nil {
		d, err := e.cfg.Source.Disks(ctx)
		if ctx.Err() != nil {
			return period
		}
		e.complain("disks", "cannot tell where the runtime keeps images and containers", err)
		if err == nil {
			w.disks = &d
		}
	}
	var disks Disks
	if w.disks != nil {
		disks = *w.disks
		thresholds = forDisks(w.base, disks)
	}
	seen := e.cfg.Source.Observe(ctx, signalsOf(thresholds))
	if ctx.Err() != nil {
		return period
	}
	now := e.cfg.Now()
	var f Finding
	w.state, f = w.state.Judge(thresholds, seen, e.cfg.Hold, now)
	e.show(diskLane, f.Pressures)
	e.sweep()
	wait := period
	if !f.Next.IsZero() {
		wait = min(wait, max(f.Next.Sub(now), closest))
	}
	if w.disks == nil || !e.mayAct() {
		return wait
	}
	if e.cfg.Limits && e.endBreaches(ctx, disks) {
		return 0
	}
	m, short := worst(f.Act)
	switch looked, memory := e.memoryShort(); {
	case !short || memory:
		return wait
	case !looked:
		return closest
	}
	e.cfg.Events.Node(v1.EventTypeWarning, EventThresholdMet, fmt.Sprintf(saysReclaim, about[m.Signal].resource))
	if w.reclaim(ctx, m, disks) {
		return wait
	}
	if ctx.Err() == nil && e.relieve(ctx, m, f.Act, disks, false) {
		return 0
	}
	return wait
}

// memoryShort reports whether memory was looked at, and is short.
func (e *Evictor) memoryShort() (looked, short bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.first[memoryLane], e.short
}

// reclaim removes ended containers and unused images. It reports whether that was enough for the threshold and
// its minimum reclaim.
func (w *diskWatch) reclaim(ctx context.Context, m Met, disks Disks) bool {
	for _, what := range reclaims(m.Signal, disks) {
		remove := w.e.cfg.RemoveEnded
		if what == unusedImages {
			remove = w.e.cfg.RemoveImages
		}
		err := remove(ctx)
		if ctx.Err() != nil {
			return false
		}
		w.e.complain("reclaim "+string(what), "cannot remove "+string(what), err)
		o, known := w.e.cfg.Source.Observe(ctx, []Signal{m.Signal})[m.Signal]
		if known && o.Available >= m.Least.Of(o.Capacity)+m.Reclaim.Of(o.Capacity) {
			w.e.cfg.Log.Info("enough is left again without ending a pod", "signal", m.Signal, "removed", what)
			return true
		}
	}
	return false
}

// endBreaches ends the pods that keep more on the disk than they may, and waits for
// that. It reports whether there were any.
func (e *Evictor) endBreaches(ctx context.Context, disks Disks) bool {
	if !slices.ContainsFunc(e.cfg.Pods(), Limited) {
		return false
	}
	// Volumes are dear to measure. What they held lately tells who is to be measured
	// now, and that alone tells who has to go.
	found := e.breaches(ctx, DisksLately, disks)
	if len(found) > 0 {
		found = e.breaches(ctx, DisksNow, disks)
	}
	var gone []leaver
	for _, b := range found {
		released, err := e.end(b.Pod, b.Signal, nil, Order{Grace: time.Second, Message: b.Message})
		if err == nil {
			gone = append(gone, leaver{b.Pod, released})
		}
	}
	e.await(ctx, gone)
	return len(gone) > 0
}

func (e *Evictor) breaches(ctx context.Context, depth Depth, disks Disks) []Breach {
	uses, err := e.cfg.Source.Use(ctx, depth)
	if ctx.Err() != nil {
		return nil
	}
	e.complain("limits", "cannot tell what pods keep on the disk, so their limits are not enforced", err)
	if err != nil {
		return nil
	}
	var found []Breach
	now := e.cfg.Now()
	e.each(e.candidates(uses), func(c Candidate) { found = append(found, Breaches([]Candidate{c}, disks, now)...) })
	return found
}
