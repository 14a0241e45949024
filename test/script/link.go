package script

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"keelson/internal/app"
)

// link has all connections of one agent process: to the runtime, to the API server
// and to sockets of the node. Once it is cut, the agent can neither send nor receive
// anything: for its peers it was killed at that moment.
type link struct {
	runtime func() grpc.ClientConnInterface // the connection now
	api     http.RoundTripper
	// after is called for every runtime call that has ended, before the agent gets the
	// answer. It may cut the link: then the agent never gets the answer.
	after func(method string)
	// cancelled is called for each call in lasting that the agent cancelled while it was not
	// ending.
	cancelled func(method string)
	ending    atomic.Bool // the agent is being stopped, and may cancel calls that hang
	held      atomic.Bool // nothing passes in either direction any more; the link is about to be cut

	ctx context.Context // ends when the link is cut
	cut context.CancelFunc
}

// lasting are the calls that must not be cancelled once they have begun: the runtime may leave
// behind what it was making.
var lasting = map[string]bool{
	"RunPodSandbox": true, "StopPodSandbox": true, "RemovePodSandbox": true, "CreateContainer": true,
	"StartContainer":  true,
	"RemoveContainer": true, "UpdateContainerResources": true, "UpdatePodSandboxResources": true,
}

// panicCode makes a request to the API server panic in the agent that gets an answer with this code. A runtime call
// panics if its error begins with "panic: ".
const panicCode = 599

var errCut = errors.New("the agent was killed")

func newLink(runtime func() grpc.ClientConnInterface, api http.RoundTripper) *link {
	l := &link{runtime: runtime, api: api, after: func(string) {}, cancelled: func(string) {}}
	l.ctx, l.cut = context.WithCancel(context.Background())
	return l
}

// hold blocks all traffic in both directions until the link is cut, so that no peer can depend on a file that the
// agent writes meanwhile.
func (l *link) hold() { l.held.Store(true) }

// pass waits while the link is held.
func (l *link) pass() {
	if l.held.Load() {
		<-l.ctx.Done()
	}
}

// Invoke makes a runtime call.
func (l *link) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	agents := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	l.pass()
	if l.ctx.Err() == nil {
		err := l.runtime().Invoke(ctx, method, args, reply, opts...)
		name := path.Base(method)
		if err != nil && lasting[name] && errors.Is(agents.Err(), context.Canceled) && l.ctx.Err() == nil &&
			!l.ending.Load() {
			l.cancelled(name)
		}
		l.after(method)
		l.pass()
		if what, ok := strings.CutPrefix(status.Convert(err).Message(), "panic: "); ok {
			panic(what)
		}
		if l.ctx.Err() == nil {
			return err
		}
	}
	return status.Error(codes.Unavailable, errCut.Error())
}

// NewStream opens a stream from the runtime; it breaks when the link is cut.
func (l *link) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	l.pass()
	if l.ctx.Err() != nil {
		return nil, status.Error(codes.Unavailable, errCut.Error())
	}
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(l.ctx, cancel)
	s, err := l.runtime().NewStream(ctx, desc, method, opts...)
	if err != nil {
		cancel()
	}
	return s, err
}

// sockets are the sockets of the node, as long as the link lasts.
func (l *link) sockets(s *sockets) *app.Sockets {
	return &app.Sockets{
		Listen: func(path string) (net.Listener, error) {
			if l.ctx.Err() != nil {
				return nil, errCut
			}
			at, err := s.Listen(path)
			return listener{at, l}, err
		},
		Dial: func(ctx context.Context, path string) (net.Conn, error) {
			if l.ctx.Err() != nil {
				return nil, errCut
			}
			inner, err := s.Dial(ctx, path)
			if err != nil {
				return nil, err
			}
			context.AfterFunc(l.ctx, func() { inner.Close() })
			return conn{inner, l}, nil
		},
	}
}

// listener is a listener whose connections break when the link is cut, or at once if it is cut already.
type listener struct {
	net.Listener
	link *link
}

func (l listener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	context.AfterFunc(l.link.ctx, func() { inner.Close() })
	return conn{inner, l.link}, nil
}

// conn is a connection that is held and cut with the link.
type conn struct {
	net.Conn
	link *link
}

func (c conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.link.pass()
	if c.link.ctx.Err() != nil {
		return 0, errCut
	}
	return n, err
}

func (c conn) Write(p []byte) (int, error) {
	c.link.pass()
	if c.link.ctx.Err() != nil {
		return 0, errCut
	}
	return c.Conn.Write(p)
}

// RoundTrip makes a request to the API server.
func (l *link) RoundTrip(r *http.Request) (*http.Response, error) {
	l.pass()
	if l.ctx.Err() != nil {
		return nil, errCut
	}
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(l.ctx, cancel)
	resp, err := l.api.RoundTrip(r.WithContext(ctx))
	l.pass()
	if err != nil {
		stop()
		cancel()
		return nil, err
	}
	if resp.StatusCode == panicCode {
		resp.Body.Close()
		stop()
		cancel()
		panic("panic at " + r.Method + " " + r.URL.Path)
	}
	resp.Body = body{resp.Body, func() { stop(); cancel() }}
	return resp, nil
}

// body is the body of an answer, such as a watch. It ends when it is closed or the link is cut.
type body struct {
	io.ReadCloser
	end func()
}

func (b body) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// swap is a value that several goroutines read and one replaces.
type swap[T any] struct {
	mu    sync.Mutex
	value T
}

func (s *swap[T]) Get() T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value
}

func (s *swap[T]) set(v T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.value = v
}
