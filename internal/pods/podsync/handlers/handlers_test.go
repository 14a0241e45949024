package handlers

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"keelson/internal/api/watch"
	"keelson/internal/pods/pod"
	"keelson/internal/resources/userns"
	"keelson/internal/runtime/cri"
)

// node has handlers of three kinds, once the runtime has reported.
type node struct {
	reported chan struct{}
	handlers []cri.Handler
}

func (n node) RuntimeAnswered() <-chan struct{} { return n.reported }
func (n node) Runtime() cri.Status              { return cri.Status{Handlers: n.handlers} }

// classes are RuntimeClasses whose handlers have the names of the classes.
func classes(t *testing.T, names ...string) *watch.RuntimeClasses {
	t.Helper()
	events := apiwatch.NewFakeWithChanSize(len(names)+1, false)
	for _, name := range names {
		events.Add(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"}, Handler: name})
	}
	events.Action(apiwatch.Bookmark, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "1",
		Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}})
	out := watch.NewRuntimeClasses(&cache.ListWatch{
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (apiwatch.Interface, error) {
			return events, nil
		},
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return nil, errors.New("only watches are served")
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- out.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	synctest.Wait()
	return out
}

func of(uid types.UID, class string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}
	if class != "" {
		p.Spec.RuntimeClassName = &class
	}
	return p
}

func TestRecursiveReadOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := node{reported: make(chan struct{}), handlers: []cri.Handler{
			{Name: "", RecursiveReadOnlyMounts: true},
			{Name: "plain"},
		}}
		h := Handlers{Classes: classes(t, "plain", "unknown"), Node: n}
		able := map[string]bool{"": true, "plain": false, "unknown": false, "no-class": false}
		enabled := v1.RecursiveReadOnlyEnabled
		for class, want := range able {
			p := of("u", class)
			if got := h.RecursiveReadOnly(p); got != want {
				t.Errorf("a pod of class %q: %v, want %v", class, got, want)
			}
			if h.ShownRecursive(p) {
				t.Errorf("a pod of class %q without a status is shown as able before the runtime has reported", class)
			}
			shown := of("u", class)
			shown.Spec.Containers = []v1.Container{
				{Name: "c", VolumeMounts: []v1.VolumeMount{{MountPath: "/v", RecursiveReadOnly: &enabled}}},
			}
			shown.Status.ContainerStatuses = []v1.ContainerStatus{
				{Name: "c", VolumeMounts: []v1.VolumeMountStatus{{MountPath: "/v", RecursiveReadOnly: &enabled}}},
			}
			if !h.ShownRecursive(shown) {
				t.Errorf("a pod of class %q: its last status does not count before the runtime has reported", class)
			}
		}
		close(n.reported)
		for class, want := range able {
			if got := h.ShownRecursive(of("u", class)); got != want {
				t.Errorf("a pod of class %q is shown as %v once the runtime has reported, want %v", class, got, want)
			}
		}
	})
}

func TestUserNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		for _, uid := range []string{"first", "second"} {
			if err := os.Mkdir(filepath.Join(dir, uid), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		users, err := userns.New(userns.Config{
			PodsDir: dir,
			IDs:     userns.Range{First: 65536, Count: 65536}, // for one pod
			PerPod:  65536,
			Log:     slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		able := []cri.Handler{{Name: "", UserNamespaces: true}, {Name: "plain"}}
		const none = "can't set `spec.hostUsers: false`, "
		known := classes(t, "plain", "unknown")
		for _, tc := range []struct {
			name     string
			handlers []cri.Handler
			pod      *v1.Pod
			want     string // of the error
		}{
			{"the default handler can", able, of("first", ""), ""},
			{"again, for the same pod", able, of("first", ""), ""},
			{"no users are left", able, of("second", ""), "create user namespace: "},
			{"its handler cannot", able, of("first", "plain"),
				none + `RuntimeClass handler "plain" does not support user namespaces`},
			{"the runtime lacks its handler", able, of("first", "unknown"),
				none + `RuntimeClass handler "unknown" does not support user namespaces: the handler "unknown" is not known`},
			{"a runtime that reports no handlers", nil, of("first", "plain"),
				none + `RuntimeClass handler "plain" does not support user namespaces`},
			{"the default handler of such a runtime", nil, of("first", ""),
				none + "runtime does not support user namespaces"},
			{"there is no such class", able, of("first", "no-class"), `runtimeclass.node.k8s.io "no-class" not found`},
		} {
			h := Handlers{Classes: known, Node: node{handlers: tc.handlers}, Users: users}
			got, err := h.UserNamespace(tc.pod)
			switch {
			case tc.want == "" && (err != nil || len(got.GetUids()) != 1 || len(got.GetGids()) != 1 ||
				got.Uids[0].HostId != 65536 || got.Uids[0].ContainerId != 0 || got.Uids[0].Length != 65536):
				t.Errorf("%s: %v, %v", tc.name, got, err)
			case tc.want != "" && (err == nil || !begins(err, tc.want)):
				t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
			}
		}
	})
}

// begins compares whole messages, or only the beginning if want ends with a space, after which a cause follows.
func begins(err error, want string) bool {
	text := pod.TextOf(err)
	if want[len(want)-1] == ' ' {
		return len(text) > len(want) && text[:len(want)] == want
	}
	return text == want
}
