package desired

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/manifest"
	"keelson/internal/pods/pod"
	"keelson/test/kit/eventlog"
)

// recorder keeps events, changes and log lines.
type recorder struct {
	eventlog.Log
	mu      sync.Mutex
	changes []types.UID
	log     strings.Builder
	woken   chan struct{}
}

func newRecorder() *recorder { return &recorder{woken: make(chan struct{}, 1)} }

func (r *recorder) changed(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = append(r.changes, uid)
	select {
	case r.woken <- struct{}{}:
	default:
	}
}

func (r *recorder) takeChanges() []types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.changes
	r.changes = nil
	return out
}

func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(b)
}

func (r *recorder) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (r *recorder) logged(s string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Count(r.log.String(), s)
}

// script is a source that delivers the pods of a test.
type script struct {
	name pod.Source
	do   chan func(Sink)
}

func newScript(name pod.Source) *script { return &script{name, make(chan func(Sink))} }

func (s *script) Name() pod.Source { return s.name }

func (s *script) Run(ctx context.Context, to Sink) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case f := <-s.do:
			f(to)
		}
	}
}

// deliver returns when the store has it.
func (s *script) deliver(f func(Sink)) {
	done := make(chan struct{})
	s.do <- func(to Sink) { f(to); close(done) }
	<-done
}

func (s *script) replace(pods ...*v1.Pod) { s.deliver(func(to Sink) { to.Replace(pods) }) }

// apiPod is a pod as the API server has it.
func apiPod(name string, uid types.UID) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: uid},
		Spec:       v1.PodSpec{NodeName: "node1", Containers: []v1.Container{{Name: "main", Image: "busybox"}}},
	}
}

// staticPod is a pod as a file source delivers it.
func staticPod(name string, uid types.UID) *v1.Pod {
	p := apiPod(name, uid)
	p.Annotations = map[string]string{pod.AnnotationConfigHash: string(uid)}
	return p
}

func mirrorPod(name string, uid types.UID, hash string) *v1.Pod {
	p := apiPod(name, uid)
	p.Annotations = map[string]string{
		pod.AnnotationConfigHash:   hash,
		pod.AnnotationConfigMirror: hash,
		pod.AnnotationConfigSource: "file",
	}
	return p
}

// start runs a store for the length of the test.
func start(t *testing.T, cfg Config) *Store {
	t.Helper()
	s := New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	return s
}

func names(pods []Pod) string {
	var out []string
	for _, p := range pods {
		out = append(out, fmt.Sprintf("%s/%s", p.Source, p.Spec.Name))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

var onNode1 = manifest.Compiler{NodeName: "node1"}
