package podsync

import (
	"context"
	"errors"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"keelson/internal/host/clock"
	"keelson/internal/pods/explain"
	"keelson/internal/pods/panics"
	"keelson/internal/pods/pod"
)

// maxTurnPause bounds the pause after turns that panic.
const maxTurnPause = 5 * time.Minute

// hold is the pause after turns that panic.
type hold struct {
	pause   time.Duration
	backoff wait.Backoff // while turns panic
	until   time.Time    // no turn before that
}

// contain runs what belongs to one pod alone. A panic in it is an error, and an event of
// the pod; p is nil where none is to be recorded. What names the work in the event, unless it is empty.
func contain(cfg *Config, log *slog.Logger, p *v1.Pod, what string, f func() error) error {
	err := panics.Try(log, "pods", f)
	var panicked *panics.Error
	if errors.As(err, &panicked) && p != nil {
		message := "error syncing pod: "
		if what != "" {
			message += what + ": "
		}
		cfg.Events.Pod(p, "", v1.EventTypeWarning, pod.EventFailedSync, message+err.Error())
	}
	return err
}

// safeTurn is a turn whose panic is an event of the pod. The next turn comes after a
// pause, which doubles while turns panic.
func (w *worker) safeTurn(ctx context.Context, m mail) (next time.Time, gone bool) {
	cfg, held := &w.s.cfg, &w.hold
	err := contain(cfg, w.log, w.source.spec, "", func() error {
		w.receive(m, cfg.Now())
		if cfg.Now().Before(held.until) {
			next = held.until
			return nil
		}
		next, gone = w.turn(ctx)
		held.pause = 0
		return nil
	})
	if err == nil {
		return next, gone
	}
	if held.pause == 0 {
		held.backoff = clock.Backoff(firstPause, maxTurnPause)
	}
	held.pause = held.backoff.Step()
	held.until = cfg.Now().Add(held.pause)
	return held.until, false
}

// safeExplain explains the pod; a panic in it becomes part of the explanation.
func (w *worker) safeExplain() (p explain.Pod) {
	err := contain(&w.s.cfg, w.log, nil, "", func() error {
		have, _ := w.s.cfg.Observed.Get(w.uid)
		p = explainer{w: w, have: have}.explain()
		return nil
	})
	if err != nil {
		p = explain.Pod{
			UID:   string(w.uid),
			At:    w.s.cfg.Now(),
			Waits: []explain.Wait{{For: "the agent", Error: err.Error()}},
		}
	}
	return p
}
