package logind

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

const (
	loginName   = "org.freedesktop.login1"
	loginPath   = "/org/freedesktop/login1"
	loginFace   = "org.freedesktop.login1.Manager"
	systemdName = "org.freedesktop.systemd1"
	systemdPath = "/org/freedesktop/systemd1"
	systemdFace = "org.freedesktop.systemd1.Manager"
	properties  = "org.freedesktop.DBus.Properties"
)

// patience bounds every wait.
const patience = time.Minute

// Lock is an inhibitor lock, with the arguments of the call that took it.
type Lock struct{ What, Who, Why, Mode string }

// Manager is the login manager, and the part of systemd that makes it reload its
// configuration.
type Manager struct {
	// OnReload is called when the configuration is reloaded. It returns the longest delay
	// that the configuration allows. If it is nil, a reload changes nothing.
	OnReload func() time.Duration

	conn *dbus.Conn
	in   chan *dbus.Message // closed when the connection is lost
	quit chan struct{}
	done sync.WaitGroup

	mu       sync.Mutex
	maxDelay time.Duration
	leaving  bool
	refuse   error
	locks    map[*os.File]Lock // by the end of the pipe that is read here
	changed  chan struct{}     // closed when anything below changes
	calls    []string
}

// Start starts a login manager on the bus. It is stopped at the end of the test.
func Start(t testing.TB, bus *Bus, maxDelay time.Duration) *Manager {
	t.Helper()
	m := &Manager{maxDelay: maxDelay, locks: map[*os.File]Lock{}, changed: make(chan struct{})}
	if err := m.Join(bus); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Leave)
	return m
}

// Join connects to the bus. It can be called again after the bus was restarted.
func (m *Manager) Join(bus *Bus) error {
	conn, err := dbus.Connect(bus.Address)
	if err != nil {
		return fmt.Errorf("join bus: %w", err)
	}
	m.conn, m.in, m.quit = conn, make(chan *dbus.Message, 256), make(chan struct{})
	// Messages are served here one by one and not by handlers: the manager's copy of a lock's
	// file descriptor is closed as soon as the reply with it has been sent, and not before.
	conn.Eavesdrop(m.in)
	for _, name := range []string{loginName, systemdName} {
		// Calls of other clients that arrive before the reply are kept for serve.
		msg := call("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "RequestName", name,
			uint32(0))
		msg.Flags |= dbus.FlagNoReplyExpected
		if c := conn.Send(msg, make(chan *dbus.Call, 1)); c.Err != nil {
			return fmt.Errorf("own %s: %w", name, errors.Join(c.Err, conn.Close()))
		}
	}
	m.done.Go(m.serve)
	return nil
}

func call(dest, path, face, member string, args ...any) *dbus.Message {
	return &dbus.Message{Type: dbus.TypeMethodCall, Body: args, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldDestination: dbus.MakeVariant(dest), dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath(path)),
		dbus.FieldInterface: dbus.MakeVariant(face), dbus.FieldMember: dbus.MakeVariant(member),
		dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(args...)),
	}}
}

// Leave disconnects from the bus and releases all locks.
func (m *Manager) Leave() {
	m.conn.Eavesdrop(nil) // it closes the channel, and may still be writing to it
	close(m.quit)
	_ = m.conn.Close() // the bus may have gone before
	m.mu.Lock()
	for f := range m.locks {
		f.Close() // ends its reader
	}
	m.mu.Unlock()
	m.done.Wait()
}

func (m *Manager) serve() {
	for {
		select {
		case <-m.quit:
			return
		case msg, ok := <-m.in:
			if !ok {
				return
			}
			if msg.Type == dbus.TypeMethodCall {
				m.reply(msg)
			}
		}
	}
}

func text(msg *dbus.Message, f dbus.HeaderField) string {
	return strings.Trim(msg.Headers[f].String(), `"`)
}

func (m *Manager) reply(msg *dbus.Message) {
	answer := &dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldReplySerial: dbus.MakeVariant(msg.Serial()), dbus.FieldDestination: msg.Headers[dbus.FieldSender],
	}}
	body, after, err := m.answer(text(msg, dbus.FieldInterface)+"."+text(msg, dbus.FieldMember), msg.Body)
	if err != nil {
		answer.Type = dbus.TypeError
		answer.Headers[dbus.FieldErrorName] = dbus.MakeVariant("org.freedesktop.DBus.Error.Failed")
		body = []any{err.Error()}
	}
	if len(body) > 0 {
		answer.Body = body
		answer.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
	}
	if msg.Flags&dbus.FlagNoReplyExpected == 0 {
		m.conn.Send(answer, make(chan *dbus.Call, 1))
	}
	if after != nil {
		after()
	}
}

