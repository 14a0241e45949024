package podsapi

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// The handler of a call for one pod panics. Its client gets an error, and other calls are answered.
func TestPanicInHandler(t *testing.T) {
	n := newNode(t)
	well := n.cfg.Pod
	n.cfg.Pod = func(uid types.UID) (*v1.Pod, bool) {
		if uid == "sick" {
			panic("at a question")
		}
		return well(uid)
	}
	n.set("well", v1.PodRunning)
	_, err := n.client.GetPod(t.Context(), &podsv1alpha1.GetPodRequest{PodUID: "sick"})
	if status.Code(err) != codes.Internal ||
		!strings.Contains(err.Error(), "internal error, the stack is in the agent's log: at a question") {
		t.Errorf("answered %v", err)
	}
	if _, err := n.client.GetPod(t.Context(), &podsv1alpha1.GetPodRequest{PodUID: "well"}); err != nil {
		t.Errorf("a question about another pod: %v", err)
	}
	n.cfg.Pods = func() []*v1.Pod { panic("at a watch") }
	watch, err := n.client.WatchPods(t.Context(), &podsv1alpha1.WatchPodsRequest{})
	if err == nil {
		_, err = watch.Recv()
	}
	if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "at a watch") {
		t.Errorf("a watch: %v", err)
	}
}
