package script

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
)

// counted counts the calls and requests that reach the runtime and the API server.
type counted struct{ calls, requests atomic.Int32 }

func (c *counted) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	c.calls.Add(1)
	return nil
}

func (c *counted) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	c.calls.Add(1)
	return nil, nil
}

func (c *counted) RoundTrip(*http.Request) (*http.Response, error) {
	c.requests.Add(1)
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// Between reading the files of an agent and cutting its link nothing may be sent: a request could depend on a file
// written after the read, and the next agent would not find that file.
func TestNothingPassesALinkThatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counted{}
		l := newLink(func() grpc.ClientConnInterface { return c }, c)
		if err := l.Invoke(t.Context(), "/runtime/StartContainer", nil, nil); err != nil || c.calls.Load() != 1 {
			t.Fatalf("%d calls, %v", c.calls.Load(), err)
		}
		l.hold()
		ended := make(chan error, 3)
		go func() { ended <- l.Invoke(t.Context(), "/runtime/StartContainer", nil, nil) }()
		go func() {
			_, err := l.NewStream(t.Context(), nil, "/runtime/GetContainerEvents")
			ended <- err
		}()
		go func() {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "http://api/pods/a/status", nil)
			if err != nil {
				t.Error(err)
				return
			}
			resp, err := l.RoundTrip(r)
			if err == nil {
				resp.Body.Close()
			}
			ended <- err
		}()
		synctest.Wait()
		if len(ended) > 0 || c.calls.Load() != 1 || c.requests.Load() != 0 {
			t.Errorf("%d ended; %d calls and %d requests passed the link", len(ended), c.calls.Load(),
				c.requests.Load())
		}
		l.cut()
		for range cap(ended) {
			if err := <-ended; err == nil {
				t.Error("a request passed the link after it was cut")
			}
		}
		if c.calls.Load() != 1 || c.requests.Load() != 0 {
			t.Errorf("%d calls and %d requests passed the link", c.calls.Load(), c.requests.Load())
		}
	})
}
