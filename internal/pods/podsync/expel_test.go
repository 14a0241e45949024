package podsync

import (
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
)

// Who ends a pod waits until it has made room. One that nobody looks after has, and
// is not waited for.
func TestAPodThatNobodyLooksAfterIsNotWaitedFor(t *testing.T) {
	s := New(Config{Log: slog.New(slog.DiscardHandler), Now: time.Now})
	select {
	case <-s.Evict("gone", Eviction{Message: "The node was low on resource: memory. "}):
	case <-time.After(time.Minute):
		t.Error("it is waited for")
	}
}

// slowDisk takes what is noted of pods, when it is let go on.
type slowDisk struct {
	Dirs
	goOn  chan struct{}
	mu    sync.Mutex
	notes []string
}

func (d *slowDisk) Make(types.UID) error { return nil }
func (d *slowDisk) NoteEnd(uid types.UID, e End) error {
	<-d.goOn
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notes = append(d.notes, string(uid)+" "+e.Override.Reason)
	return nil
}

func (d *slowDisk) Restarts(types.UID) (Restarts, error) { return Restarts{}, nil }

func TestAVerdictIsWrittenDownBeforeThePodGoes(t *testing.T) {
	preempt := func(m *measured, uid types.UID) { m.Preempt(uid, 7*time.Second, "Preempting", "make room", "") }
	deleted := func(m *measured, w *worker) {
		w.spec.DeletionTimestamp, w.spec.DeletionGracePeriodSeconds = &metav1.Time{Time: m.now}, ptr.To(int64(30))
		w.judgeWish(m.now)
	}
	for _, tc := range []struct {
		name  string
		first func(m *measured, w *worker, d *slowDisk, turn func())
		why   string // that the pod goes; empty: it does not go yet
		left  time.Duration
		notes []string
	}{
		{
			name:  "it stays while the disk is waited for",
			first: func(_ *measured, _ *worker, _ *slowDisk, turn func()) { turn() },
			notes: []string{"u Preempting"},
		},
		{
			name: "it goes when that is done",
			first: func(_ *measured, w *worker, d *slowDisk, turn func()) {
				turn()
				close(d.goOn)
				<-w.wake
				turn()
			},
			why: "preempted", left: 7 * time.Second, notes: []string{"u Preempting"},
		},
		{
			name: "it is not waited for a disk that hangs",
			first: func(m *measured, _ *worker, _ *slowDisk, turn func()) {
				turn()
				m.now = m.now.Add(500 * time.Millisecond)
				turn()
			},
			why: "preempted", left: 6500 * time.Millisecond, notes: []string{"u Preempting"},
		},
		{
			name: "a deletion meanwhile comes second",
			first: func(m *measured, w *worker, _ *slowDisk, turn func()) {
				turn()
				deleted(m, w)
			},
			why: "preempted", left: 7 * time.Second, notes: []string{"u Preempting"},
		},
		{
			name: "one that comes first is the reason, and nothing else is written down",
			first: func(m *measured, w *worker, _ *slowDisk, turn func()) {
				w.verdict = nil
				deleted(m, w)
				preempt(m, "u")
				turn()
			},
			why: "deleted", left: 7 * time.Second,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newMeasured(t)
			d := &slowDisk{goOn: make(chan struct{})}
			m.cfg.Dirs = d
			w := m.worker("u", podNamed("u", pod.SourceAPI))
			var tasks sync.WaitGroup
			preempt(m, "u") // returns though the disk does not answer
			<-w.wake
			tc.first(m, w, d, func() { w.carryOut(t.Context(), &tasks, m.now) })
			if (w.going != nil) != (tc.why != "") || w.goingWhy != tc.why {
				t.Fatalf("going %v because it was %q, want %q", w.going, w.goingWhy, tc.why)
			}
			if w.going != nil && w.going.Deadline.Sub(m.now) != tc.left {
				t.Errorf("it has %v, want %v", w.going.Deadline.Sub(m.now), tc.left)
			}
			if w.going != nil && (w.override != nil) != (tc.why == "preempted") {
				t.Errorf("shown as %+v", w.override)
			}
			select {
			case <-d.goOn:
			default:
				close(d.goOn)
			}
			tasks.Wait()
			if !slices.Equal(d.notes, tc.notes) {
				t.Errorf("noted %q, want %q", d.notes, tc.notes)
			}
		})
	}
}

// The directory of a pod that is gone is not made again by who writes down why it went.
func TestDirectoriesStayWhileAVerdictIsWrittenDown(t *testing.T) {
	m := newMeasured(t)
	d := &slowDisk{goOn: make(chan struct{})}
	m.cfg.Dirs = d
	w := m.worker("u", podNamed("u", pod.SourceAPI))
	w.spec.Status.Phase = v1.PodFailed
	w.known = false
	var tasks sync.WaitGroup
	m.Preempt("u", time.Second, "Preempting", "make room", "")
	w.carryOut(t.Context(), &tasks, m.now)
	if w.leaveNothing(t.Context(), &tasks, pod.Runtime{}) {
		t.Error("nothing is left, though the directory is about to be made")
	}
	w.mu.Lock()
	if _, removing := w.tasks[string(removeDirs)]; removing {
		t.Error("the directory is removed while it is being made")
	}
	w.mu.Unlock()
	close(d.goOn)
	tasks.Wait()
}