// answer executes a call. The caller calls after when it has sent the answer.
func (m *Manager) answer(method string, args []any) (body []any, after func(), err error) {
	m.note(method, args)
	m.mu.Lock()
	refuse := m.refuse
	m.mu.Unlock()
	switch {
	case refuse != nil:
		return nil, nil, refuse
	case method == properties+".Get" && len(args) == 2 && args[0] == loginFace && args[1] == "InhibitDelayMaxUSec":
		m.mu.Lock()
		defer m.mu.Unlock()
		return []any{dbus.MakeVariant(uint64(m.maxDelay / time.Microsecond))}, nil, nil
	case method == properties+".Get" && len(args) == 2 && args[0] == loginFace && args[1] == "PreparingForShutdown":
		return []any{dbus.MakeVariant(m.preparing())}, nil, nil
	case method == loginFace+".Inhibit" && len(args) == 4 && m.preparing():
		return nil, nil, errors.New("the operation is already running")
	case method == loginFace+".Inhibit" && len(args) == 4:
		return m.inhibit(Lock{fmt.Sprint(args[0]), fmt.Sprint(args[1]), fmt.Sprint(args[2]), fmt.Sprint(args[3])})
	case method == systemdFace+".KillUnit" && len(args) == 3 && args[0] == "systemd-logind.service" &&
		args[2] == int32(syscall.SIGHUP):
		if m.OnReload != nil {
			m.SetMaxDelay(m.OnReload())
		}
		return nil, nil, nil
	}
	return nil, nil, fmt.Errorf("there is no method %s(%v) here", method, args)
}

func (m *Manager) preparing() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leaving
}

func (m *Manager) inhibit(l Lock) ([]any, func(), error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	m.mu.Lock()
	m.locks[r] = l
	m.changedLocked()
	m.mu.Unlock()
	return []any{dbus.UnixFD(w.Fd())}, func() {
		w.Close()
		m.done.Go(func() {
			defer r.Close()
			_, _ = r.Read(make([]byte, 1)) // until no client has the other end any more
			m.mu.Lock()
			defer m.mu.Unlock()
			delete(m.locks, r)
			m.changedLocked()
		})
	}, nil
}

func (m *Manager) note(method string, args []any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, fmt.Sprintf("%s%q", method[strings.LastIndex(method, ".")+1:], args))
	m.changedLocked()
}

func (m *Manager) changedLocked() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// SetMaxDelay sets the longest delay.
func (m *Manager) SetMaxDelay(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.maxDelay = d
}

// Refuse answers every call with an error; nil ends that.
func (m *Manager) Refuse(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuse = err
}

// Announce sends PrepareForShutdown: the machine is about to shut down, or the shutdown was
// cancelled.
func (m *Manager) Announce(t testing.TB, leaving bool) {
	t.Helper()
	m.mu.Lock()
	m.leaving = leaving
	m.mu.Unlock()
	if err := m.conn.Emit(loginPath, loginFace+".PrepareForShutdown", leaving); err != nil {
		t.Fatal(err)
	}
}

// Locks are the locks that clients hold.
func (m *Manager) Locks() []Lock {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Lock
	for _, l := range m.locks {
		out = append(out, l)
	}
	return out
}

// Calls are the calls so far, in order.
func (m *Manager) Calls() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.calls)
}

// Await returns when exactly this number of locks is held.
func (m *Manager) Await(t testing.TB, locks int) {
	t.Helper()
	m.Until(t, fmt.Sprintf("%d locks", locks), func() bool { return len(m.Locks()) == locks })
}

// Until returns when the condition holds. It is checked after each call and each change of
// a lock.
func (m *Manager) Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		m.mu.Lock()
		changed := m.changed
		m.mu.Unlock()
		if holds() {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %v; there were\n%s", what, patience, strings.Join(m.Calls(), "\n"))
		case <-changed:
		}
	}
}
