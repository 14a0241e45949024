package desired

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

func TestPodsByURL(t *testing.T) {
	parity.Proves(t, "SRC-05", "SRC-06")
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
	u := NewURL(URLConfig{URL: srv.URL, Header: http.Header{"X-Two": {"1", "2"}}, Period: time.Hour, Manifest: onNode1, Log: r.logger()})
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
		{name: "an error", code: 500, body: manifestText("a", "two"), err: "the server answered 500"},
		{name: "a list", code: 200, body: `{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"a"},"spec":{"containers":[{"name":"m","image":"two"}]}},{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"},"spec":{"containers":[{"name":"m","image":"three"}]}}]}`, changed: true, want: "a-node1=two b-node1=three"},
		{name: "an invalid one", code: 200, body: manifestText("a", `""`), err: "pod a-node1: invalid pod: spec.containers[0].image: Required value"},
		{name: "too much", code: 200, body: strings.Repeat("#", maxManifest+1), err: "larger than 10 MiB"},
		{name: "nothing", code: 200, body: "", changed: true, want: ""},
	} {
		code, body = step.code, step.body
		pods, changed, err := u.ask(t.Context())
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

	// Failures are loud at first, then quiet.
	for range 6 {
		u.failed(http.ErrHandlerTimeout)
	}
	if loud, quiet := r.logged("level=INFO"), r.logged("level=DEBUG"); loud != 3 || quiet != 3 {
		t.Errorf("%d loud and %d quiet lines", loud, quiet)
	}
}

func TestURLRecoveryIsSaidOnce(t *testing.T) {
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
	if n := r.logged("read manifests from the URL again"); n != 1 {
		t.Errorf("said %d times", n)
	}
}
