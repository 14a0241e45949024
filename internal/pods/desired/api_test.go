package desired

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

// server lists and watches as an API server does, without WatchList.
type server struct {
	mu    sync.Mutex
	list  []v1.Pod
	away  error
	watch *watch.FakeWatcher
	lists int
}

// becomes changes what the server returns from now on.
func (s *server) becomes(away error, list ...v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away, s.list = away, list
}

// watched is the present watch.
func (s *server) watched() *watch.FakeWatcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watch
}

func (s *server) listWatch() cache.ListerWatcher {
	return listWatcher{&cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.lists++
			if s.away != nil {
				return nil, s.away
			}
			return &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: s.list}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.away != nil {
				return nil, s.away
			}
			s.watch = watch.NewFake()
			return s.watch, nil
		},
	}}
}

// listWatcher makes the reflector list without WatchList.
type listWatcher struct{ *cache.ListWatch }

func (listWatcher) IsWatchListSemanticsUnSupported() bool { return true }

func apiStory(t *testing.T, s *server) (*Store, *recorder) {
	r := newRecorder()
	src := NewAPI(APIConfig{Pods: s.listWatch(), Log: r.logger()})
	return start(t, Config{
		NodeName: "node1",
		Sources:  []Source{src},
		Events:   r,
		OnChange: r.changed,
		Log:      r.logger(),
	}), r
}

func TestAPISource(t *testing.T) {
	parity.ProvesPart(t, 2, "SRC-01")
	synctest.Test(t, func(t *testing.T) {
		srv := &server{list: []v1.Pod{*apiPod("a", "1"), *mirrorPod("m", "2", "h")}}
		after := make(chan struct{})
		r := newRecorder()
		src := NewAPI(APIConfig{Pods: srv.listWatch(), After: after, Log: r.logger()})
		s := start(t, Config{
			NodeName: "node1",
			Sources:  []Source{src},
			Events:   r,
			OnChange: r.changed,
			Log:      r.logger(),
		})
		synctest.Wait()
		if srv.lists != 0 {
			t.Error("listed before the node was known")
		}
		close(after)
		<-s.ReadyC()
		synctest.Wait() // for the watch that follows the list
		if got := names(s.All()); got != "api/a" {
			t.Errorf("pods = %s", got)
		}
		b := apiPod("b", "3")
		b.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "other"}}
		srv.watched().Add(b)
		synctest.Wait()
		if got, _, ok := s.Get("3"); !ok || got.ManagedFields != nil {
			t.Errorf("a new pod: %v", ok)
		}
		// Deleted and created again between two events: one update.
		srv.watched().Modify(apiPod("b", "4"))
		synctest.Wait()
		if _, _, ok := s.Get("3"); ok || names(s.All()) != "api/a api/b" {
			t.Errorf("the pod of the old UID is still there: %s", names(s.All()))
		}
		srv.watched().Delete(apiPod("b", "4"))
		synctest.Wait()
		if got := names(s.All()); got != "api/a" {
			t.Errorf("after a removal: %s", got)
		}
	})
}

func TestWatchResumesAfterFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{list: []v1.Pod{*apiPod("a", "1")}}
		s, r := apiStory(t, srv)
		<-s.ReadyC()
		synctest.Wait()
		srv.becomes(errors.New("connection refused"))
		srv.watched().Stop()
		time.Sleep(10 * time.Minute)
		if got := names(s.All()); got != "api/a" {
			t.Errorf("while the server is away: %s", got)
		}
		if n := r.logged("failed to watch pods"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, r.log.String())
		}
		srv.becomes(nil, *apiPod("b", "2"))
		time.Sleep(2 * maxAPIRetry)
		if got := names(s.All()); got != "api/b" {
			t.Errorf("after it came back: %s", got)
		}
		if n := r.logged("resumed watching pods"); n != 1 {
			t.Errorf("the recovery is mentioned %d times", n)
		}

		srv.becomes(nil)
		srv.watched().Error(&apierrors.NewResourceExpired("too old").ErrStatus)
		time.Sleep(2 * maxAPIRetry)
		if got := names(s.All()); got != "" || r.logged("failed to watch pods") != 1 {
			t.Errorf("after the watch became too old: %s\n%s", got, r.log.String())
		}
	})
}

func TestAPISourceStopsWhileWaiting(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	src := NewAPI(APIConfig{After: make(chan struct{}), Log: newRecorder().logger()})
	if err := src.Run(ctx, nil); err != nil || src.Name() != pod.SourceAPI {
		t.Errorf("Run = %v", err)
	}
}
