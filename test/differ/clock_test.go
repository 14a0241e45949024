package differ

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"keelson/test/rig"
)

func TestTheClockIsSlowOnABusyMachine(t *testing.T) {
	wall, waited := time.Unix(1000, 0), time.Duration(0)
	c := &clock{wall: func() time.Time { return wall }, waiting: func() time.Duration { return waited }, speed: 1}
	last := c.now()
	for _, tc := range []struct{ passes, waits, want time.Duration }{
		{10 * time.Second, 0, 10 * time.Second},
		{10 * time.Second, 5 * time.Second, 10 * time.Second},
		{100 * time.Millisecond, 100 * time.Millisecond, 100 * time.Millisecond}, // not looked at yet
		{9900 * time.Millisecond, 7400 * time.Millisecond, 4900 * time.Millisecond},
		{10 * time.Second, 10 * time.Second, time.Second},
		{10 * time.Second, 0, 10 * time.Second},
	} {
		wall, waited = wall.Add(tc.passes), waited+tc.waits
		now := c.now()
		if got := now - last; got < tc.want-time.Millisecond || got > tc.want+time.Millisecond {
			t.Errorf("%v pass, of which tasks wait for %v: the clock says %v, want %v", tc.passes, tc.waits, got,
				tc.want)
		}
		last = now
	}
}

// On a busy machine a status may be skipped that the other side has shown for longer.
func TestHowLongAStatusStoodIsCountedOnTheClock(t *testing.T) {
	for _, tc := range []struct {
		what        string
		waits, gone time.Duration
		passed      bool
	}{
		{"on an idle machine", 0, 0, false},
		{"on a busy machine", 21 * time.Second, 0, true},
		{"until the pod was gone, on an idle machine", 0, 21 * time.Second, false},
		{"until the pod was gone, on a busy machine", 21 * time.Second, 21 * time.Second, true},
	} {
		wall, waited := time.Unix(1000, 0), time.Duration(0)
		c := &clock{wall: func() time.Time { return wall }, waiting: func() time.Duration { return waited }, speed: 1}
		r := &rig.Rig{Name: "ours", Dir: t.TempDir()}
		s := newSide(0, r.Name, "", r, &Stage{clock: c, lives: &cast{of: map[string]*Life{}}})
		s.kubelet = &rig.Kubelet{Root: r.Dir}
		l := &Life{Name: "l", Pod: &corev1.Pod{}}
		s.lives.of[l.Name] = l
		show := func(kind watch.EventType, phase corev1.PodPhase) {
			s.record.seePod(kind, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: l.Name, UID: "uid"},
				Status:     corev1.PodStatus{Phase: phase, StartTime: &metav1.Time{}},
			})
			wall, waited = wall.Add(21*time.Second), waited+tc.waits
		}
		show(watch.Added, corev1.PodRunning)
		if tc.gone == 0 {
			show(watch.Modified, corev1.PodSucceeded)
		} else {
			show(watch.Deleted, corev1.PodRunning)
		}
		stood, shown := s.sayings(l)["phase: Running  "]
		if !shown || stood <= passing != tc.passed {
			t.Errorf("%s: shown %v, stood for %v", tc.what, shown, stood)
		}
	}
}
