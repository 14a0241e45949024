package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/node/panics"
	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
)

// soonest is the least time between a refresh and the next one that is due by
// age. Clocks that disagree could otherwise make a token old when it is new.
const soonest = 10 * time.Second

// startLocked begins an attempt at one volume, or has one follow if one is under
// way.
func (m *Manager) startLocked(uid types.UID, ps *volumes, v *vol) {
	if v.busy || m.ctx == nil {
		v.again = true
		return
	}
	if v.timer != nil {
		v.timer.Stop()
	}
	if ps.ctx == nil {
		ps.ctx, ps.cancel = context.WithCancel(mount.Owned(m.ctx, ownerOf(uid)))
	}
	r := m.requestLocked(uid, ps, v) // before the volume counts as busy: a kind may panic
	v.busy = true
	ps.busy++
	ctx, kind, came := ps.ctx, v.kind, m.came
	m.wg.Go(func() {
		ctx, stop := withPatience(ctx, patience)
		defer stop()
		began := time.Now()
		var have Ready
		err := panics.Try(m.cfg.Log, "volumes", func() (err error) {
			have, err = kind.Prepare(ctx, r)
			return err
		})
		took := time.Since(began)
		m.metrics.tried(v, have, m.wasLeft(uid, v, have), took, err)
		m.finish(uid, ps, v, outcome{pod: r.Pod, have: have, err: err, came: came})
	})
}

// ownerOf is what a pod's calls to file systems are counted under.
func ownerOf(uid types.UID) string { return "pod " + string(uid) }

// premature reports whether an attempt ended before anything was done to a volume.
func premature(err error) bool {
	var waits *Waiting
	var unresolved *Unresolved
	return errors.As(err, &waits) || errors.As(err, &unresolved)
}

func (m *Manager) requestLocked(uid types.UID, ps *volumes, v *vol) Request {
	return Request{Place: PlaceOf(m.cfg.RootDir, uid, v.kind.Plugin(), v.spec.Name, false), Pod: ps.spec, Volume: v.spec}
}

// outcome is the result of an attempt.
type outcome struct {
	pod  *v1.Pod
	have Ready
	err  error
	came uint64 // Manager.came when it began
}

// finish takes the outcome of an attempt.
func (m *Manager) finish(uid types.UID, ps *volumes, v *vol, o outcome) {
	have, err := o.have, o.err
	m.mu.Lock()
	v.busy = false
	ps.busy--
	if ps.phase != wanted || m.ctx == nil {
		// It failed or succeeded for nothing; what it made is found on the disk.
		if ps.phase == releasing && ps.busy == 0 {
			m.startReleaseLocked(uid, ps)
		}
		m.mu.Unlock()
		return
	}
	var full *AttachLimit
	if errors.As(err, &full) {
		err = ps.refusal(v, full)
	}
	v.err, v.waits, v.retry, v.counted = err, nil, time.Time{}, cmp.Or(have.Counted, v.counted)
	switch {
	case err == nil:
		if !v.ready && have.Did == Mounted {
			m.metrics.arrived(v.plugin(), time.Since(v.since))
		}
		v.ready, v.have, v.delay = true, have, 0
	default:
		v.delay = min(max(2*v.delay, minRetry), maxRetry)
		v.retry = time.Now().Add(v.delay)
		if errors.As(err, &v.waits) {
			v.err = nil
		}
	}
	switch {
	case v.again || m.cameSinceLocked(o.came, err):
		v.again = false
		m.startLocked(uid, ps, v)
	case err != nil:
		v.timer = panics.Again(m.cfg.Log, "volumes", v.delay, func() { m.due(uid, ps, v) })
	case !have.RenewAt.IsZero():
		m.renewLocked(uid, ps, v)
	}
	var reason, message string
	var refused *pod.Refusal // whoever ends the pod says so
	if v.err != nil && !errors.As(v.err, &refused) {
		reason, message = ps.failed(v, v.err)
	}
	waits, name := v.waits, v.spec.Name
	notify := ps.changedLocked()
	if ps.overdue != nil && ps.readyLocked() {
		ps.overdue.Stop()
		ps.overdue = nil
	}
	m.mu.Unlock()
	switch {
	case waits != nil:
		m.cfg.Log.Debug("volume waits", "pod", ps.ref.Namespace+"/"+ps.ref.Name, "uid", uid, "volume", name, "for", waits.For)
	case err != nil:
		m.cfg.Log.Warn("cannot prepare volume", "pod", ps.ref.Namespace+"/"+ps.ref.Name, "uid", uid, "volume", name, "err", err)
		if refused == nil {
			m.cfg.Events.Pod(o.pod, "", v1.EventTypeWarning, reason, message)
		}
	}
	if notify {
		m.cfg.OnChange(uid)
	}
}

// due is called when the time for another attempt has come.
func (m *Manager) due(uid types.UID, ps *volumes, v *vol) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ps.phase == wanted {
		m.startLocked(uid, ps, v)
	}
}

// overdue says what a pod has been waiting for all the time.
func (m *Manager) overdue(uid types.UID, ps *volumes) {
	m.mu.Lock()
	if m.ctx == nil || ps.phase != wanted || ps.readyLocked() {
		ps.overdue = nil
		m.mu.Unlock()
		return
	}
	ps.overdue = panics.After(m.cfg.Log, "volumes", patience, func() { m.overdue(uid, ps) })
	p, message := ps.spec, ps.waitingFor(context.DeadlineExceeded)
	m.mu.Unlock()
	m.cfg.Events.Pod(p, "", v1.EventTypeWarning, pod.EventFailedMount, message)
}

// waitingFor is the event of a pod whose volumes are not all there.
func (ps *volumes) waitingFor(cause error) string {
	unmounted, unattached, failed := ps.missing()
	return fmt.Sprintf("Unable to attach or mount volumes: "+
		"unmounted volumes=%v, unattached volumes=%v, failed to process volumes=%v: %s",
		unmounted, unattached, failed, pod.TextOf(cause))
}

// missing names the volumes of the pod that are not ready, those of them that are not attached, and those whose
// claim or volume could not be resolved.
func (ps *volumes) missing() (unmounted, unattached, failed []string) {
	for _, spec := range needed(ps.spec) {
		v := ps.vols[spec.Name]
		if v == nil || !v.ready {
			unmounted = append(unmounted, spec.Name)
		}
		if v != nil && v.isUnresolved() {
			failed = append(failed, spec.Name)
		}
		if v != nil && v.waits != nil && v.waits.Attach {
			unattached = append(unattached, spec.Name)
		}
	}
	slices.Sort(unmounted)
	slices.Sort(unattached)
	slices.Sort(failed)
	return unmounted, unattached, failed
}
