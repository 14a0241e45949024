package app

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	v1beta1 "k8s.io/kubelet/config/v1beta1"

	"keelson/internal/runtime/cri"
	"keelson/internal/runtime/image"
	"keelson/internal/runtime/image/provider"
	"keelson/internal/runtime/image/record"
	"keelson/internal/storage/volume"
	"keelson/test/kit/fakecri"
	"keelson/test/kit/parity"
	"keelson/test/kit/scrape"
)

// gathered is all that a registry shows, as one collector.
type gathered struct{ *prometheus.Registry }

func (g gathered) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(g, ch) }
func (g gathered) Collect(ch chan<- prometheus.Metric) { g.Registry.Collect(ch) }

func TestRuntimeCallsAreCounted(t *testing.T) {
	parity.ProvesPart(t, 2, "RT-19")
	onFake(t, fakecri.Options{Handlers: []string{"kata"}}, func(t *testing.T, a *agent, runtime *fakecri.Runtime, _ *bytes.Buffer) {
		a.cfg.Kubelet.PodLogsDir = t.TempDir()
		a.cfg.Flags.RootDir = t.TempDir()
		defer runNode(t, a)()
		a.events = silent{}
		a.volumes = volume.New(volume.Config{RootDir: a.cfg.Flags.RootDir, Events: a.events, Log: a.log})
		a.classes = &runtimeClasses{store: cache.NewStore(cache.MetaNamespaceKeyFunc)}
		for _, handler := range []string{"kata", "none"} {
			if err := a.classes.store.Add(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: handler}, Handler: handler}); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.buildResources(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := a.buildContainers(); err != nil {
			t.Fatal(err)
		}
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
		for attempt, h := range []string{"", "kata", "none"} {
			p.Spec.RuntimeClassName = &h
			_, err := a.runner.RunSandbox(t.Context(), p, uint32(attempt))
			if (err != nil) != (h == "none") {
				t.Fatalf("sandbox of handler %q: %v", h, err)
			}
		}
		runtime.Inject(fakecri.Fault{Method: "PullImage", Delay: 3 * time.Second})
		runtime.Inject(fakecri.Fault{Method: "CheckpointContainer", Code: codes.Unimplemented})
		ctx := t.Context()
		for range 2 {
			_, _ = a.runtime.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: "web:1"}})
			_, _ = a.runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: "none", Config: &runtimeapi.ContainerConfig{}})
			_, _ = a.runtime.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{ContainerId: "none"})
		}
		_, _ = a.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: "none"})
		got, sums := scrape.Of(t, gathered{a.metrics}), scrape.Sums(t, gathered{a.metrics})
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
		for _, none := range []string{"kubelet_runtime_operations_errors_total{operation_type=pull_image}", "kubelet_run_podsandbox_errors_total{runtime_handler=kata}"} {
			if _, there := got[none]; there {
				t.Errorf("%s counts what did not fail", none)
			}
		}
		if took := sums["kubelet_runtime_operations_duration_seconds{operation_type=pull_image}"]; took != 6 {
			t.Errorf("two pulls of 3 s took %v s", took)
		}
	})
}

// helper answers for one registry and fails for another.
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
	records, err := record.New(record.Config{Root: dir, Policy: record.Policy{Verify: v1beta1.AlwaysVerify}, Registry: reg, Log: log, Now: time.Now,
		Images: func(ctx context.Context) ([]*runtimeapi.Image, error) { return nil, nil }})
	if err != nil {
		t.Fatal(err)
	}
	manager, err := image.New(image.Config{Runtime: client, Events: silent{}, OnChange: func(types.UID) {}, Sources: []image.Source{helpers}, Records: records,
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
		{Image: "there.other/a:1", Policy: v1.PullIfNotPresent}, // nobody has shown that it may have it
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
		"kubelet_image_pull_duration_seconds{image_size_in_bytes=0-10MB}":                                                      3,
		"kubelet_credential_provider_plugin_duration{plugin_name=helper}":                                                      2,
		"kubelet_credential_provider_plugin_errors_total{plugin_name=helper}":                                                  1,
		"kubelet_image_manager_ensure_image_requests_total{present_locally=false,pull_policy=ifnotpresent,pull_required=true}": 1,
		"kubelet_image_manager_ensure_image_requests_total{present_locally=true,pull_policy=ifnotpresent,pull_required=true}":  1,
		"kubelet_image_manager_ensure_image_requests_total{present_locally=unknown,pull_policy=always,pull_required=true}":     1,
		"kubelet_imagemanager_image_mustpull_checks_total{result=mustAuthenticate}":                                            1,
		"kubelet_imagemanager_ondisk_pullintents":                                                                              1,
		"kubelet_imagemanager_ondisk_pulledrecords":                                                                            3,
		"kubelet_imagemanager_inmemory_pullintents_usage_percent":                                                              0,
		"kubelet_imagemanager_inmemory_pulledrecords_usage_percent":                                                            0,
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
