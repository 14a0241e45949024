package desired

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

func TestURLSource(t *testing.T) {
	parity.ProvesPart(t, 2, "SRC-05")
	parity.ProvesPart(t, 2, "SRC-06")
	var code int
	var body string
	var header http.Header
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header = r.Header
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}))
	defer srv.Close()
	r := newRecorder()
	u := NewURL(URLConfig{
		URL:      srv.URL,
		Header:   http.Header{"X-Two": {"1", "2"}},
		Period:   time.Hour,
		Manifest: onNode1,
		Log:      r.logger(),
	})
	if u.client.Timeout != 10*time.Second || u.Name() != pod.SourceHTTP {
		t.Errorf("timeout %v", u.client.Timeout)
	}
	for _, step := range []struct {
		name, body string
		code       int
		changed    bool
		want, err  string
	}{
		{name: "one pod", code: 200, body: manifestText("a", "one"), changed: true, want: "a-node1=one"},
		{name: "the same again", code: 200, body: manifestText("a", "one")},
		{name: "an error", code: 500, body: manifestText("a", "two"), err: "server responded with 500"},
		{
			name:    "a list",
			code:    200,
			body:    `{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"a"},"spec":{"containers":[{"name":"m","image":"two"}]}},{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"},"spec":{"containers":[{"name":"m","image":"three"}]}}]}`,
			changed: true,
			want:    "a-node1=two b-node1=three",
		},
		{
			name: "an invalid one",
			code: 200,
			body: manifestText("a", `""`),
			err:  "pod a-node1: invalid pod: spec.containers[0].image: Required value",
		},
		{name: "too much", code: 200, body: strings.Repeat("#", 10<<20+1), err: "larger than 10 MiB"},
		{name: "nothing", code: 200, body: "", changed: true, want: ""},
	} {
		code, body = step.code, step.body
		pods, changed, err := u.fetch(t.Context())
		if step.err != "" {
			if err == nil || !strings.Contains(err.Error(), step.err) {
				t.Errorf("%s: %v", step.name, err)
			}
			continue
		}
		if err != nil || changed != step.changed || images(pods) != step.want {
			t.Errorf("%s: %s changed %v, %v", step.name, images(pods), changed, err)
		}
		if len(header["X-Two"]) != 2 {
			t.Errorf("headers = %v", header)
		}
	}

	// The first failures are logged at level INFO, later ones at DEBUG.
	for range 6 {
		u.failed(http.ErrHandlerTimeout)
	}
	if loud, quiet := r.logged("level=INFO"), r.logged("level=DEBUG"); loud != 4 || quiet != 2 {
		t.Errorf("%d loud and %d quiet lines", loud, quiet)
	}
}

func TestURLRecoveryIsLoggedOnce(t *testing.T) {
	parity.ProvesPart(t, 2, "SRC-06")
	parity.ProvesPart(t, 3, "SRC-08")
	up := make(chan bool, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !<-up {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, manifestText("a", "one"))
	}))
	defer srv.Close()
	r := newRecorder()
	src := NewURL(URLConfig{URL: srv.URL, Period: time.Millisecond, Manifest: onNode1, Log: r.logger()})
	s := start(t, Config{NodeName: "node1", Sources: []Source{src}, Events: r, OnChange: r.changed, Log: r.logger()})
	up <- false
	up <- false
	up <- true
	<-s.ReadyC()
	close(up) // refused from here on
	eventually(t, s, r, "a-node1=one")
	if p, ok := s.ByName("default", "a-node1"); !ok || p.Spec.Annotations["kubernetes.io/config.source"] != "http" ||
		p.Spec.Annotations["kubernetes.io/config.hash"] != string(p.Spec.UID) ||
		p.Spec.Annotations["kubernetes.io/config.seen"] == "" {
		t.Errorf("the pod is %+v", p)
	}
	if n := r.logged("read manifests from URL again"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

// The URL is requested once in a period. An error leaves the pods as they are and the source not ready; an empty
// response means that there are none.
func TestURLResponses(t *testing.T) {
	parity.ProvesPart(t, 2, "SRC-05")
	answers := []struct {
		code int
		body string
		sets []string // that were delivered by then
	}{
		{500, "", nil},
		{404, manifestText("a", "one"), nil},
		{200, manifestText("a", "one"), []string{"a-node1=one"}},
		{200, manifestText("a", "one"), []string{"a-node1=one"}},
		{503, "", []string{"a-node1=one"}},
		{200, "", []string{"a-node1=one", ""}},
		{200, manifestText("a", "two"), []string{"a-node1=one", "", "a-node1=two"}},
	}
	synctest.Test(t, func(t *testing.T) {
		asked, to := 0, &taken{}
		src := NewURL(URLConfig{
			URL:      "http://manifests",
			Period:   20 * time.Second,
			Manifest: onNode1,
			Log:      newRecorder().logger(),
		})
		src.client.Transport = roundTrip(func(*http.Request) (*http.Response, error) {
			a := answers[min(asked, len(answers)-1)]
			asked++
			return &http.Response{
				StatusCode: a.code,
				Status:     fmt.Sprint(a.code),
				Body:       io.NopCloser(strings.NewReader(a.body)),
			}, nil
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- src.Run(ctx, to) }()
		for i, a := range answers {
			synctest.Wait()
			if asked != i+1 || !slices.Equal(to.sets, a.sets) {
				t.Errorf("after %v: asked %d times, delivered %q, want %d and %q",
					time.Duration(i)*20*time.Second, asked, to.sets, i+1, a.sets)
			}
			time.Sleep(20 * time.Second)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// roundTrip answers requests.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
