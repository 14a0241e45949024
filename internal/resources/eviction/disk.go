package eviction

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// monitorDisks monitors file systems, process IDs, and the limits of pods.
func (e *Manager) monitorDisks(ctx context.Context) {
	w := diskMonitor{
		e:    e,
		base: slices.DeleteFunc(slices.Clone(e.cfg.Thresholds), func(t Threshold) bool { return t.Signal.memory() }),
	}
	if len(w.base) == 0 && !e.cfg.Limits {
		e.publish(diskLoop, nil)
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
		timer.Reset(w.check(ctx))
	}
}

// diskMonitor is the state of the disk loop.
type diskMonitor struct {
	e     *Manager
	base  []Threshold // as configured
	disks *Disks      // nil: the runtime has not reported them yet
	state State
}

// check makes one check and acts on it. It returns the time until the next check.
func (w *diskMonitor) check(ctx context.Context) time.Duration {
	e := w.e
	thresholds := w.base
	if w.disks == nil {
		d, err := e.cfg.Source.Disks(ctx)
		if ctx.Err() != nil {
			return monitoringInterval
		}
		e.logOnce("disks", "failed to get image and container file systems from the runtime", err)
		if err == nil {
			w.disks = &d
		}
	}
	var disks Disks
	if w.disks != nil {
		disks = *w.disks
		thresholds = addContainerFS(w.base, disks)
	}
	seen := e.cfg.Source.Observe(ctx, signalsOf(thresholds))
	if ctx.Err() != nil {
		return monitoringInterval
	}
	now := e.cfg.Now()
	var f Finding
	w.state, f = w.state.Evaluate(thresholds, seen, e.cfg.PressureTransition, now)
	e.publish(diskLoop, f.Pressures)
	e.forgetReleased()
	wait := monitoringInterval
	if !f.Next.IsZero() {
		wait = min(wait, max(f.Next.Sub(now), minInterval))
	}
	if w.disks == nil || !e.canEvict() {
		return wait
	}
	if e.cfg.Limits && e.evictBreaching(ctx, disks) {
		return 0
	}
	m, short := mostUrgent(f.Act)
	switch looked, memory := e.memoryShort(); {
	case !short || memory:
		return wait
	case !looked:
		return minInterval
	}
	e.cfg.Events.Node(v1.EventTypeWarning, EventThresholdMet,
		fmt.Sprintf(messageReclaim, signalInfo[m.Signal].resource))
	if w.reclaim(ctx, m, disks) {
		return wait
	}
	if ctx.Err() == nil && e.evictForThreshold(ctx, m, f.Act, disks, false) {
		return 0
	}
	return wait
}

// memoryShort reports whether memory was checked, and whether a threshold has to be acted on.
func (e *Manager) memoryShort() (looked, short bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.checked[memoryLoop], e.short
}

// reclaim removes dead containers and unused images. It reports whether that was enough for the threshold and its
// minimum reclaim.
func (w *diskMonitor) reclaim(ctx context.Context, m Met, disks Disks) bool {
	for _, what := range reclaims(m.Signal, disks) {
		remove := w.e.cfg.RemoveDeadContainers
		if what == unusedImages {
			remove = w.e.cfg.RemoveUnusedImages
		}
		err := remove(ctx)
		if ctx.Err() != nil {
			return false
		}
		w.e.logOnce("reclaim "+string(what), "failed to reclaim node-level resources", err)
		o, known := w.e.cfg.Source.Observe(ctx, []Signal{m.Signal})[m.Signal]
		if known && o.Available >= m.Least.Of(o.Capacity)+m.Reclaim.Of(o.Capacity) {
			w.e.cfg.Log.Info("reclaimed enough resources without evicting a pod", "signal", m.Signal, "removed", what)
			return true
		}
	}
	return false
}

// evictBreaching evicts the pods that exceed a limit of local storage, and waits until they are released. It reports
// whether there were any.
func (e *Manager) evictBreaching(ctx context.Context, disks Disks) bool {
	if !slices.ContainsFunc(e.cfg.Pods(), Limited) {
		return false
	}
	// Measuring volumes is expensive. They are measured again only if a pod exceeds a limit by the last measurement.
	found := e.breaches(ctx, DisksLately, disks)
	if len(found) > 0 {
		found = e.breaches(ctx, DisksNow, disks)
	}
	var gone []evictedPod
	for _, b := range found {
		released, err := e.evict(b.Pod, b.Signal, nil, Order{Grace: time.Second, Message: b.Message})
		if err == nil {
			gone = append(gone, evictedPod{b.Pod, released})
		}
	}
	e.awaitReleased(ctx, gone)
	return len(gone) > 0
}

func (e *Manager) breaches(ctx context.Context, depth Depth, disks Disks) []Breach {
	uses, err := e.cfg.Source.Use(ctx, depth)
	if ctx.Err() != nil {
		return nil
	}
	e.logOnce("limits", "failed to get local storage usage of pods; limits are not enforced", err)
	if err != nil {
		return nil
	}
	var found []Breach
	now := e.cfg.Now()
	e.forEach(e.candidates(uses), func(c Candidate) { found = append(found, Breaches([]Candidate{c}, disks, now)...) })
	return found
}
