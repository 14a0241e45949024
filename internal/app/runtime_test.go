package app

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/internal/api/node"
	"keelson/internal/config"
	"keelson/internal/host/machine"
	"keelson/test/kit/eventlog"
	"keelson/test/kit/fakecri"
	"keelson/test/kit/parity"
)

// onFake runs f in virtual time with the ground of an agent over a fake runtime.
func onFake(
	t *testing.T, opts fakecri.Options, f func(t *testing.T, g *ground, runtime *fakecri.Runtime, logged *bytes.Buffer),
) {
	t.Helper()
	file := t.TempDir() + "/config.yaml"
	yaml := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupDriver: systemd\nfailCgroupV1: false\n"
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load([]string{"--config=" + file, "--kubeconfig=in-memory"})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		runtime := fakecri.New(opts)
		defer runtime.Close()
		conn, err := runtime.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		logged := &bytes.Buffer{}
		g := &ground{
			cfg:     cfg,
			log:     slog.New(slog.NewTextHandler(logged, nil)),
			links:   Links{Runtime: conn},
			metrics: prometheus.NewRegistry(),
			workers: &workers{},
		}
		f(t, g, runtime, logged)
	})
}

// value is what a registry shows under a name, with the labels.
func value(t *testing.T, r *prometheus.Registry, name string) (labels string, v float64, ok bool) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetLabel()[0].String(), m.GetGauge().GetValue(), true
		}
	}
	return "", 0, false
}

func TestRuntimeConfigAndVersion(t *testing.T) {
	parity.Proves(t, "RT-02")
	parity.Proves(t, "RES-05")
	parity.ProvesPart(t, 3, "RES-04")
	parents := map[string]string{
		"cgroupfs": "/kubepods/besteffort/podu-1",
		"systemd":  "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu_1.slice",
	}
	for name, tc := range map[string]struct {
		opts   fakecri.Options
		fails  int
		driver string // of the cgroups that the agent makes
		ageing bool
		took   time.Duration
		broken bool
	}{
		"its cgroup driver counts":        {driver: "cgroupfs"},
		"even if it is not there at once": {fails: 2, driver: "cgroupfs", took: 4 * time.Second},
		"three failures are an error":     {fails: 3, took: 4 * time.Second, broken: true},
		"without one the configuration counts": {
			opts:   fakecri.Options{NoRuntimeConfig: true},
			driver: "systemd",
			ageing: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			onFake(t, tc.opts, func(t *testing.T, g *ground, runtime *fakecri.Runtime, _ *bytes.Buffer) {
				if tc.fails > 0 {
					runtime.Inject(fakecri.Fault{Method: "RuntimeConfig", Code: codes.Unavailable, Times: tc.fails})
				}
				start := time.Now()
				r, err := newRuntimes(t.Context(), g, &host{})
				if took := time.Since(start); (err != nil) != tc.broken || took != tc.took {
					t.Fatalf("built with %v after %v, want an error: %v after %v", err, took, tc.broken, tc.took)
				}
				if tc.broken {
					return
				}
				path := r.cgroupParent(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u-1"}})
				if want := parents[tc.driver]; path != want {
					t.Errorf("a pod's cgroup is %s, want %s", path, want)
				}
				labels, v, ok := value(t, g.metrics, "kubelet_cri_losing_support")
				if ok != tc.ageing ||
					ok && (v != 1 || !strings.Contains(labels, `"version"`) || !strings.Contains(labels, `"1.37.0"`)) {
					t.Errorf("kubelet_cri_losing_support{%s} = %v, %v; want it: %v", labels, v, ok, tc.ageing)
				}
			})
		})
	}
	t.Run("its version is asked for once a minute", func(t *testing.T) {
		onFake(t, fakecri.Options{}, func(t *testing.T, g *ground, runtime *fakecri.Runtime, _ *bytes.Buffer) {
			_, stop := runNode(t, g)
			defer stop()
			time.Sleep(10 * time.Second)
			before := runtime.Usage()["Version"].Calls
			time.Sleep(10 * time.Minute)
			if n := runtime.Usage()["Version"].Calls - before; n < 8 || n > 10 {
				t.Errorf("asked %d times in ten minutes", n)
			}
		})
	})
}

// runNode runs the node of a standalone agent, which watches the runtime.
func runNode(t *testing.T, g *ground) (n *node.Node, stop func()) {
	t.Helper()
	r, err := newRuntimes(t.Context(), g, &host{})
	if err != nil {
		t.Fatal(err)
	}
	n, err = node.New(node.Config{
		Identity: node.Identity{Name: "n", Hostname: "n"},
		Runtime:  r.client,
		Events:   eventlog.Discard{},
		Log:      g.log,
		Size: node.Size{
			Machine: machine.Info{CPUs: 1, Memory: 1 << 30},
			RootFS:  machine.Host(),
			RootDir: t.TempDir(),
			MaxPods: 110,
		},
		Intervals: node.Intervals{
			UpdateEvery:   10 * time.Second,
			ReportEvery:   5 * time.Minute,
			LeaseDuration: 40 * time.Second,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- n.Run(ctx) }()
	return n, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestContainerLoopsStartWhenRuntimeIsReady(t *testing.T) {
	parity.Differs(t, "RT-04", "0035")
	onFake(t, fakecri.Options{}, func(t *testing.T, g *ground, runtime *fakecri.Runtime, _ *bytes.Buffer) {
		runtime.SetCondition("RuntimeReady", false, "starting", "")
		n, stop := runNode(t, g)
		defer stop()
		var started atomic.Bool
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go once(func(context.Context) error { started.Store(true); return nil }, n.RuntimeUp())(ctx)
		time.Sleep(time.Minute)
		if started.Load() {
			t.Error("it was started beside a runtime that says it is not well")
		}
		runtime.SetCondition("RuntimeReady", true, "", "")
		time.Sleep(5 * time.Second)
		if !started.Load() {
			t.Error("it was not started when the runtime was well")
		}
	})
}
