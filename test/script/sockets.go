package script

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/test/bufconn"
)

// sockets are the sockets of the node, in memory, by path. A new socket replaces an earlier
// one of the same path.
type sockets struct {
	made func(path string) // called when a socket was created

	mu sync.Mutex
	at map[string]*bufconn.Listener
}

func (s *sockets) Listen(path string) (net.Listener, error) {
	l := bufconn.Listen(1 << 16)
	s.mu.Lock()
	if s.at == nil {
		s.at = map[string]*bufconn.Listener{}
	}
	s.at[path] = l
	s.mu.Unlock()
	s.made(path)
	return l, nil
}

func (s *sockets) Dial(ctx context.Context, path string) (net.Conn, error) {
	s.mu.Lock()
	l := s.at[path]
	s.mu.Unlock()
	if l == nil { // the socket of a program outside of virtual time, or no socket
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
	return l.DialContext(ctx)
}
