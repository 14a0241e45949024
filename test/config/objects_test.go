package config

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/app"
	"keelson/test/kit/parity"
	"keelson/test/script"
)

// shows waits until a file of a pod has a text, and returns how long that took.
func shows(t *testing.T, r *script.Run, pod, file, text string, limit time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	for {
		if got := r.Must(t, "read", pod, "main", file); strings.TrimSpace(got) == text {
			return time.Since(began)
		}
		if time.Since(began) > limit {
			t.Fatalf("%s of %s is not %q within %v", file, pod, text, limit)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// staleness returns how long a change takes to reach the file of a running pod. If the object is read periodically,
// the change is made right after a read.
func staleness(t *testing.T, r *script.Run, limit time.Duration) time.Duration {
	t.Helper()
	conf := func(v string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf}\ndata: {k: " + v + "}\n"
	}
	r.Scenario.Files["conf.yaml"] = conf("one")
	r.Must(t, "put", "conf.yaml")
	r.Pod(t,
		"web", "spec: {containers: [{name: main, volumeMounts: [{name: c, mountPath: /c}]}], volumes: [{name: c, configMap: {name: conf}}]}\n")
	r.Must(t, "wait", "web", "Ready")
	time.Sleep(time.Minute)
	if reads := len(r.Asked("get", "configmaps")); reads > 0 {
		for began := time.Now(); len(r.Asked("get", "configmaps")) == reads; time.Sleep(100 * time.Millisecond) {
			if time.Since(began) > limit {
				t.Fatalf("not read again within %v", limit)
			}
		}
	}
	r.Scenario.Files["conf.yaml"] = conf("two")
	r.Must(t, "put", "conf.yaml")
	return shows(t, r, "web", "/c/k", "two", limit)
}

// TestObjectsAreFollowedAsConfigured: objects are watched, or read again once per syncFrequency. With Cache they are
// read at most once per TTL of the node's annotation.
func TestObjectsAreFollowedAsConfigured(t *testing.T) {
	parity.Proves(t, "CFG-82")
	parity.ProvesPart(t, 4, "NODE-07")
	const strategy = "configMapAndSecretChangeDetectionStrategy: "
	for _, tc := range []struct {
		config      string
		ttl         string // of the node's annotation
		least, most time.Duration
		watches     bool
	}{
		{"", "", 0, time.Second, true},
		{strategy + "Watch\nsyncFrequency: 10m\n", "", 0, time.Second, true},
		{strategy + "Get\nsyncFrequency: 20s\n", "", 15 * time.Second, 21 * time.Second, false},
		{strategy + "Get\nsyncFrequency: 2m\n", "300", 100 * time.Second, 121 * time.Second, false},
		{strategy + "Cache\nsyncFrequency: 20s\n", "", 50 * time.Second, 61 * time.Second, false},
		{strategy + "Cache\nsyncFrequency: 20s\n", "0", 15 * time.Second, 21 * time.Second, false},
		{strategy + "Cache\nsyncFrequency: 20s\n", "300", 250 * time.Second, 301 * time.Second, false},
		{strategy + "Cache\nsyncFrequency: 2m\n", "0", 100 * time.Second, 121 * time.Second, false},
	} {
		script.Settled(t, tc.config, nil, func(t *testing.T, r *script.Run) {
			if tc.ttl != "" {
				patch := fmt.Sprintf(`{"metadata":{"annotations":{"node.alpha.kubernetes.io/ttl":%q}}}`, tc.ttl)
				if _, err := r.API.CoreV1().Nodes().Patch(t.Context(), script.Node, types.MergePatchType, []byte(patch),
					metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
			}
			if took := staleness(t, r, 10*time.Minute); took < tc.least || took > tc.most {
				t.Errorf("%q, ttl %q: a change took %v, want %v to %v", tc.config, tc.ttl, took, tc.least, tc.most)
			}
			if n := len(r.Asked("watch", "configmaps")); (n > 0) != tc.watches {
				t.Errorf("%q: %d watches", tc.config, n)
			}
		})
	}
	if got := wrongly(t, strategy+"Sometimes\n"); !strings.Contains(got,
		`configMapAndSecretChangeDetectionStrategy: "Sometimes" must be one of Get, Cache, Watch`) {
		t.Error(got)
	}
}

// stalling is a log handler that blocks on one message until hold is closed.
type stalling struct {
	slog.Handler
	line string
	hold chan struct{}
}

func (h stalling) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == h.line {
		<-h.hold
	}
	return h.Handler.Handle(ctx, r)
}

func (h stalling) WithAttrs(a []slog.Attr) slog.Handler {
	return stalling{h.Handler.WithAttrs(a), h.line, h.hold}
}

func (h stalling) WithGroup(name string) slog.Handler {
	return stalling{h.Handler.WithGroup(name), h.line, h.hold}
}

// unwellAfter blocks a sync of a pod and returns how much later the agent notifies the watchdog for the last time.
func unwellAfter(t *testing.T, configuration string) (last time.Duration) {
	t.Helper()
	t.Setenv("WATCHDOG_USEC", "20000000")
	var hold chan struct{}
	var hangup chan os.Signal
	var mu sync.Mutex
	var sign time.Time
	script.Settled(t, configuration, func(w *script.World) {
		hold, hangup = make(chan struct{}), make(chan os.Signal) // of the bubble
		w.Wrap = func(h slog.Handler) slog.Handler { return stalling{h, "pod is terminating", hold} }
		w.Operator = app.Operator{Hangup: hangup, Load: w.Settings, Notify: func(state string) (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			if state == "WATCHDOG=1" {
				sign = time.Now()
			}
			return true, nil
		}}
	}, func(t *testing.T, r *script.Run) {
		r.Pod(t, "web", script.PlainPod)
		r.Must(t, "wait", "web", "Ready")
		r.Must(t, "delete", "web")
		synctest.Wait()
		hung := time.Now()
		for range 60 {
			hangup <- os.Interrupt // the agent logs each: the log accepts other messages
			time.Sleep(30 * time.Second)
		}
		mu.Lock()
		last = sign.Sub(hung)
		mu.Unlock()
		close(hold)
		time.Sleep(3 * time.Minute) // the agent checks again after a fifth of the limit
		mu.Lock()
		defer mu.Unlock()
		if time.Since(sign) > 20*time.Second {
			t.Errorf("%q: no sign of life once the turn has ended", configuration)
		}
	})
	return last
}
