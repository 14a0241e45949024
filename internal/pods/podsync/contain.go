package podsync

import (
	"context"
	"errors"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/node/panics"
	"keelson/internal/pods/explain"
	"keelson/internal/pods/pod"
)

// maxTurnPause bounds the pause after turns that panic.
const maxTurnPause = 5 * time.Minute

// contain runs what belongs to this pod alone. A panic in it is an error, and an event of
// the pod.
func (w *worker) contain(p *v1.Pod, what string, f func() error) error {
	err := panics.Try(w.log, "pods", f)
	var panicked *panics.Error
	if errors.As(err, &panicked) && p != nil {
		w.s.cfg.Events.Pod(p, "", v1.EventTypeWarning, pod.EventFailedSync, "error syncing pod: "+what+": "+err.Error())
	}
	return err
}

// safeTurn is a turn whose panic is an event of the pod. The next turn comes after a
// pause, which doubles while turns panic.
func (w *worker) safeTurn(ctx context.Context, tasks *sync.WaitGroup) (next time.Time, gone bool) {
	if w.s.cfg.Now().Before(w.heldUntil) {
		return w.heldUntil, false
	}
	err := w.contain(w.spec, "look at the pod", func() error {
		next, gone = w.turn(ctx, tasks)
		return nil
	})
	if err == nil {
		w.turnPause = 0
		return next, gone
	}
	w.turnPause = min(max(2*w.turnPause, firstPause), maxTurnPause)
	w.heldUntil = w.s.cfg.Now().Add(w.turnPause)
	return w.heldUntil, false
}

// safeExplain is explain; a panic in it becomes part of the explanation.
func (w *worker) safeExplain() (p explain.Pod) {
	err := w.contain(nil, "explain the pod", func() error {
		p = w.explain()
		return nil
	})
	if err != nil {
		p = explain.Pod{UID: string(w.uid), At: w.s.cfg.Now(), Waits: []explain.Wait{{For: "the agent", Error: err.Error()}}}
	}
	return p
}
