package server

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"keelson/test/kit/parity"
)

// Whatever path the mux matches, an area only serves paths that were authorized with its own rights.
func TestRoutingMatchesAuthorization(t *testing.T) {
	pods, _ := areaOf("/pods")
	h := checkArea(pods, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	for path, want := range map[string]int{
		"/pods":            200,
		"/pods/":           200,
		"/metrics":         404,
		"/podsx":           404,
		"//pods":           404,
		"pods":             404,
		"":                 404,
		"/metrics/../pods": 404,
		"/pods/../configz": 404,
		"/pods/..":         404,
	} {
		w := httptest.NewRecorder()
		h(w, &http.Request{URL: &url.URL{Path: path}})
		if w.Code != want {
			t.Errorf("%q: %d, want %d", path, w.Code, want)
		}
	}
}

func TestOpenStreamLimit(t *testing.T) {
	s, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	hold := make(chan struct{})
	var begun, held sync.WaitGroup
	h := s.limitStreams(func(http.ResponseWriter, *http.Request) { begun.Done(); <-hold })
	begun.Add(maxStreams)
	for range maxStreams {
		held.Go(func() { h(httptest.NewRecorder(), nil) })
	}
	begun.Wait()
	w := httptest.NewRecorder()
	if h(w, nil); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("one more: %d, want 429", w.Code)
	}
	close(hold)
	held.Wait()
	begun.Add(1)
	w = httptest.NewRecorder()
	h(w, nil)
	if w.Code != http.StatusOK {
		t.Errorf("after the others have ended: %d", w.Code)
	}
}

func TestRuntimeErrorStatus(t *testing.T) {
	parity.ProvesPart(t, 4, "SRV-24")
	for want, err := range map[int]error{
		http.StatusNotFound: status.Error(codes.NotFound, "no such sandbox"),
		http.StatusTooManyRequests: status.Error(codes.ResourceExhausted,
			"maximum number of in-flight requests exceeded"),
		http.StatusInternalServerError: errors.New("container not found (\"main\")"),
	} {
		w := httptest.NewRecorder()
		writeRuntimeError(w, err)
		if w.Code != want || w.Body.String() != err.Error() ||
			(w.Header().Get("Retry-After") != "") != (want == http.StatusTooManyRequests) {
			t.Errorf("%v: %d %q %v, want %d", err, w.Code, w.Body, w.Header(), want)
		}
	}
}
