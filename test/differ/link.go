package differ

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
)

// link is a side's connection to the API server. When it is cut, open connections are closed, and
// new ones fail until it is mended. The agent cannot reach the API server then; unlike with lost
// packets, its requests fail at once.
type link struct {
	url    string // where the agent finds the API server
	target string
	socket net.Listener

	mu    sync.Mutex
	isCut bool
	open  map[net.Conn]bool
}

// newLink listens at an address that the certificate of the API server covers, and forwards connections to the server.
func newLink(ctx context.Context, server string) (*link, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("make link: %w", err)
	}
	var config net.ListenConfig
	l := &link{target: u.Host, open: map[net.Conn]bool{}}
	if l.socket, err = config.Listen(ctx, "tcp", net.JoinHostPort(u.Hostname(), "0")); err != nil {
		return nil, fmt.Errorf("make link: %w", err)
	}
	u.Host = l.socket.Addr().String()
	l.url = u.String()
	go l.accept()
	return l, nil
}

func (l *link) accept() {
	for {
		c, err := l.socket.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			go l.carry(c)
		}
	}
}

// carry forwards data in both directions of a connection until one end closes it.
func (l *link) carry(c net.Conn) {
	defer c.Close()
	if !l.keep(c) {
		return
	}
	defer l.forget(c)
	s, err := net.Dial("tcp", l.target)
	if err != nil {
		return // the agent sees a closed connection
	}
	defer s.Close()
	if !l.keep(s) {
		return
	}
	defer l.forget(s)
	var ends sync.WaitGroup
	for _, way := range [][2]net.Conn{{c, s}, {s, c}} {
		ends.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // both ends are closed, also after an error
			way[0].Close()
			way[1].Close()
		})
	}
	ends.Wait()
}

// keep records a connection, unless the link is cut.
func (l *link) keep(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isCut {
		l.open[c] = true
	}
	return !l.isCut
}

func (l *link) forget(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = true
	for c := range l.open {
		c.Close()
	}
}

func (l *link) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = false
}

func (l *link) close() error {
	l.cut()
	return l.socket.Close()
}
