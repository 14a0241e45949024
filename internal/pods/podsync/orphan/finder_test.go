package orphan

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/desired"
	"keelson/internal/pods/observed"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/podsync"
	"keelson/internal/runtime/cri"
	"keelson/test/kit/fakecri"
)

// source delivers an empty list of pods when it is run.
type source struct{}

func (source) Name() pod.Source { return pod.SourceAPI }

func (source) Run(ctx context.Context, to desired.Sink) error {
	to.Replace([]*v1.Pod{})
	<-ctx.Done()
	return nil
}

// node is a node that an earlier agent has left. Its steps are what the finder did.
type node struct {
	t        *testing.T
	client   *cri.Client
	desired  *desired.Store
	observed *observed.Cache
	steps    []string
}

func (n *node) did(format string, args ...any) {
	n.steps = append(n.steps, fmt.Sprintf(format, args...))
}

func (n *node) Prune(knows func(types.UID) bool) { n.did("prune, knowing u1: %v", knows("u1")) }

// onNode runs f with a finder on a node whose runtime has not been listed and whose source has not synced.
func onNode(t *testing.T, f func(n *node, finder *Finder)) {
	t.Helper()
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
		n := &node{t: t, client: cri.Over(conn, conn, cri.Config{RequestTimeout: time.Minute, Log: log})}
		n.desired = desired.New(desired.Config{
			NodeName: "n1",
			Sources:  []desired.Source{source{}},
			OnChange: func(types.UID) {},
			Log:      log,
		})
		n.observed = observed.New(observed.Config{
			Runtime:  n.client,
			OnChange: func(types.UID) {},
			Log:      log,
			Now:      time.Now,
		})
		traces := func(what string, err error, uids ...types.UID) func(func(types.UID) bool) ([]types.UID, error) {
			return func(knows func(types.UID) bool) ([]types.UID, error) {
				n.did("list %s, knowing u1: %v", what, knows("u1"))
				return uids, err
			}
		}
		f(n, New(Config{
			Syncer:   podsync.New(podsync.Config{Desired: n.desired, Observed: n.observed, Log: log, Now: time.Now}),
			Desired:  n.desired,
			Observed: n.observed,
			Traces: map[string]func(func(types.UID) bool) ([]types.UID, error){
				"logs":        traces("logs", nil, "u3"),
				"cgroups":     traces("cgroups", errors.New("permission denied"), "u2"),
				"directories": traces("directories", nil, "u1", "u2"),
			},
			Pruners:   []Pruner{n, n},
			OnSettled: func() { n.did("settled") },
			RemoveDeadLinks: func(live func(string) bool) error {
				n.did("remove dead links, live: %v %v %v", live("/logs/runs.log"), live("/logs/ended.log"),
					live("/logs/other.log"))
				return errors.New("read-only file system")
			},
			Log: log,
		}))
	})
}

// container makes a container of a pod and starts it.
func (n *node) container(name string) (id string) {
	n.t.Helper()
	labels := map[string]string{pod.LabelPodUID: "u9", pod.LabelPodName: name, pod.LabelPodNamespace: "ns"}
	box := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "ns", Uid: "u9"},
		LogDirectory: "/logs",
		Labels:       labels,
	}
	made, err := n.client.RunPodSandbox(n.t.Context(), &runtimeapi.RunPodSandboxRequest{Config: box})
	if err != nil {
		n.t.Fatal(err)
	}
	c, err := n.client.CreateContainer(n.t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: made.PodSandboxId,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: name},
			Image:    &runtimeapi.ImageSpec{Image: "app:1"},
			LogPath:  name + ".log",
			Labels:   map[string]string{pod.LabelPodUID: "u9", pod.LabelContainerName: name},
		},
		SandboxConfig: box,
	})
	if err != nil {
		n.t.Fatal(err)
	}
	req := &runtimeapi.StartContainerRequest{ContainerId: c.ContainerId}
	if _, err := n.client.StartContainer(n.t.Context(), req); err != nil {
		n.t.Fatal(err)
	}
	return c.ContainerId
}

// Nothing is taken for an orphan before the runtime was listed and all sources have synced. A failure of one step does
// not affect the others, and each is done once.
func TestFinder(t *testing.T) {
	for _, listedFirst := range []bool{true, false} {
		onNode(t, func(n *node, finder *Finder) {
			n.container("runs")
			req := &runtimeapi.StopContainerRequest{ContainerId: n.container("ended")}
			if _, err := n.client.StopContainer(n.t.Context(), req); err != nil {
				n.t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(n.t.Context())
			ended := make(chan error, 3)
			parts := []func(context.Context) error{finder.Run, n.observed.Run, n.desired.Run}
			if !listedFirst {
				slices.Reverse(parts[1:])
			}
			for _, part := range parts {
				synctest.Wait()
				if len(n.steps) > 0 {
					n.t.Errorf("too early, the runtime is listed first: %v: %q", listedFirst, n.steps)
				}
				go func() { ended <- part(ctx) }()
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			want := []string{
				"settled",
				"list cgroups, knowing u1: false", "list directories, knowing u1: false", "list logs, knowing u1: false",
				"remove dead links, live: true false false",
				"prune, knowing u1: false", "prune, knowing u1: false", // there are no workers here
			}
			if !slices.Equal(n.steps, want) {
				n.t.Errorf("steps %q\nwant  %q", n.steps, want)
			}
			cancel()
			for range 3 {
				if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
					n.t.Error(err)
				}
			}
		})
	}
}

// An agent that ends before it knows the node's pods removes nothing.
func TestCancelledFinderRemovesNothing(t *testing.T) {
	onNode(t, func(n *node, finder *Finder) {
		ctx, cancel := context.WithCancel(n.t.Context())
		ended := make(chan error, 1)
		go func() { ended <- finder.Run(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil || len(n.steps) > 0 {
			n.t.Errorf("%v, %q", err, n.steps)
		}
	})
}

// Pods are found by all their traces, also if a list of traces is incomplete.
func TestFind(t *testing.T) {
	onNode(t, func(_ *node, finder *Finder) {
		got := finder.find(func(types.UID) bool { return false })
		if want := []types.UID{"u2", "u1", "u2", "u3"}; !slices.Equal(got, want) {
			t.Errorf("found %q, want %q", got, want)
		}
	})
}
