package script

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"keelson/internal/host/shutdown"
)

// loginManager simulates systemd-logind, which shuts the node's machine down, and the D-Bus connections to
// it.
type loginManager struct {
	mu       sync.Mutex
	down     bool // no answer
	leaving  bool
	sessions map[*session]bool
	locks    int
}

// session is an agent's connection. It is lost when the agent is killed.
type session struct {
	m     *loginManager
	life  context.Context // ends with the connection
	end   context.CancelFunc
	agent context.Context // ends when the agent is killed
	heard chan bool
	queue chan bool
}

// connect returns the function with which an agent connects.
func (m *loginManager) connect(agent context.Context) func(context.Context) (shutdown.Session, error) {
	return func(context.Context) (shutdown.Session, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.down || agent.Err() != nil {
			return nil, errors.New("no answer")
		}
		s := &session{m: m, agent: agent, heard: make(chan bool), queue: make(chan bool, 16)}
		s.life, s.end = context.WithCancel(agent)
		if m.sessions == nil {
			m.sessions = map[*session]bool{}
		}
		m.sessions[s] = true
		go s.deliver()
		return s, nil
	}
}

func (s *session) deliver() {
	defer close(s.heard)
	for {
		select {
		case <-s.life.Done():
			return
		case leaving := <-s.queue:
			select {
			case <-s.life.Done():
				return
			case s.heard <- leaving:
			}
		}
	}
}

func (s *session) Announcements() <-chan bool                      { return s.heard }
func (s *session) MaxDelay(context.Context) (time.Duration, error) { return time.Hour, nil }
func (s *session) Reload(context.Context) error                    { return nil }

func (s *session) ShuttingDown(context.Context) (bool, error) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return s.m.leaving, s.life.Err()
}

func (s *session) Delay(context.Context) (io.Closer, error) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.m.leaving || s.life.Err() != nil {
		return nil, errors.New("a shutdown is under way")
	}
	s.m.locks++
	l := &lock{m: s.m}
	l.free = context.AfterFunc(s.agent, l.release)
	return l, nil
}

func (s *session) Close() {
	s.m.mu.Lock()
	delete(s.m.sessions, s)
	s.m.mu.Unlock()
	s.end()
}

// lock is an inhibitor lock. It is released by its holder, or when the agent is killed.
type lock struct {
	m    *loginManager
	once sync.Once
	free func() bool
}

func (l *lock) Close() error {
	l.free()
	l.release()
	return nil
}

func (l *lock) release() {
	l.once.Do(func() {
		l.m.mu.Lock()
		defer l.m.mu.Unlock()
		l.m.locks--
	})
}

// machineIs announces a shutdown of the machine or cancels it, or disconnects logind and connects
// it again.
func (r *Run) machineIs(args []string) error {
	m := &r.login
	m.mu.Lock()
	defer m.mu.Unlock()
	switch how := args[0]; how {
	case "leaving", "staying":
		m.leaving = how == "leaving"
		for s := range m.sessions {
			s.queue <- m.leaving
		}
	case "deaf", "back":
		m.down = how == "deaf"
		for s := range m.sessions {
			s.end()
		}
	default:
		return fmt.Errorf("the machine is leaving, staying, deaf or back, not %s", how)
	}
	return nil
}

// showMachine shows the number of inhibitor locks, whether the node is ready, the events of shutdowns, and the
// recorded state of the last shutdown.
func (r *Run) showMachine() (string, error) {
	r.login.mu.Lock()
	locks := r.login.locks
	r.login.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%d locks\n", locks)
	for _, c := range r.Server.Node(Node).Status.Conditions {
		if c.Type == corev1.NodeReady {
			fmt.Fprintf(&b, "Ready %s %s %q\n", c.Status, c.Reason, c.Message)
		}
	}
	for _, o := range r.Server.Objects(corev1.SchemeGroupVersion.WithResource("events")) {
		if e := o.(*corev1.Event); e.InvolvedObject.Kind == "Node" && e.Reason == shutdown.EventShutdown {
			fmt.Fprintf(&b, "%s %s: %s (%d)\n", e.Type, e.Reason, e.Message, max(e.Count, 1))
		}
	}
	text, err := os.ReadFile(r.Path("kubelet/" + shutdown.StateFile))
	if errors.Is(err, os.ErrNotExist) {
		return b.String(), nil
	}
	zero := time.Time{}.Format(time.RFC3339Nano)
	state := string(text)
	for _, key := range []string{"startTime", "endTime"} {
		_, rest, _ := strings.Cut(state, `"`+key+`":"`)
		at, _, _ := strings.Cut(rest, `"`)
		t, err := time.Parse(time.RFC3339Nano, at)
		if err != nil {
			return "", fmt.Errorf("read the state of the shutdown: %w in %s", err, text)
		}
		if at != zero {
			state = strings.Replace(state, at, fmt.Sprintf("+%ds", int(t.Sub(r.begin).Seconds())), 1)
		}
	}
	b.WriteString(state + "\n")
	return b.String(), err
}
