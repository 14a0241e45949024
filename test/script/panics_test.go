package script

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
)

// panicking panics where the agent logs a message about a pod, as often as configured.
type panicking struct {
	slog.Handler
	message, pod string
	times        *atomic.Int32
	of           bool // this handler's records are about the pod
}

func (h panicking) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		h.of = h.of || a.Key == "pod" && a.Value.String() == Namespace+"/"+h.pod
	}
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

func (h panicking) Handle(ctx context.Context, r slog.Record) error {
	if h.of && r.Message == h.message && h.times.Add(-1) >= 0 {
		panic("in the middle of a turn")
	}
	return h.Handler.Handle(ctx, r)
}

// TestAPanicInATurn makes the sync of one pod panic four times. The sync is retried after one,
// two, four and eight seconds, and an event reports the panic; another pod is not affected.
func TestAPanicInATurn(t *testing.T) {
	const times = 4
	var left atomic.Int32
	left.Store(times)
	Settled(t, "", func(w *World) {
		w.Wrap = func(h slog.Handler) slog.Handler {
			return panicking{Handler: h, message: "pod step", pod: "sick", times: &left}
		}
	}, func(t *testing.T, r *Run) {
		r.Pod(t, "sick", PlainPod)
		r.Pod(t, "well", PlainPod)
		r.Must(t, "wait", "well", "Ready", "within=1")
		r.Must(t, "steady", "13")
		if n := left.Load(); n != 0 {
			t.Errorf("%d panics have yet to come after 14 s", n)
		}
		if out, _ := r.status([]string{"sick"}); !strings.HasPrefix(out, "Pending") {
			t.Errorf("before the last pause is over the pod is %s", out)
		}
		r.Must(t, "wait", "sick", "Ready", "within=3")
		const event = "sick Warning FailedSync: error syncing pod: " +
			"internal error, the stack is in the agent's log: in the middle of a turn"
		if reported := r.ShowEvents("sick"); !strings.Contains(reported, event) {
			t.Errorf("events of the pod:\n%s\nwant\n%s", reported, event)
		}
		if n := strings.Count(r.Log.String(), "panics_test.go"); n != times {
			t.Errorf("%d stacks in the log, want %d", n, times)
		}
		r.Must(t, "delete", "sick")
		r.Must(t, "wait", "sick", "gone", "within=2")
		r.Must(t, "delete", "well")
		r.Must(t, "wait", "well", "gone", "within=2")
	})
}
