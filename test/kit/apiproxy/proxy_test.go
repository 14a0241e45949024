package apiproxy_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"keelson/test/kit/apiproxy"
	"keelson/test/kit/fakeapi"
	"keelson/test/kit/memhttp"
)

// setup is a fake server, a proxy before it and a client that does not retry
// by itself more than client-go does.
func setup(t *testing.T) (*fakeapi.Server, *apiproxy.Proxy, kubernetes.Interface) {
	t.Helper()
	s := fakeapi.New()
	p := apiproxy.New(s)
	c, err := kubernetes.NewForConfig(&rest.Config{Host: "http://proxy", Transport: memhttp.Transport(p), QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return s, p, c
}

func create(t *testing.T, c kubernetes.Interface, name string) error {
	t.Helper()
	_, err := c.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "busybox"}}},
	}, metav1.CreateOptions{})
	return err
}

func TestCounts(t *testing.T) {
	_, p, c := setup(t)
	if err := create(t, c, "a"); err != nil {
		t.Fatal(err)
	}
	pods := c.CoreV1().Pods("default")
	for range 2 {
		if _, err := pods.Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pods.List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Patch(t.Context(), "a", "application/merge-patch+json", []byte(`{"status":{"phase":"Running"}}`),
		metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	w, err := pods.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
	want := "     2 get pods\n     1 create pods\n     1 list pods\n     1 patch pods/status\n     1 watch pods\n"
	if got := p.Summary(); got != want {
		t.Errorf("counts\n%swant\n%s", got, want)
	}
	log := p.Requests()
	if len(log) != 6 || log[0].Namespace != "default" || log[0].Code != http.StatusCreated || log[4].Name != "a" ||
		log[4].End.Before(log[4].Start) {
		t.Errorf("log %+v", log)
	}
	p.Reset()
	if len(p.Counts()) != 0 {
		t.Error("reset did not forget")
	}
}

func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p, c := setup(t)
		p.Inject(apiproxy.Fault{Verb: "create", Resource: "pods", Times: 1, Code: 409})
		if err := create(t, c, "a"); !apierrors.IsConflict(err) || s.Pod("default", "a") != nil {
			t.Errorf("a conflict: %v", err)
		}

		// client-go waits as long as Retry-After says, and comes again.
		busy := p.Inject(apiproxy.Fault{Verb: "create", Times: 2, Code: 429, RetryAfter: 3 * time.Second})
		begin := time.Now()
		if err := create(t, c, "a"); err != nil || time.Since(begin) != 6*time.Second || busy.Hits() != 2 {
			t.Errorf("%v after %v and %d refusals", err, time.Since(begin), busy.Hits())
		}

		p.Inject(apiproxy.Fault{Resource: "pods", Name: "a", Times: 1, Skip: 1, Delay: time.Minute})
		for _, want := range []time.Duration{0, time.Minute, 0} {
			begin := time.Now()
			if _, err := c.CoreV1().Pods("default").Get(t.Context(), "a", metav1.GetOptions{}); err != nil ||
				time.Since(begin) != want {
				t.Errorf("%v after %v, want %v", err, time.Since(begin), want)
			}
		}

		// A write whose answer is lost has happened.
		p.Inject(apiproxy.Fault{Verb: "create", Times: 1, After: true, Drop: true})
		if err := create(t, c, "b"); err == nil || s.Pod("default", "b") == nil {
			t.Errorf("a lost answer: %v", err)
		}
		p.Inject(apiproxy.Fault{Verb: "create", Times: 1, After: true, Delay: time.Second})
		begin = time.Now()
		if err := create(t, c, "c"); err != nil || time.Since(begin) != time.Second {
			t.Errorf("a late answer: %v after %v", err, time.Since(begin))
		}

		hang := p.Inject(apiproxy.Fault{Verb: "list", Hang: true})
		done := make(chan error, 1)
		go func() {
			_, err := c.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
			done <- err
		}()
		<-hang.Hit()
		hang.Release()
		if err := <-done; err != nil {
			t.Errorf("a request that was let go: %v", err)
		}
	})
}

func TestPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p, c := setup(t)
		local := s.Client() // on the server's side of the partition
		w, err := c.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		expect := func(name string) {
			t.Helper()
			e := <-w.ResultChan()
			if q, ok := e.Object.(*corev1.Pod); !ok || e.Type != watch.Added || q.Name != name {
				t.Fatalf("event %+v, want %s", e, name)
			}
		}
		if err := create(t, local, "a"); err != nil {
			t.Fatal(err)
		}
		expect("a")

		p.SetLink(apiproxy.Hang)
		if err := create(t, local, "b"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case e := <-w.ResultChan():
			t.Fatalf("%+v came through a link that hangs", e)
		default:
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := c.CoreV1().Pods("default").Get(ctx, "a", metav1.GetOptions{}); err == nil || ctx.Err() == nil {
			t.Errorf("a request over a link that hangs: %v", err)
		}
		p.SetLink(apiproxy.Up)
		expect("b")

		p.SetLink(apiproxy.Drop)
		if err := create(t, local, "c"); err != nil {
			t.Fatal(err)
		}
		if e, more := <-w.ResultChan(); more {
			t.Errorf("a dropped watch delivers %+v", e)
		}
		if err := create(t, c, "d"); err == nil || !strings.Contains(err.Error(), "EOF") {
			t.Errorf("a request over a dropped link: %v", err)
		}
		p.SetLink(apiproxy.Up)
		if err := create(t, c, "d"); err != nil {
			t.Errorf("after the partition: %v", err)
		}
	})
}

func TestBreakWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p, c := setup(t)
		w, err := c.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		p.BreakWatches()
		if e, more := <-w.ResultChan(); more {
			t.Errorf("a broken watch delivers %+v", e)
		}
		synctest.Wait()
		if s.Watches("pods") != 0 {
			t.Error("the server still has the watch")
		}
	})
}

// TestReverse goes over real connections to a server elsewhere.
func TestReverse(t *testing.T) {
	s := fakeapi.New()
	upstream := httptest.NewServer(s)
	defer upstream.Close()
	defer s.CloseWatches()
	target, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := apiproxy.New(apiproxy.Reverse(target, nil))
	front := httptest.NewServer(p)
	defer front.Close()
	c, err := kubernetes.NewForConfig(&rest.Config{Host: front.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := create(t, c, "a"); err != nil {
		t.Fatal(err)
	}
	if e := <-w.ResultChan(); e.Type != watch.Added {
		t.Errorf("event %+v", e)
	}
	p.BreakWatches()
	if e, more := <-w.ResultChan(); more {
		t.Errorf("a broken watch delivers %+v", e)
	}
	p.SetLink(apiproxy.Drop)
	if err := create(t, c, "b"); err == nil {
		t.Error("a request over a dropped link succeeds")
	}
}
