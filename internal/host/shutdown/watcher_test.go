package shutdown

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/host/logind"
	"keelson/test/kit/parity"

	login "keelson/test/kit/logind"
)

// node is a node with pods, and a D-Bus daemon and login manager of the test.
type node struct {
	t       *testing.T
	bus     *login.Bus
	machine *login.Manager
	watcher *Watcher
	dir     string // of logind's configuration drop-ins
	cfg     Config
	stop    func()

	mu       sync.Mutex
	pods     []*v1.Pod
	released map[types.UID]chan struct{}
	happened []string
	changed  chan struct{}
}

func newNode(t *testing.T, maxDelay time.Duration) *node {
	t.Helper()
	n := &node{
		t:        t,
		bus:      login.StartBus(t),
		dir:      filepath.Join(t.TempDir(), "logind.conf.d"),
		released: map[types.UID]chan struct{}{},
		changed:  make(chan struct{}, 1),
	}
	n.machine = login.Start(t, n.bus, maxDelay)
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", n.bus.Address)
	settled := make(chan struct{})
	close(settled)
	n.cfg = Config{
		Dial: func(ctx context.Context) (Session, error) {
			s, err := logind.Dial(ctx)
			if err != nil {
				return nil, err
			}
			return s, nil
		},
		Allow:    func(d time.Duration) error { return logind.Allow(n.dir, d) },
		Periods:  []Period{{0, time.Hour}, {critical, time.Hour}},
		Pods:     n.list,
		Settled:  settled,
		End:      n.end,
		Events:   n,
		Dir:      t.TempDir(),
		OnChange: func() { n.note(fmt.Sprint("leaving ", n.watcher.ShuttingDown())) },
		Log:      slog.New(slog.NewTextHandler(t.Output(), nil)),
		Now:      time.Now,
	}
	return n
}

// run starts an agent, which ends with the test if it did not before.
func (n *node) run() {
	n.t.Helper()
	n.watcher = New(n.cfg)
	ctx, cancel := context.WithCancel(n.t.Context())
	done := make(chan error, 1)
	go func() { done <- n.watcher.Run(ctx) }()
	n.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Error(err)
		}
	})
	n.t.Cleanup(n.stop)
}

func (n *node) list() []*v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.pods)
}

func (n *node) end(uid types.UID, grace time.Duration) <-chan struct{} {
	defer n.note(fmt.Sprintf("end %s within %v", uid, grace)) // after the channel exists, so that ended may be called
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.released[uid] == nil {
		n.released[uid] = make(chan struct{})
	}
	return n.released[uid]
}

// ended releases the pod.
func (n *node) ended(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.released[uid])
}

func (n *node) Pod(*v1.Pod, string, string, string, string) {}

func (n *node) Node(kind, reason, message string) {
	n.note(kind + " " + reason + ": " + message)
}

func (n *node) note(what string) {
	n.mu.Lock()
	n.happened = append(n.happened, what)
	n.mu.Unlock()
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

func (n *node) notes() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.happened, "\n")
}

// until waits for a number of notes, and returns them.
func (n *node) until(count int) string {
	n.t.Helper()
	limit := time.After(time.Minute)
	for {
		n.mu.Lock()
		have := len(n.happened)
		n.mu.Unlock()
		if have >= count {
			return n.notes()
		}
		select {
		case <-n.changed:
		case <-limit:
			n.t.Fatalf("only this has happened:\n%s", n.notes())
		}
	}
}

func (n *node) is(got, want string) {
	n.t.Helper()
	if got != want {
		n.t.Errorf("there was\n%s\nwant\n%s", got, want)
	}
}

// stateText returns the content of the checkpoint.
func (n *node) stateText() string {
	n.t.Helper()
	text, err := os.ReadFile(filepath.Join(n.cfg.Dir, "graceful_node_shutdown_state"))
	if err != nil {
		n.t.Fatal(err)
	}
	return string(text)
}

