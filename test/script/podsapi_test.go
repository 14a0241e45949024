package script

import (
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"keelson/internal/serve/podsapi"
)

// TestPodsAPI watches a pod from its creation to its end, as a program on the node does.
func TestPodsAPI(t *testing.T) {
	s := Listening(t, "featureGates: {PodsAPI: true}\n", Rights)
	conn, err := grpc.NewClient("unix://"+s.Path("kubelet/"+podsapi.Socket),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := podsv1alpha1.NewPodsClient(conn).WatchPods(t.Context(), &podsv1alpha1.WatchPodsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	next := func() (podsv1alpha1.EventType, *corev1.Pod) {
		t.Helper()
		ev, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		p := &corev1.Pod{}
		if err := p.Unmarshal(ev.Pod); err != nil {
			t.Fatal(err)
		}
		return ev.Type, p
	}
	if kind, _ := next(); kind != podsv1alpha1.EventType_INITIAL_SYNC_COMPLETE {
		t.Fatalf("first %v", kind)
	}
	s.RunPod(t, "web", PlainPod)
	if kind, p := next(); kind != podsv1alpha1.EventType_ADDED || p.Name != "web" {
		t.Fatalf("then %v of %s", kind, p.Name)
	}
	for {
		kind, p := next()
		if kind != podsv1alpha1.EventType_MODIFIED {
			t.Fatalf("then %v", kind)
		}
		if p.Status.Phase == corev1.PodRunning && isReady(p) {
			break
		}
	}
	if code, text := s.Ask(t, "/metrics", "good", nil); code != 200 ||
		!strings.Contains(text, "\nkubelet_pod_watch_events_dropped_total 0\n") {
		t.Errorf("metrics: %d", code)
	}
	now := int64(0)
	if err := s.API.CoreV1().Pods(Namespace).Delete(t.Context(),
		"web", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	for kind := podsv1alpha1.EventType_MODIFIED; kind != podsv1alpha1.EventType_DELETED; {
		kind, _ = next()
	}
	s.Stop()

	off := Listening(t, "", Rights)
	time.Sleep(100 * time.Millisecond)
	if _, err := os.Stat(off.Path("kubelet/" + podsapi.Socket)); err == nil {
		t.Error("it is served while the gate is off")
	}
}
