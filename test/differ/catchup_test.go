package differ

import (
	"io"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"keelson/test/rig"
)

// A life whose time to come to rest is over, while one side is about to follow the other, gets more time. Then it is
// the same on both sides.
func TestRestWhileOneSideFollows(t *testing.T) {
	stage := &Stage{
		clock: newClock(), lives: &cast{of: map[string]*Life{}}, patience: 2 * time.Second,
		cfg: Config{Out: io.Discard},
	}
	for i, node := range []string{"ours", "theirs"} {
		r := &rig.Rig{Name: node, Dir: t.TempDir()}
		stage.sides[i] = newSide(i, node, "", r, stage)
		stage.sides[i].kubelet = &rig.Kubelet{Root: r.Dir}
		stage.sides[i].useFake()
	}
	l := &Life{Name: "l", Pod: &corev1.Pod{}}
	stage.lives.of[l.Name] = l
	p := &play{Stage: stage, history: &History{}, known: map[string]bool{}, first: map[string]string{}}
	p.result.Ruled = map[*Rule]int{}
	show := func(s *side, code int32) {
		s.record.seePod(watch.Modified, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: l.Name, UID: "uid"},
			Status: corev1.PodStatus{
				Phase: corev1.PodFailed, StartTime: &metav1.Time{},
				ContainerStatuses: []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
					Terminated: &corev1.ContainerStateTerminated{ExitCode: code},
				}}},
			},
		})
	}
	for i, s := range stage.sides {
		s.record.track(l.Name).tookStep(create)
		show(s, int32(i))
	}
	time.AfterFunc(2300*time.Millisecond, func() { show(stage.sides[1], 0) })
	if err := p.rest(t.Context(), l, "at last"); err != nil {
		t.Fatal(err)
	}
	for _, d := range p.result.Differences {
		t.Errorf("%s: ours %s, theirs %s", d.Where, d.Ours, d.Theirs)
	}
}
