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

// Session is a connection to logind.
type Session struct {
	conn  *dbus.Conn
	heard chan bool
	done  sync.WaitGroup
	late  sync.WaitGroup // calls of Delay that timed out
	end   context.CancelFunc
}

// Dial connects to the bus and subscribes to announcements.
func Dial(ctx context.Context) (*Session, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// The context of the connection is not ctx. The timeout also applies to a bus that accepts the connection and
	// does not answer.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	waiting := context.AfterFunc(ctx, end)
	conn, err := dbus.ConnectSystemBus(dbus.WithContext(life),
		dbus.WithSignalHandler(dbus.NewSequentialSignalHandler()))
	if !waiting() {
		if err == nil {
			_ = conn.Close() // its context has ended
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
	if err := conn.AddMatchSignalContext(ctx, dbus.WithMatchInterface(loginFace),
		dbus.WithMatchMember("PrepareForShutdown"), dbus.WithMatchObjectPath(loginPath)); err != nil {
		s.Close()
		return nil, fmt.Errorf("listen for shutdowns: %w", err)
	}
	return s, nil
}

// listen passes on announcements in order, until the connection is lost.
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

// Announcements yields true when a shutdown begins, and false when it is cancelled. The channel is closed when the
// connection is lost.
func (s *Session) Announcements() <-chan bool { return s.heard }

// Close closes the connection. It waits for late answers to Delay, at most callTimeout, because the file descriptor of
// a lock that is received while the connection is closed would leak and delay shutdowns.
func (s *Session) Close() {
	s.late.Wait()
	s.end()
	_ = s.conn.Close() // it may be lost already
	s.done.Wait()
}

// ShuttingDown reports whether the machine is shutting down.
func (s *Session) ShuttingDown(ctx context.Context) (leaving bool, err error) {
	return leaving, s.property(ctx, "PreparingForShutdown", &leaving)
}

// MaxDelay returns the maximum time for which inhibitor locks delay a shutdown.
func (s *Session) MaxDelay(ctx context.Context) (time.Duration, error) {
	var usec uint64
	if err := s.property(ctx, "InhibitDelayMaxUSec", &usec); err != nil {
		return 0, err
	}
	return time.Duration(usec) * time.Microsecond, nil
}

func (s *Session) property(ctx context.Context, name string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := s.conn.Object(loginName, loginPath).CallWithContext(
		ctx,
		"org.freedesktop.DBus.Properties.Get",
		0,
		loginFace,
		name,
	).Store(into)
	if err != nil {
		return fmt.Errorf("read property %s of logind: %w", name, err)
	}
	return nil
}

// Delay takes an inhibitor lock, which delays shutdowns until it is closed or the maximum delay is over.
func (s *Session) Delay(ctx context.Context) (lock io.Closer, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// Not bound to the context, because the lock in a late answer has to be closed.
	call := s.conn.Object(loginName, loginPath).Go(loginFace+".Inhibit", 0, nil, lockWhat, lockWho, lockWhy, lockMode)
	select {
	case <-call.Done:
		lock, err = lockOf(call)
	case <-ctx.Done():
		err = ctx.Err()
		s.late.Go(func() { closeLate(call) })
	}
	if err != nil {
		return nil, fmt.Errorf("take inhibitor lock: %w", err)
	}
	return lock, nil
}

// closeLate closes the lock in a late answer, if it comes within callTimeout.
func closeLate(call *dbus.Call) {
	giveUp := time.NewTimer(callTimeout)
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
	unix.CloseOnExec(int(fd)) // otherwise child processes would hold the lock
	return os.NewFile(uintptr(fd), "inhibitor lock"), nil
}

// Reload makes logind reload its configuration. It returns before that is done.
func (s *Session) Reload(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := s.conn.Object(systemdName, systemdPath).CallWithContext(ctx, systemdFace+".KillUnit", 0, unit, "all",
		reread).Store(); err != nil {
		return fmt.Errorf("reload configuration of logind: %w", err)
	}
	return nil
}
