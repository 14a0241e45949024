package logind

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// Session is a connection to the login manager.
type Session struct {
	conn  *dbus.Conn
	heard chan bool
	done  sync.WaitGroup
	late  sync.WaitGroup // locks that were given up before they were granted
	end   context.CancelFunc
}

// Dial connects, and listens from then on.
func Dial(ctx context.Context) (*Session, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	// The context is that of the connection's whole life. A bus that takes the connection
	// and says nothing is waited for as long as for an answer.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	waiting := context.AfterFunc(ctx, end)
	conn, err := dbus.ConnectSystemBus(dbus.WithContext(life), dbus.WithSignalHandler(dbus.NewSequentialSignalHandler()))
	if !waiting() {
		if err == nil {
			_ = conn.Close() // its life is over
		}
		err = ctx.Err()
	}
	if err != nil {
		end()
		return nil, fmt.Errorf("connect to the system bus: %w", err)
	}
	s := &Session{conn: conn, heard: make(chan bool), end: end}
	signals := make(chan *dbus.Signal)
	conn.Signal(signals)
	s.done.Go(func() { s.listen(life, signals) })
	if err := conn.AddMatchSignalContext(ctx, dbus.WithMatchInterface(loginFace), dbus.WithMatchMember("PrepareForShutdown"), dbus.WithMatchObjectPath(loginPath)); err != nil {
		s.Close()
		return nil, fmt.Errorf("listen for shutdowns: %w", err)
	}
	return s, nil
}

// listen hands on what the login manager announces, in its order, until the
// connection is lost.
func (s *Session) listen(life context.Context, signals <-chan *dbus.Signal) {
	defer close(s.heard)
	for {
		select {
		case <-life.Done():
			return
		case sig, ok := <-signals:
			if !ok {
				return
			}
			if sig.Name != loginFace+".PrepareForShutdown" || len(sig.Body) != 1 {
				continue
			}
			leaving, ok := sig.Body[0].(bool)
			if !ok {
				continue
			}
			select {
			case <-life.Done():
				return
			case s.heard <- leaving:
			}
		}
	}
}

// Announcements say true when the machine begins to shut down, and false when that
// is called off. The channel is closed when the connection is lost.
func (s *Session) Announcements() <-chan bool { return s.heard }

// Close ends the connection. It waits for the answers to calls of Delay that were given
// up, no longer than answerWithin: the descriptor of a lock that is read while the
// connection ends is never closed, and would delay shutdowns for as long as the process lives.
func (s *Session) Close() {
	s.late.Wait()
	s.end()
	_ = s.conn.Close() // it may be lost already, and there is nobody to tell
	s.done.Wait()
}

// Leaving reports whether the machine is shutting down.
func (s *Session) Leaving(ctx context.Context) (leaving bool, err error) {
	return leaving, s.property(ctx, "PreparingForShutdown", &leaving)
}

// MaxDelay is how long the login manager waits at most for those who hold a lock.
func (s *Session) MaxDelay(ctx context.Context) (time.Duration, error) {
	var usec uint64
	if err := s.property(ctx, "InhibitDelayMaxUSec", &usec); err != nil {
		return 0, err
	}
	return time.Duration(usec) * time.Microsecond, nil
}

func (s *Session) property(ctx context.Context, name string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	err := s.conn.Object(loginName, loginPath).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, loginFace, name).Store(into)
	if err != nil {
		return fmt.Errorf("ask the login manager for %s: %w", name, err)
	}
	return nil
}

// Delay has shutdowns wait until the lock is closed, or the longest delay is over.
func (s *Session) Delay(ctx context.Context) (lock io.Closer, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	// Not bound to the context: a lock that comes with a late answer has to be closed.
	call := s.conn.Object(loginName, loginPath).Go(loginFace+".Inhibit", 0, nil, lockWhat, lockWho, lockWhy, lockMode)
	select {
	case <-call.Done:
		lock, err = lockOf(call)
	case <-ctx.Done():
		err = ctx.Err()
		s.late.Go(func() { closeLate(call) })
	}
	if err != nil {
		return nil, fmt.Errorf("take a lock against shutdown: %w", err)
	}
	return lock, nil
}

// closeLate closes the lock that a call is granted within answerWithin.
func closeLate(call *dbus.Call) {
	giveUp := time.NewTimer(answerWithin)
	defer giveUp.Stop()
	select {
	case <-call.Done:
		if lock, err := lockOf(call); err == nil {
			lock.Close()
		}
	case <-giveUp.C:
	}
}

func lockOf(call *dbus.Call) (io.Closer, error) {
	var fd dbus.UnixFD
	if err := call.Store(&fd); err != nil {
		return nil, err
	}
	unix.CloseOnExec(int(fd)) // a program that outlives the agent would hold the lock on
	return os.NewFile(uintptr(fd), "lock against shutdown"), nil
}

// Reload has the login manager read its settings again. It has yet to do so when
// this returns.
func (s *Session) Reload(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if err := s.conn.Object(systemdName, systemdPath).CallWithContext(ctx, systemdFace+".KillUnit", 0, unit, "all", reread).Store(); err != nil {
		return fmt.Errorf("have the login manager read its settings: %w", err)
	}
	return nil
}
