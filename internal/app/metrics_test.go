package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	v1beta1 "k8s.io/kubelet/config/v1beta1"

	"keelson/internal/api/node"
	"keelson/internal/api/watch"
	"keelson/internal/host/checkpoint"
	"keelson/internal/host/machine"
	"keelson/internal/pods/podsync/handlers"
	"keelson/internal/resources/topology"
	"keelson/internal/runtime/cri"
	"keelson/internal/runtime/image"
	"keelson/internal/runtime/image/provider"
	"keelson/internal/runtime/image/record"
	"keelson/internal/storage/volume"
	"keelson/test/kit/eventlog"
	"keelson/test/kit/fakecri"
	"keelson/test/kit/parity"
	"keelson/test/kit/scrape"
)

// runtimeClasses are RuntimeClasses whose handlers have the names of the classes.
func runtimeClasses(t *testing.T, names ...string) *watch.RuntimeClasses {
	t.Helper()
	events := apiwatch.NewFakeWithChanSize(len(names)+1, false)
	for _, name := range names {
		events.Add(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"}, Handler: name})
	}
	end := map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	events.Action(apiwatch.Bookmark, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "1",
		Annotations:     end,
	}})
	classes := watch.NewRuntimeClasses(&cache.ListWatch{
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (apiwatch.Interface, error) {
			return events,
				nil
		},
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (k8sruntime.Object, error) {
			return nil, errors.New("only watches are served")
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- classes.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	synctest.Wait()
	return classes
}

// gathered is all that a registry shows, as one collector.
type gathered struct{ *prometheus.Registry }

func (g gathered) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(g, ch) }
func (g gathered) Collect(ch chan<- prometheus.Metric) { g.Registry.Collect(ch) }

func TestRuntimeCallsAreCounted(t *testing.T) {
	parity.ProvesPart(t, 2, "RT-19")
	onFake(t, fakecri.Options{Handlers: []string{"kata"}},
		func(t *testing.T, g *ground, runtime *fakecri.Runtime, _ *bytes.Buffer) {
			g.cfg.Kubelet.PodLogsDir = t.TempDir()
			g.cfg.Flags.RootDir = t.TempDir()
			g.badFiles = &checkpoint.Reporter{}
			h := &host{machine: machine.Info{CPUs: 1, Memory: 1 << 30}}
			rt, err := newRuntimes(t.Context(), g, h)
			if err != nil {
				t.Fatal(err)
			}
			n, err := node.New(node.Config{
				Size:   node.Size{Machine: h.machine},
				Events: eventlog.Discard{},
				Log:    g.log,
			})
			if err != nil {
				t.Fatal(err)
			}
			s := &apiserver{events: eventlog.Discard{}, classes: runtimeClasses(t, "kata", "none")}
			volumes := volume.New(volume.Config{RootDir: g.cfg.Flags.RootDir, Events: s.events, Log: g.log})
			m := &managers{}
			if m.cpus, err = newCPUs(t.Context(), g, h, rt, machine.Layout{}, topology.None); err != nil {
				t.Fatal(err)
			}
			m.quotaExempt.Manager = m.cpus
			runner, err := newRunner(g, h, rt, s, &nodes{Node: n}, m, &objects{}, volumes, handlers.Handlers{})
			if err != nil {
				t.Fatal(err)
			}
			p := &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"},
				Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c"}}},
			}
			for attempt, h := range []string{"", "kata", "none"} {
				p.Spec.RuntimeClassName = &h
				_, err := runner.RunSandbox(t.Context(), p, uint32(attempt))
				if (err != nil) != (h == "none") {
					t.Fatalf("sandbox of handler %q: %v", h, err)
				}
			}
			runtime.Inject(fakecri.Fault{Method: "PullImage", Delay: 3 * time.Second})
			runtime.Inject(fakecri.Fault{Method: "CheckpointContainer", Code: codes.Unimplemented})
			ctx := t.Context()
			for range 2 {
				_, _ = rt.client.PullImage(ctx,
					&runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: "web:1"}})
				_, _ = rt.client.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
					PodSandboxId: "none",
					Config:       &runtimeapi.ContainerConfig{},
				})
				_, _ = rt.client.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{ContainerId: "none"})
			}
			_, _ = rt.client.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: "none"})
			got, sums := scrape.Of(t, gathered{g.metrics}), scrape.Sums(t, gathered{g.metrics})
			for series, want := range map[string]float64{
				"kubelet_runtime_operations_total{operation_type=run_podsandbox}":              3,
				"kubelet_runtime_operations_total{operation_type=create_container}":            2,
				"kubelet_runtime_operations_total{operation_type=podsandbox_status}":           1,
				"kubelet_runtime_operations_total{operation_type=pull_image}":                  2,
				"kubelet_runtime_operations_total{operation_type=checkpoint_container}":        2,
				"kubelet_runtime_operations_duration_seconds{operation_type=pull_image}":       2,
				"kubelet_runtime_operations_errors_total{operation_type=run_podsandbox}":       1,
				"kubelet_runtime_operations_errors_total{operation_type=create_container}":     2,
				"kubelet_runtime_operations_errors_total{operation_type=podsandbox_status}":    1,
				"kubelet_runtime_operations_errors_total{operation_type=checkpoint_container}": 2,
				"kubelet_run_podsandbox_duration_seconds{runtime_handler=}":                    1,
				"kubelet_run_podsandbox_duration_seconds{runtime_handler=kata}":                1,
				"kubelet_run_podsandbox_duration_seconds{runtime_handler=none}":                1,
				"kubelet_run_podsandbox_errors_total{runtime_handler=none}":                    1,
			} {
				if got[series] != want {
					t.Errorf("%s is %v, want %v", series, got[series], want)
				}
			}
			for _, none := range []string{"kubelet_runtime_operations_errors_total{operation_type=pull_image}",
				"kubelet_run_podsandbox_errors_total{runtime_handler=kata}"} {
				if _, there := got[none]; there {
					t.Errorf("%s counts what did not fail", none)
				}
			}
			if took := sums["kubelet_runtime_operations_duration_seconds{operation_type=pull_image}"]; took != 6 {
				t.Errorf("two pulls of 3 s took %v s", took)
			}
		})
}