func (n *node) readState() (s state) {
	n.t.Helper()
	text, err := os.ReadFile(filepath.Join(n.cfg.Dir, "graceful_node_shutdown_state"))
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

// TestShutdown runs a shutdown over a real bus: the inhibitor lock has the expected properties, and
// is held until all pods of all groups are released.
func TestShutdown(t *testing.T) {
	parity.Proves(t, "EVIC-43")
	n := newNode(t, 3*time.Hour)
	n.pods = []*v1.Pod{somePod("critical", critical, 7), somePod("a", 0, 5), somePod("b", 0, 6)}
	at := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	n.cfg.Now = func() time.Time { at = at.Add(time.Second); return at }
	n.run()
	n.machine.Await(t, 1)
	if got := n.machine.Locks(); got[0] != (login.Lock{
		What: "shutdown",
		Who:  "kubelet",
		Why:  "Kubelet needs time to handle node shutdown",
		Mode: "delay",
	}) {
		t.Errorf("lock %v", got)
	}
	if _, err := os.Stat(n.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("settings were changed though the delay was long enough: %v", err)
	}
	n.metrics(0, 0)

	n.machine.Announce(t, true)
	n.is(n.until(4),
		"leaving true\nNormal Shutdown: Shutdown manager detected shutdown event\nend a within 5s\nend b within 6s")
	begun := time.Date(2026, 1, 2, 3, 4, 6, 600, time.UTC)
	n.is(n.stateText(), `{"startTime":"2026-01-02T03:04:06.0000006Z","endTime":"0001-01-01T00:00:00Z"}`)
	n.metrics(begun.Unix(), 0)
	n.ended("b")
	if len(n.machine.Locks()) != 1 {
		t.Error("the lock is gone while pods end")
	}
	n.ended("a")
	n.is(n.until(5)[len(n.notes())-len("end critical within 7s"):], "end critical within 7s")
	if len(n.machine.Locks()) != 1 {
		t.Error("the lock is gone while critical pods end")
	}
	n.ended("critical")
	n.machine.Await(t, 0)
	n.is(n.stateText(), `{"startTime":"2026-01-02T03:04:06.0000006Z","endTime":"2026-01-02T03:04:07.0000006Z"}`)
	n.metrics(begun.Unix(), begun.Unix()+1)
	if info, err := os.Stat(filepath.Join(n.cfg.Dir, StateFile)); err != nil || info.Mode() != 0o644 {
		t.Errorf("the state file is %v, %v", info.Mode(), err)
	}
	n.stop()

	// The metrics of the next agent have the times of this shutdown.
	n.machine.Announce(t, false)
	n.run()
	n.machine.Await(t, 1)
	n.metrics(begun.Unix(), begun.Unix()+1)
}

func (n *node) metrics(start, end int64) {
	n.t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(n.watcher)
	families, err := reg.Gather()
	if err != nil {
		n.t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		got[f.GetName()] = f.Metric[0].GetGauge().GetValue()
	}
	if want := map[string]float64{
		"kubelet_graceful_shutdown_start_time_seconds": float64(start),
		"kubelet_graceful_shutdown_end_time_seconds":   float64(end),
	}; !maps.Equal(got, want) {
		n.t.Errorf("metrics %v, want %v", got, want)
	}
}

// TestGroupPeriods has pods that are never released: each group is waited for until its period is
// over. The lock is released after the last one.
func TestGroupPeriods(t *testing.T) {
	n := newNode(t, time.Minute)
	n.cfg.Periods = []Period{{0, time.Millisecond}, {critical, time.Millisecond}}
	n.pods = []*v1.Pod{somePod("critical", critical, 7), somePod("a", 0, 5)}
	n.run()
	n.machine.Await(t, 1)
	n.machine.Announce(t, true)
	n.machine.Await(t, 0)
	n.is(n.notes(),
		"leaving true\nNormal Shutdown: Shutdown manager detected shutdown event\nend a within 1ms\nend critical within 1ms")
}

// TestMaxDelayIsIncreased: the maximum delay of logind is shorter than the shutdown periods. The
// agent writes the drop-in and makes logind reload its configuration.
func TestMaxDelayIsIncreased(t *testing.T) {
	parity.ProvesPart(t, 2, "EVIC-36")
	n := newNode(t, 5*time.Second)
	n.cfg.Periods = []Period{{0, 20 * time.Second}, {critical, 10500 * time.Millisecond}}
	reloads := 0
	n.machine.OnReload = func() time.Duration {
		reloads++
		text, err := os.ReadFile(logind.DropIn(n.dir))
		if err != nil {
			t.Error(err)
		}
		if want := "# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=31\n"; string(text) != want {
			t.Errorf("settings %q, want %q", text, want)
		}
		return 31 * time.Second
	}
	n.run()
	n.machine.Await(t, 1)
	n.is(strings.Join(n.machine.Calls(), "\n"), strings.Join([]string{
		`Get["org.freedesktop.login1.Manager" "PreparingForShutdown"]`,
		`Get["org.freedesktop.login1.Manager" "InhibitDelayMaxUSec"]`,
		`KillUnit["systemd-logind.service" "all" '\x01']`,
		`Get["org.freedesktop.login1.Manager" "InhibitDelayMaxUSec"]`,
		`Inhibit["shutdown" "kubelet" "Kubelet needs time to handle node shutdown" "delay"]`,
	}, "\n"))
	info, err := os.Stat(logind.DropIn(n.dir))
	if err != nil || info.Mode() != 0o644 || filepath.Base(logind.DropIn(n.dir)) != "99-kubelet.conf" ||
		logind.Dir != "/etc/systemd/logind.conf.d" {
		t.Errorf("%s is %v, %v", logind.DropIn(logind.Dir), info.Mode(), err)
	}
	if reloads != 1 {
		t.Errorf("%d reloads", reloads)
	}
}

// TestMaxDelayStaysShort: logind does not reload its configuration. The delay is read five more
// times, and then the lock is taken with the short delay.
func TestMaxDelayStaysShort(t *testing.T) {
	parity.ProvesPart(t, 2, "EVIC-36")
	n := newNode(t, 5*time.Second)
	n.run()
	n.machine.Await(t, 1)
	asked := 0
	for _, c := range n.machine.Calls() {
		if strings.Contains(c, "InhibitDelayMaxUSec") {
			asked++
		}
	}
	if asked != 6 { // once, and five times after the reload
		t.Errorf("asked %d times", asked)
	}
}

// TestReconnect: a lost connection is established again, a new lock is taken, and shutdowns are
// announced over the new connection.
func TestReconnect(t *testing.T) {
	parity.Proves(t, "EVIC-42")
	n := newNode(t, 3*time.Hour)
	n.pods = []*v1.Pod{somePod("a", 0, 5)}
	dialled := make(chan time.Time, 100)
	dial := n.cfg.Dial
	n.cfg.Dial = func(ctx context.Context) (Session, error) { dialled <- time.Now(); return dial(ctx) }
	n.run()
	n.machine.Await(t, 1)
	n.bus.Stop()
	<-dialled
	<-dialled // it may have failed while the bus was stopping
	first := <-dialled
	if pause := (<-dialled).Sub(first); pause < time.Second || pause > 10*time.Second {
		t.Errorf("a connection is tried again after %v, want a second", pause)
	}
	n.machine.Leave()
	n.bus.Start(t)
	if err := n.machine.Join(n.bus); err != nil {
		t.Fatal(err)
	}
	n.machine.Await(t, 1)
	n.machine.Announce(t, true)
	n.until(3)
	n.ended("a")
	n.machine.Await(t, 0)
}

// TestShutdownResumes starts an agent during a shutdown: it takes no lock. Pods that become known
// later are terminated then.
func TestShutdownResumes(t *testing.T) {
	n := newNode(t, 3*time.Hour)
	settled := make(chan struct{})
	n.cfg.Settled = settled
	n.machine.Announce(t, true)
	begun := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if err := os.WriteFile(filepath.Join(n.cfg.Dir, StateFile),
		[]byte(`{"startTime":"2026-01-02T03:04:05Z","endTime":"0001-01-01T00:00:00Z"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	n.run()
	n.until(2)
	n.mu.Lock()
	n.pods = []*v1.Pod{somePod("critical", critical, 7), somePod("a", 0, 5)}
	n.mu.Unlock()
	n.watcher.Trigger()
	n.until(3)
	n.ended("a")
	close(settled)
	n.is(n.until(4),
		"leaving true\nNormal Shutdown: Shutdown manager detected shutdown event\nend a within 5s\nend critical within 7s")
	n.ended("critical")
	if len(n.machine.Locks()) > 0 {
		t.Errorf("locks %v", n.machine.Locks())
	}
	n.machine.Announce(t, false)
	n.machine.Await(t, 1)
	if s := n.readState(); !s.StartTime.Equal(begun) || s.EndTime.IsZero() {
		t.Errorf("state %v", s)
	}
	n.is(n.notes()[strings.LastIndex(n.notes(), "\n")+1:], "leaving false")
}

// noteLog notes the messages of a log.
type noteLog struct{ n *node }

func (l noteLog) Write(line []byte) (int, error) {
	l.n.note(strings.TrimSpace(string(line)))
	return len(line), nil
}

// TestInhibitorIsLogged starts an agent during a shutdown that is cancelled later: the inhibitor is logged when it is
// acquired, after the cancellation.
func TestInhibitorIsLogged(t *testing.T) {
	n := newNode(t, 3*time.Hour)
	n.cfg.Log = slog.New(slog.NewTextHandler(noteLog{n}, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key != slog.MessageKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	n.machine.Announce(t, true)
	n.run()
	n.until(3)
	n.machine.Announce(t, false)
	n.is(n.until(7), `leaving true
msg="detected node shutdown, terminating pods"
Normal Shutdown: Shutdown manager detected shutdown event
msg="node shutdown was cancelled"
Normal Shutdown: Shutdown manager detected shutdown cancellation
leaving false
msg="acquired shutdown inhibitor"`)
}

// TestInterruptedShutdown: the machine shut down before the pods had terminated, and was booted
// again. The metrics have the start of the old shutdown until the next one begins.
func TestInterruptedShutdown(t *testing.T) {
	n := newNode(t, 3*time.Hour)
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	n.cfg.Now = func() time.Time { return at }
	if err := os.WriteFile(filepath.Join(n.cfg.Dir, StateFile),
		[]byte(`{"startTime":"2026-01-02T03:04:05Z","endTime":"0001-01-01T00:00:00Z"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	n.run()
	n.machine.Await(t, 1)
	n.metrics(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Unix(), 0)
	n.machine.Announce(t, true)
	n.machine.Await(t, 0)
	if s := n.readState(); !s.StartTime.Equal(at) || !s.EndTime.Equal(at) {
		t.Errorf("state %v", s)
	}
	n.metrics(at.Unix(), at.Unix())
}

// TestInhibitorAfterCancellation: the new lock may have the file descriptor number of the old one,
// which must not be closed twice.
func TestInhibitorAfterCancellation(t *testing.T) {
	n := newNode(t, 3*time.Hour)
	n.run()
	for i := range 3 {
		n.machine.Await(t, 1)
		n.machine.Announce(t, true)
		n.machine.Await(t, 0)
		n.machine.Announce(t, false)
		n.until(3 * (i + 1))
	}
	n.machine.Await(t, 1)
	n.stop()
	n.machine.Await(t, 0)
}

// TestShutdownDisabled: without periods logind is not called.
func TestShutdownDisabled(t *testing.T) {
	parity.ProvesPart(t, 2, "EVIC-35")
	n := newNode(t, 3*time.Hour)
	n.cfg.Periods = Periods(0, 0)
	n.run()
	n.stop()
	if calls := n.machine.Calls(); len(calls) > 0 {
		t.Errorf("asked %v", calls)
	}
}

// TestCorruptCheckpoint: a checkpoint that cannot be read is renamed.
func TestCorruptCheckpoint(t *testing.T) {
	n := newNode(t, 3*time.Hour)
	file := filepath.Join(n.cfg.Dir, StateFile)
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.run()
	n.machine.Await(t, 1)
	if _, err := os.Stat(file + ".bad"); err != nil {
		t.Error(err)
	}
}
