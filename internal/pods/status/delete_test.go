package status

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

// The API object is deleted with a grace period of 0 and only with its UID, once its pod has ended and has released
// everything, and if its deletion was requested.
func TestObjectDeletion(t *testing.T) {
	parity.Proves(t, "LIFE-10")
	parity.Differs(t, "LIFE-09", "0005") // its last step
	mirrored := func(f *Facts) {
		f.Pod.Annotations = map[string]string{pod.AnnotationConfigSource: string(pod.SourceFile)}
		f.Mirror = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "mirror",
			Annotations:       map[string]string{pod.AnnotationConfigMirror: "hash"},
			DeletionTimestamp: f.Pod.DeletionTimestamp}}
	}
	for _, c := range []struct {
		name string
		last pod.Container
		edit func(*Facts)
		want bool
	}{
		{"it has ended and let go of everything", crashed, func(*Facts) {}, true},
		{"something of it is not released yet", crashed, func(f *Facts) { f.Finished = false }, false},
		{"a container still runs", running, func(f *Facts) { f.Down, f.Finished = false, false }, false},
		{"its phase is not that of an end yet", running, func(f *Facts) { f.Terminating, f.Down = false, false }, false},
		{"deletion was not requested", crashed, func(f *Facts) { f.Pod.DeletionTimestamp = nil }, false},
		{"it is a mirror", crashed, mirrored, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			writing(t, func(t *testing.T, s *server, w *Writer) {
				f := facts(c.last)
				f.Pod.UID = "mine"
				f.Pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
				f.Terminating, f.Down, f.Finished = true, true, true
				f.Have.Sandboxes[0].Ready = false
				c.edit(&f)
				w.Publish(f)
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := len(s.deleted()) > 0; got != c.want {
					t.Fatalf("deleted: %v, want %v", got, c.want)
				}
				if !c.want {
					return
				}
				if len(s.deletions()) != 1 || len(s.writes()) == 0 ||
					!ended(s.writes()[len(s.writes())-1].status.Phase) {
					t.Errorf("deleted %d times after the statuses %v, want once, after the last", len(s.deletions()),
						s.writes())
				}
				o := s.deletions()[0]
				if o.GracePeriodSeconds == nil || *o.GracePeriodSeconds != 0 || o.Preconditions == nil ||
					o.Preconditions.UID == nil || *o.Preconditions.UID != types.UID("mine") {
					t.Errorf("deleted with %+v, want no grace and the UID", o)
				}
			})
		})
	}
}
