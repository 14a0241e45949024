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

	"keelson/internal/pods/panics"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/reconcile"
	"keelson/internal/storage/mount"
)

// minRefresh is the minimum time between two refreshes by age. With clocks that differ, a new token
// could otherwise count as expired.
const minRefresh = 10 * time.Second

// beginPrepareLocked returns an attempt to prepare a volume.
func (m *Manager) beginPrepareLocked(key volumeKey) reconcile.Attempt {
	uid, ps := key.uid, m.pods[key.uid]
	v := ps.vols[key.name]
	if ps.ctx == nil {
		ps.ctx, ps.cancel = context.WithCancel(mount.Owned(m.ctx, ownerOf(uid)))
	}
	r := m.requestLocked(uid, ps, v)
	ctx, kind, came := ps.ctx, v.kind, m.registrations
	var have Ready
	return reconcile.Attempt{
		Do: func(context.Context) error { // ctx ends with that one, and when the volumes are released
			ctx, stop := withProgressTimeout(ctx, attemptTimeout)
			defer stop()
			began := time.Now()
			err := panics.Try(m.cfg.Log, part, func() (err error) {
				have, err = kind.Prepare(ctx, r)
				return err
			})
			m.metrics.tried(v, have, m.wasLeft(uid, v, have), time.Since(began), err)
			return err
		},
		End: func(res reconcile.Result) reconcile.Next {
			return m.endPrepareLocked(key, ps, v, outcome{
				pod:           r.Pod,
				have:          have,
				err:           res.Err,
				pause:         res.Pause,
				registrations: came,
			})
		},
	}
}

// ownerOf returns the owner of the pod's calls to file systems.
func ownerOf(uid types.UID) string { return "pod " + string(uid) }

// premature reports whether an attempt ended before it changed anything.
func premature(err error) bool {
	var waits *Waiting
	var unresolved *Unresolved
	return errors.As(err, &waits) || errors.As(err, &unresolved)
}

func (m *Manager) requestLocked(uid types.UID, ps *volumes, v *vol) Request {
	return Request{
		Place:  PlaceOf(m.cfg.RootDir, uid, v.kind.Plugin(), v.spec.Name, false),
		Pod:    ps.spec,
		Volume: v.spec,
	}
}

// outcome is the result of an attempt.
type outcome struct {
	pod           *v1.Pod
	have          Ready
	err           error
	pause         time.Duration // before a retry
	registrations uint64        // value of Manager.registrations at the start
}

// endPrepareLocked processes the outcome of an attempt.
func (m *Manager) endPrepareLocked(key volumeKey, ps *volumes, v *vol, o outcome) reconcile.Next {
	if ps.phase != wanted || m.ctx == nil {
		// The outcome is irrelevant: release finds on the disk what was prepared.
		if ps.phase == releasing && !m.preparingLocked(key.uid, ps) {
			m.releases.RequestLocked(key.uid)
		}
		return reconcile.Next{Forget: true}
	}
	var full *AttachLimit
	if errors.As(o.err, &full) {
		o.err = ps.rejection(v, full)
	}
	m.recordLocked(v, o)
	next := reconcile.Next{
		Again: m.registeredSinceLocked(o.registrations, o.err),
		Retry: o.err != nil,
	}
	if o.err == nil && !o.have.RenewAt.IsZero() {
		next.After = m.untilRenewal(v)
	}
	report := m.reportLocked(key, ps, v, o)
	notify := ps.changedLocked()
	if ps.overdue != nil && ps.readyLocked() {
		ps.overdue.Stop()
		ps.overdue = nil
	}
	next.Then = func() {
		report()
		if notify {
			m.cfg.OnChange(key.uid)
		}
	}
	return next
}

// preparingLocked reports whether an attempt to prepare a volume of the pod is under way.
func (m *Manager) preparingLocked(uid types.UID, ps *volumes) bool {
	for name := range ps.vols {
		if m.prepares.RunningLocked(volumeKey{uid, name}) {
			return true
		}
	}
	return false
}

// reportLocked returns what logs the outcome of an attempt and records an event about a failure.
func (m *Manager) reportLocked(key volumeKey, ps *volumes, v *vol, o outcome) func() {
	var reason, message string
	var refused *pod.Rejection // shown as the pod's rejection
	if v.err != nil && !errors.As(v.err, &refused) {
		reason, message = ps.failed(v, v.err)
	}
	waits := v.waits
	return func() {
		log := m.cfg.Log.With("pod", ps.ref.Namespace+"/"+ps.ref.Name, "podUID", key.uid, "volumeName", key.name)
		switch {
		case waits != nil:
			log.Debug("volume is waiting", "reason", waits.For)
		case o.err != nil:
			log.Warn("failed to prepare volume", "err", o.err)
			if refused == nil {
				m.cfg.Events.Pod(o.pod, "", v1.EventTypeWarning, reason, message)
			}
		}
	}
}

// recordLocked records the result of an attempt in the state of the volume.
func (m *Manager) recordLocked(v *vol, o outcome) {
	v.err, v.waits, v.retry, v.counted = o.err, nil, time.Time{}, cmp.Or(o.have.Counted, v.counted)
	if o.err == nil {
		if !v.ready && o.have.Did == Mounted {
			m.metrics.arrived(v.plugin(), time.Since(v.since))
		}
		v.ready, v.have = true, o.have
		return
	}
	v.retry = time.Now().Add(o.pause)
	if errors.As(o.err, &v.waits) {
		v.err = nil
	}
}

// overdue records an event about the volumes that a pod is still waiting for.
func (m *Manager) overdue(uid types.UID, ps *volumes) {
	m.mu.Lock()
	if m.ctx == nil || ps.phase != wanted || ps.readyLocked() {
		ps.overdue = nil
		m.mu.Unlock()
		return
	}
	ps.overdue = panics.After(m.cfg.Log, part, attemptTimeout, func() { m.overdue(uid, ps) })
	p, message := ps.spec, ps.waitingFor(context.DeadlineExceeded)
	m.mu.Unlock()
	m.cfg.Events.Pod(p, "", v1.EventTypeWarning, pod.EventFailedMount, message)
}

// waitingFor returns the event for a pod whose volumes are not all ready.
func (ps *volumes) waitingFor(cause error) string {
	unmounted, unattached, failed := ps.missing()
	return fmt.Sprintf("Unable to attach or mount volumes: "+
		"unmounted volumes=%v, unattached volumes=%v, failed to process volumes=%v: %s",
		unmounted, unattached, failed, pod.TextOf(cause))
}

// missing returns the volumes that are not ready, those of them that are not attached, and those
// that could not be resolved.
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
