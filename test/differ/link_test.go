package differ

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestLinkIsCutAndMended checks a watch that is open when the link is cut, and requests while the link is cut
// and after it is mended.
func TestLinkIsCutAndMended(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		if r.URL.Path == "/watch" {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}))
	t.Cleanup(srv.Close)
	l, err := newLink(t.Context(), srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func(path string) (*http.Response, error) { return client.Get(l.url + path) }
	watch, err := ask("/watch")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	l.cut()
	if _, err := io.Copy(io.Discard, watch.Body); err == nil {
		t.Error("a watch ends without an error when the link is cut")
	} else if e, ok := err.(net.Error); ok && e.Timeout() {
		t.Errorf("a watch goes on when the link is cut: %v", err)
	}
	if res, err := ask("/"); err == nil {
		res.Body.Close()
		t.Error("a request is answered while the link is cut")
	}
	l.mend()
	res, err := ask("/")
	if err != nil {
		t.Fatalf("after the link is mended: %v", err)
	}
	res.Body.Close()
	if err := l.close(); err != nil {
		t.Error(err)
	}
}
