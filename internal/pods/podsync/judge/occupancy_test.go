package judge

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/desired"
	"keelson/internal/pods/observed"
	"keelson/internal/pods/pod"
	"keelson/internal/runtime/cri"
	"keelson/test/kit/fakecri"
)

// source delivers pods when deliver is closed.
type source struct {
	pods    []*v1.Pod
	deliver chan struct{}
}

func (s source) Name() pod.Source { return pod.SourceAPI }

func (s source) Run(ctx context.Context, to desired.Sink) error {
	select {
	case <-s.deliver:
		to.Replace(s.pods)
	case <-ctx.Done():
	}
	<-ctx.Done()
	return nil
}

func inPhase(uid types.UID, phase v1.PodPhase) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: uid, Name: string(uid), Namespace: "ns"},
		Status:     v1.PodStatus{Phase: phase},
	}
}

// runSandbox runs the sandbox of a pod with a container, and returns its ID.
func runSandbox(t *testing.T, client *cri.Client, uid types.UID) string {
	t.Helper()
	box := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: string(uid), Namespace: "ns", Uid: string(uid)},
		Labels: map[string]string{
			pod.LabelPodName:      string(uid),
			pod.LabelPodNamespace: "ns",
			pod.LabelPodUID:       string(uid),
		},
	}
	resp, err := client.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: box})
	if err != nil {
		t.Fatal(err)
	}
	labels := maps.Clone(box.Labels)
	labels[pod.LabelContainerName] = "main"
	made, err := client.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: resp.GetPodSandboxId(),
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
			Image:    &runtimeapi.ImageSpec{Image: "app:1"},
			Labels:   labels,
			Command:  []string{"sleep", "infinity"},
		},
		SandboxConfig: box,
	})
	if err != nil {
		t.Fatal(err)
	}
	start := &runtimeapi.StartContainerRequest{ContainerId: made.GetContainerId()}
	if _, err := client.StartContainer(t.Context(), start); err != nil {
		t.Fatal(err)
	}
	return resp.GetPodSandboxId()
}

// TestOccupancy has a node on which pods of an earlier agent run or have ended, before and after
// the source has delivered.
func TestOccupancy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		fake := fakecri.New(fakecri.Options{})
		defer fake.Close()
		fake.AddImage(fakecri.Image{Name: "app:1"})
		conn, err := fake.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		client := cri.Over(conn, conn, cri.Config{RequestTimeout: 10 * time.Second})
		sandboxes := map[types.UID]string{}
		for _, uid := range []types.UID{"running", "orphan", "dead"} {
			sandboxes[uid] = runSandbox(t, client, uid)
		}
		stop := &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandboxes["dead"]}
		if _, err := client.StopPodSandbox(t.Context(), stop); err != nil {
			t.Fatal(err)
		}

		src := source{deliver: make(chan struct{}), pods: []*v1.Pod{
			inPhase("running", v1.PodRunning),
			inPhase("new", v1.PodPending),
			inPhase("claimed", v1.PodPending),
			inPhase("ended", v1.PodSucceeded),
		}}
		o := Occupancy{
			Desired: desired.New(desired.Config{
				NodeName: "n1",
				Sources:  []desired.Source{src},
				OnChange: func(types.UID) {},
				Log:      log,
			}),
			Observed: observed.New(observed.Config{
				Runtime:  client,
				OnChange: func(types.UID) {},
				Log:      log,
				Now:      time.Now,
			}),
			MayClaim: func(p *v1.Pod) bool { return p.UID != "claimed" },
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- o.Desired.Run(ctx) }()
		go func() { ended <- o.Observed.Run(ctx) }()
		synctest.Wait()

		// Any of these may belong to the source, which has not delivered.
		for _, uid := range []types.UID{"running", "orphan", "dead"} {
			if !o.RunningWithoutSource(uid) {
				t.Errorf("before the source has delivered, %s does not take up the node", uid)
			}
		}
		close(src.deliver)
		synctest.Wait()
		for uid, want := range map[types.UID]bool{"running": false, "orphan": true, "dead": false, "unknown": false} {
			if got := o.RunningWithoutSource(uid); got != want {
				t.Errorf("%s takes up the node without a source: %v, want %v", uid, got, want)
			}
		}

		var arrivals []string
		for _, a := range o.Arrivals(func(types.UID) bool { return false }) {
			s := a.Pod.Name
			if a.Running {
				s += " runs"
			}
			arrivals = append(arrivals, s)
		}
		slices.Sort(arrivals)
		if want := []string{"new", "running runs"}; !slices.Equal(arrivals, want) {
			t.Errorf("arrivals are %v, want %v", arrivals, want)
		}
		if left := o.Arrivals(func(uid types.UID) bool { return uid == "new" }); len(left) != 1 {
			t.Errorf("without those that are skipped, arrivals are %v", left)
		}

		var present []string
		for _, p := range o.Present([]*v1.Pod{src.pods[1]}) {
			present = append(present, p.Name)
		}
		if want := []string{"new", "running"}; !slices.Equal(present, want) {
			t.Errorf("a shutdown ends %v, want %v", present, want)
		}
		cancel()
		for range 2 {
			if err := <-ended; err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
}
