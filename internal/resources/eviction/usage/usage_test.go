package usage

import (
	"context"
	"fmt"
	"log/slog"
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
	"keelson/internal/storage/volume"
	"keelson/test/kit/fakecri"
)

// source is a source of pods.
type source []*v1.Pod

func (s source) Name() pod.Source { return pod.SourceAPI }

func (s source) Run(ctx context.Context, to desired.Sink) error {
	to.Replace(s)
	<-ctx.Done()
	return nil
}

// Pods returns the pods that the runtime has, including those that no source has any more, and no others.
func TestPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		fake := fakecri.New(fakecri.Options{})
		defer fake.Close()
		conn, err := fake.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		client := cri.Over(conn, conn, cri.Config{RequestTimeout: time.Minute, Log: log})
		for _, name := range []string{"both", "orphan"} {
			_, err := client.RunPodSandbox(
				t.Context(),
				&runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
					Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "ns", Uid: name},
					Labels: map[string]string{
						pod.LabelPodUID:       name,
						pod.LabelPodName:      name,
						pod.LabelPodNamespace: "ns",
					},
				}},
			)
			if err != nil {
				t.Fatal(err)
			}
		}
		var pods source
		for _, name := range []string{"both", "waits"} {
			pods = append(
				pods,
				&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}},
			)
		}
		d := desired.New(desired.Config{
			NodeName: "n1",
			Sources:  []desired.Source{pods},
			OnChange: func(types.UID) {},
			Log:      log,
		})
		o := observed.New(observed.Config{Runtime: client, OnChange: func(types.UID) {}, Log: log, Now: time.Now})
		if got := Pods(d, o); len(got) > 0 {
			t.Errorf("before anything is known: %+v", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- d.Run(ctx) }()
		go func() { ended <- o.Run(ctx) }()
		synctest.Wait()
		var got []string
		for _, p := range Pods(d, o) {
			line := p.Have.Name
			if p.Spec != nil {
				line += fmt.Sprintf(", specified as %s", p.Spec.Name)
			}
			got = append(got, line)
		}
		slices.Sort(got)
		if want := []string{"both, specified as both", "orphan"}; !slices.Equal(got, want) {
			t.Errorf("measured %q, want %q", got, want)
		}
		cancel()
		<-ended
		<-ended
	})
}

// A pod that the volume manager does not know has no measurements.
func TestVolumesOfAnUnknownPod(t *testing.T) {
	m := volume.New(volume.Config{RootDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if got := Volumes(m, "u"); len(got) > 0 {
		t.Errorf("volumes: %+v", got)
	}
	if got := LocalVolumes(m, "u"); len(got) > 0 {
		t.Errorf("local volumes: %v", got)
	}
}
