package app

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"keelson/internal/host/systemd"
	"keelson/internal/pods/podsync"
	"keelson/internal/resources/device"
	"keelson/internal/serve/server/loghealth"
	"keelson/test/kit/await"
	"keelson/test/kit/parity"
)

// pipe is the output of a log, which may block or fail.
type pipe struct {
	bytes.Buffer
	full chan struct{} // writes wait until it is closed; nil: there is room
	err  error
}

func (p *pipe) Write(b []byte) (int, error) {
	if p.full != nil {
		<-p.full
	}
	if p.err != nil {
		return 0, p.err
	}
	return p.Buffer.Write(b)
}

// manager records the notifications that a service manager receives.
type manager struct {
	mu       sync.Mutex
	notified []string
}

func (m *manager) notify(state string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notified = append(m.notified, state)
	return true, nil
}

// take returns the notifications since the last call.
func (m *manager) take() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	notified := m.notified
	m.notified = nil
	return notified
}

// TestWatchdogStopsWhenCheckFails: the watchdog is notified twice in each timeout, and not while writes to the log
// block.
func TestWatchdogStopsWhenCheckFails(t *testing.T) {
	parity.ProvesPart(t, 5, "SRV-05")
	parity.ProvesPart(t, 6, "SRV-13")
	synctest.Test(t, func(t *testing.T) {
		p, m := &pipe{}, &manager{}
		log, written := loghealth.Watch(slog.New(slog.NewTextHandler(p, nil)))
		quiet := slog.New(slog.DiscardHandler)
		service := systemd.New(m.notify, quiet)
		all := newChecks(written, podsync.New(podsync.Config{Log: quiet, Now: time.Now, TurnPatience: time.Minute}),
			device.New(device.Config{Dir: t.TempDir(), Log: quiet}))
		var names []string
		for _, c := range all {
			names = append(names, c.Name)
		}
		if !slices.Equal(names, []string{"log", "syncloop", "device-plugin"}) {
			t.Errorf("checks %v", names)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- service.Watchdog(ctx, 10*time.Second, all.Failing) }()
		time.Sleep(time.Minute + time.Second)
		if got := m.take(); len(got) != 12 || got[0] != "WATCHDOG=1" {
			t.Errorf("in a minute %v, want twelve signs of life", got)
		}
		p.full = make(chan struct{})
		go log.Info("held up")
		time.Sleep(2*time.Minute + 10*time.Second)
		m.take()
		time.Sleep(time.Minute)
		if got := m.take(); len(got) != 0 {
			t.Errorf("while the log takes no line: %v", got)
		}
		close(p.full)
		time.Sleep(time.Minute)
		if got := m.take(); len(got) != 12 {
			t.Errorf("afterwards %v", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestWatchdogChecksPluginRegistration: an agent with which no device plugin can register is unhealthy, for the
// service manager as for the health endpoint.
func TestWatchdogChecksPluginRegistration(t *testing.T) {
	parity.Proves(t, "RES-57")
	parity.ProvesPart(t, 6, "SRV-13")
	parity.ProvesPart(t, 5, "SRV-05")
	log := slog.New(slog.DiscardHandler)
	_, written := loghealth.Watch(log)
	syncer := podsync.New(podsync.Config{Log: log, Now: time.Now, TurnPatience: time.Minute})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	devices := device.New(device.Config{
		Dir:    t.TempDir(),
		Log:    log,
		OnNode: func() {},
		Listen: func(string) (net.Listener, error) { return l, nil },
	})
	all := newChecks(written, syncer, devices)
	if ill := all.Failing(); ill != "" {
		t.Errorf("before it begins: %s", ill)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- devices.Run(ctx) }()
	l.Close() // its server dies
	await.True(t, "a failure", func() bool { return all.Failing() != "" })
	if ill := all.Failing(); !strings.HasPrefix(ill,
		"device-plugin: device plugin registration gRPC server failed and no device plugins can register: ") {
		t.Errorf("it is ill of %s", ill)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
