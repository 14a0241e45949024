package podsync

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
)

// failingVolumes answers with one error.
type failingVolumes struct {
	Volumes
	err error
}

func (f failingVolumes) Ready(types.UID) (bool, error) { return false, f.err }

// noted keeps events and counts of refusals.
type noted struct {
	Allocation
	said []string
}

func (n *noted) Refused(reason string) { n.said = append(n.said, "counted "+reason) }
func (n *noted) Pod(_ *v1.Pod, _, eventType, reason, message string) {
	n.said = append(n.said, eventType+" "+reason+" "+message)
}
func (n *noted) Node(eventType, reason, message string) {
	n.said = append(n.said, "node "+eventType+" "+reason+" "+message)
}

func TestARefusalByTheVolumesEndsThePod(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want []string
	}{
		{err: errors.New("not attached yet")},
		{fmt.Errorf("attach: %w", &pod.Refusal{Reason: "VolumeAttachmentLimitExceeded", Message: "the node is full of them"}),
			[]string{"counted VolumeAttachmentLimitExceeded", "Warning VolumeAttachmentLimitExceeded the node is full of them"}},
	} {
		m, n := newMeasured(t), &noted{}
		m.cfg.Volumes, m.cfg.Allocation, m.cfg.Events = failingVolumes{err: tc.err}, n, n
		w := m.worker("u", podNamed("u", pod.SourceAPI))
		if w.volumesReady() || !slices.Equal(n.said, tc.want) {
			t.Errorf("%v: said %q, want %q", tc.err, n.said, tc.want)
		}
		if ended := w.going != nil; ended != (tc.want != nil) || ended && (w.override.Phase != v1.PodFailed || w.override.Message != "Pod was rejected: the node is full of them") {
			t.Errorf("%v: going %v, %+v", tc.err, w.going, w.override)
		}
	}
}
