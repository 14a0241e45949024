package app

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"keelson/internal/pods/podsync"
	"keelson/internal/resources/device"
	"keelson/test/kit/parity"
)

// manager notes what a service manager is told.
type manager struct {
	mu   sync.Mutex
	said []string
}

func (m *manager) notify(state string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said = append(m.said, state)
	return true, nil
}

// take is what was said since the last time.
func (m *manager) take() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	said := m.said
	m.said = nil
	return said
}

// TestSignsOfLifeStopWhenACheckFails: twice in each timeout, and not while the log
// takes no line.
func TestSignsOfLifeStopWhenACheckFails(t *testing.T) {
	parity.ProvesPart(t, 5, "SRV-05")
	parity.ProvesPart(t, 6, "SRV-13")
	synctest.Test(t, func(t *testing.T) {
		p, m := &pipe{}, &manager{}
		log, written := watchLog(slog.New(slog.NewTextHandler(p, nil)))
		a := &agent{log: slog.New(slog.DiscardHandler), written: written, links: Links{Operator: Operator{Notify: m.notify}}}
		a.syncer = podsync.New(podsync.Config{Log: a.log, Now: time.Now, TurnPatience: time.Minute})
		a.devices = device.New(device.Config{Dir: t.TempDir(), Log: a.log})
		var names []string
		for _, c := range a.checks() {
			names = append(names, c.Name)
		}
		if !slices.Equal(names, []string{"log", "syncloop", "device-plugin"}) {
			t.Errorf("checks %v", names)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.showLife(10 * time.Second)(ctx) }()
		time.Sleep(time.Minute + time.Second)
		if got := m.take(); len(got) != 12 || got[0] != "WATCHDOG=1" {
			t.Errorf("in a minute %v, want twelve signs of life", got)
		}
		p.full = make(chan struct{})
		go log.Info("held up")
		time.Sleep(logPatience + 10*time.Second)
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

func TestAShortWatchdogIsRefused(t *testing.T) {
	parity.ProvesPart(t, 5, "SRV-05")
	for usec, want := range map[string]time.Duration{"": 0, "1000001": 1000001 * time.Microsecond, "30000000": 30 * time.Second, "1000000": -1, "1": -1, "many": -1, "0": -1} {
		t.Setenv("WATCHDOG_USEC", usec)
		got, err := watchdogTimeout()
		if want == -1 {
			if err == nil || !strings.Contains(err.Error(), "watchdog") {
				t.Errorf("WATCHDOG_USEC=%s: %v, %v, want an error", usec, got, err)
			}
		} else if err != nil || got != want {
			t.Errorf("WATCHDOG_USEC=%s: %v, %v, want %v", usec, got, err, want)
		}
	}
}

// TestASignOfLifeWantsPluginsToRegister: an agent where no device plugin can register
// is not well, to the service manager as to whoever asks.
func TestASignOfLifeWantsPluginsToRegister(t *testing.T) {
	parity.Proves(t, "RES-57")
	parity.ProvesPart(t, 6, "SRV-13")
	parity.ProvesPart(t, 5, "SRV-05")
	a := &agent{log: slog.New(slog.DiscardHandler)}
	_, a.written = watchLog(a.log)
	a.syncer = podsync.New(podsync.Config{Log: a.log, Now: time.Now, TurnPatience: time.Minute})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a.devices = device.New(device.Config{Dir: t.TempDir(), Log: a.log, OnNode: func() {}, Listen: func(string) (net.Listener, error) { return l, nil }})
	if ill := a.ailments(); ill != "" {
		t.Errorf("before it begins: %s", ill)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.devices.Run(ctx) }()
	l.Close() // its server dies
	for a.ailments() == "" {
		time.Sleep(time.Millisecond)
	}
	if ill := a.ailments(); !strings.HasPrefix(ill, "device-plugin: device plugin registration gRPC server failed and no device plugins can register: ") {
		t.Errorf("it is ill of %s", ill)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
