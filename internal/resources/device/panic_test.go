package device

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"keelson/test/kit/deviceplugin"
)

// panicking is a log handler that panics at a message about a resource, a given number of times.
type panicking struct {
	slog.Handler
	message, resource string

	mu     *sync.Mutex
	times  map[string]int // panics left, by message
	logged map[string]int
}

func (h panicking) Handle(_ context.Context, r slog.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "resourceName" && a.Value.String() == h.resource && r.Message == h.message &&
			h.times[r.Message] > 0 {
			h.times[r.Message]--
			panic("at a message of a plugin")
		}
		if a.Key == "stack" && strings.Contains(a.Value.String(), "panic_test.go") {
			h.logged["stack"]++
		}
		return true
	})
	return nil
}

func (h panicking) Enabled(context.Context, slog.Level) bool { return true }

func (h panicking) count(what string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.logged[what]
}

// end ends the panics.
func (h panicking) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.times)
}

func panicsAt(message, resource string, times int) panicking {
	return panicking{
		Handler:  slog.DiscardHandler,
		message:  message,
		resource: resource,
		mu:       &sync.Mutex{},
		times:    map[string]int{message: times},
		logged:   map[string]int{},
	}
}

// The agent panics while it processes the list of one plugin. The devices of that plugin are unhealthy until its list
// is processed. Devices of another plugin are allocated meanwhile.
func TestPanicDuringPluginList(t *testing.T) {
	m := newMachine(t)
	m.stop()
	const sick = "example.com/sick"
	log := panicsAt("device plugin is serving", sick, 1000)
	m.log = log
	m.start()
	p := deviceplugin.New(deviceplugin.Config{Dir: m.dir, Socket: "sick.sock", Resource: sick}, "a", "b")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	if err := p.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.until("the first panic", func() bool { return log.count("stack") == 1 })
	m.plugin(deviceplugin.Config{Resource: gpu}, "x")
	well := podOf("1", wants("main", gpu, 1))
	if err := m.admit(well); err != nil {
		t.Errorf("a device of another plugin: %v", err)
	}
	if _, healthy, _ := m.pool.Capacity(); healthy[sick] != 0 {
		t.Errorf("%d devices are healthy of a plugin that is not followed", healthy[sick])
	}
	m.until("another try", func() bool { return log.count("stack") == 2 })
	log.end()
	m.amount(sick, 2, 2)
	if err := m.admit(podOf("2", wants("main", sick, 2))); err != nil {
		t.Errorf("the plugin is followed again: %v", err)
	}
}

// The agent panics during a registration. The plugin gets an error and can register again.
func TestPanicDuringRegistration(t *testing.T) {
	m := newMachine(t)
	m.stop()
	log := panicsAt("rejected registration of device plugin", "cpu", 1)
	m.log = log
	m.start()
	bad := deviceplugin.New(deviceplugin.Config{Dir: m.dir, Socket: "x.sock", Resource: "cpu"})
	if err := bad.Register(t.Context()); status.Code(err) != codes.Internal ||
		!strings.Contains(err.Error(), "at a message of a plugin") {
		t.Errorf("answered %v", err)
	}
	if n := log.count("stack"); n != 1 {
		t.Errorf("%d stacks in the log, want 1", n)
	}
	m.plugin(deviceplugin.Config{Resource: gpu}, "x")
}