// helper is a credential provider that succeeds for one registry and fails for another.
const helper = `#!/bin/sh
case "$(cat)" in
*broken.example*) exit 1 ;;
esac
echo '{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":"Image","auth":{"well.example":{"username":"u","password":"p"}}}'
`

func TestImagesAreCounted(t *testing.T) {
	parity.Proves(t, "LIFE-105")
	reg, log := prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	runtime := fakecri.New(fakecri.Options{})
	defer runtime.Close()
	conn, err := runtime.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := cri.Over(conn, conn, cri.Config{RequestTimeout: time.Minute, Log: log})
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	yaml := "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n" +
		"- {name: helper, matchImages: [\"*.example\"], defaultCacheDuration: 0s, apiVersion: credentialprovider.kubelet.k8s.io/v1}\n"
	if err := os.WriteFile(config, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "helper"), []byte(helper), 0o700); err != nil {
		t.Fatal(err)
	}
	helpers, err := provider.New(provider.Config{Path: config, BinDir: dir, Registry: reg, Log: log, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	records, err := record.New(record.Config{Root: dir, Policy: record.Policy{Verify: v1beta1.AlwaysVerify},
		Registry: reg, Log: log, Now: time.Now,
		Images: func(ctx context.Context) ([]*runtimeapi.Image, error) { return nil, nil }})
	if err != nil {
		t.Fatal(err)
	}
	manager, err := image.New(image.Config{Runtime: client, Events: eventlog.Discard{}, OnChange: func(types.UID) {},
		Sources: []image.Source{helpers}, Records: records,
		Registry: reg, Log: log, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- manager.Run(ctx) }()
	runtime.AddImage(fakecri.Image{Name: "there.other/a:1", Size: 5})
	for i, r := range []image.Request{
		{Image: "well.example/a:1", Policy: v1.PullIfNotPresent},
		{Image: "broken.example/a:1", Policy: v1.PullAlways},
		{Image: "there.other/a:1", Policy: v1.PullIfNotPresent}, // no pod has used its credentials for it before
		{Image: "none.other/a:1", Policy: v1.PullNever},
	} {
		r.Pod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: types.UID(fmt.Sprint(i))}}
		r.Container = "c"
		wait, stop := context.WithTimeout(ctx, time.Minute)
		if r.Policy == v1.PullNever {
			stop() // there is nothing to wait for
			manager.Ensure(r)
		}
		_, err := manager.Fetch(wait, r)
		stop()
		if (err == nil) != (r.Policy != v1.PullNever) {
			t.Errorf("%s: %v", r.Image, err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := records.Pulling("half.other/a:1"); err != nil {
		t.Fatal(err)
	}
	got := scrape.Of(t, gathered{reg})
	for series, want := range map[string]float64{
		"kubelet_image_pull_duration_seconds{image_size_in_bytes=0-10MB}":     3,
		"kubelet_credential_provider_plugin_duration{plugin_name=helper}":     2,
		"kubelet_credential_provider_plugin_errors_total{plugin_name=helper}": 1,

		"kubelet_image_manager_ensure_image_requests_total{present_locally=false,pull_policy=ifnotpresent,pull_required=true}": 1,
		"kubelet_image_manager_ensure_image_requests_total{present_locally=true,pull_policy=ifnotpresent,pull_required=true}":  1,
		"kubelet_image_manager_ensure_image_requests_total{present_locally=unknown,pull_policy=always,pull_required=true}":     1,

		"kubelet_imagemanager_image_mustpull_checks_total{result=mustAuthenticate}": 1,
		"kubelet_imagemanager_ondisk_pullintents":                                   1,
		"kubelet_imagemanager_ondisk_pulledrecords":                                 3,
		"kubelet_imagemanager_inmemory_pullintents_usage_percent":                   0,
		"kubelet_imagemanager_inmemory_pulledrecords_usage_percent":                 0,
	} {
		if v, there := got[series]; !there || v != want {
			t.Errorf("%s is %v, %v; want %v", series, v, there, want)
		}
	}
	if t.Failed() {
		var all []string
		for series, v := range got {
			all = append(all, fmt.Sprint(series, " ", v))
		}
		slices.Sort(all)
		t.Log(strings.Join(all, "\n"))
	}
}
