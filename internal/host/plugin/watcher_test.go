package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"keelson/test/kit/await"
	"keelson/test/kit/parity"
)

// testPlugin serves a registration socket and keeps the registration statuses.
type testPlugin struct {
	registerapi.UnimplementedRegistrationServer
	info        *registerapi.PluginInfo
	hang        chan struct{} // GetInfo waits for it; nil: it does not wait
	failsNotify bool          // NotifyRegistrationStatus fails

	mu       sync.Mutex
	reported []*registerapi.RegistrationStatus
	limits   map[string]time.Duration // by method: time until the deadline of the call
	givenUp  int                      // responses after the caller's deadline
}

func (p *testPlugin) limit(ctx context.Context, method string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.limits == nil {
		p.limits = map[string]time.Duration{}
	}
	if at, ok := ctx.Deadline(); ok {
		p.limits[method] = time.Until(at)
	}
}

func (p *testPlugin) GetInfo(ctx context.Context, _ *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	p.limit(ctx, "GetInfo")
	if p.hang != nil {
		select {
		case <-p.hang:
		case <-ctx.Done():
			p.mu.Lock()
			p.givenUp++
			p.mu.Unlock()
		}
	}
	return p.info, nil
}

func (p *testPlugin) NotifyRegistrationStatus(
	ctx context.Context,
	s *registerapi.RegistrationStatus,
) (*registerapi.RegistrationStatusResponse, error) {
	p.limit(ctx, "NotifyRegistrationStatus")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reported = append(p.reported, s)
	if p.failsNotify {
		return nil, errors.New("what?")
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}

func (p *testPlugin) statuses() []*registerapi.RegistrationStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.reported)
}

// serve starts the plugin at a socket. The returned function stops it and removes the socket.
func (p *testPlugin) serve(t *testing.T, path string) func() {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	registerapi.RegisterRegistrationServer(s, p)
	go s.Serve(l) //nolint:errcheck // it ends with Stop
	stop := sync.OnceFunc(s.Stop)
	t.Cleanup(stop)
	return stop
}

// testHandler records its calls in order, and returns the configured errors.
type testHandler struct {
	mu     sync.Mutex
	log    []string
	refuse map[string]error
	slow   chan struct{}     // deregistrations wait until it is closed; nil: they do not wait
	taken  func(name string) // called in a registration; nil: not used
	gone   map[string]error  // by name: the error of the context at the deregistration
}

func (h *testHandler) add(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

func (h *testHandler) calls() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.log)
}

func (h *testHandler) refusal(what string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refuse[what]
}

func (h *testHandler) Validate(name, endpoint string, versions []string) error {
	h.add("validate %s %s %v", name, filepath.Base(endpoint), versions)
	return h.refusal("validate " + name)
}

func (h *testHandler) Register(_ context.Context, name, endpoint string, _ []string) error {
	h.add("register %s %s", name, filepath.Base(endpoint))
	h.mu.Lock()
	taken := h.taken
	h.mu.Unlock()
	if taken != nil {
		taken(name)
	}
	return h.refusal("register " + name)
}

func (h *testHandler) Deregister(ctx context.Context, name, endpoint string) error {
	h.add("deregister %s %s", name, filepath.Base(endpoint))
	h.mu.Lock()
	slow := h.slow
	h.gone[name] = ctx.Err()
	h.mu.Unlock()
	if slow != nil {
		<-slow
		h.add("deregistered %s", name)
	}
	return nil
}

type rig struct {
	t   *testing.T
	dir string
	h   *testHandler
	w   *Watcher
}

func newRig(t *testing.T, before func(dir string)) *rig {
	t.Helper()
	base, err := os.MkdirTemp("", "plug")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(base, "plugins_registry")
	if before != nil {
		if err := os.Mkdir(dir, 0o750); err != nil {
			t.Fatal(err)
		}
		before(dir)
	}
	h := &testHandler{refuse: map[string]error{}, gone: map[string]error{}}
	w := New(Config{
		Dir:      dir,
		Watch:    true,
		Log:      slog.New(slog.DiscardHandler),
		Handlers: map[string]Handler{CSI: h, DRA: h, Device: h},
	})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	r := &rig{t, dir, h, w}
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		os.RemoveAll(base)
	})
	r.until("directory", func() bool { _, err := os.Stat(dir); return err == nil })
	return r
}

func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	await.Until(r.t, what, func() (string, bool) { return fmt.Sprint("calls ", r.h.calls()), ok() })
}

func info(kind, name string) *registerapi.PluginInfo {
	return &registerapi.PluginInfo{Type: kind, Name: name, SupportedVersions: []string{"1.0.0"}}
}

// A plugin is validated, registered and notified, and deregistered when its socket is removed. A
// recreated socket counts as another plugin.
func TestRegisterAndDeregister(t *testing.T) {
	parity.Proves(t, "PLUG-02", "PLUG-06", "PLUG-08", "SRV-67")
	parity.ProvesPart(t, 2, "PLUG-10")
	parity.ProvesPart(t, 2, "SRV-53")
	parity.ProvesPart(t, 2, "PLUG-01")
	parity.ProvesPart(t, 3, "PLUG-04")
	parity.ProvesPart(t, 2, "PLUG-07")
	parity.Differs(t, "PLUG-03", "0076")
	early := &testPlugin{info: info("CSIPlugin", "early")}
	r := newRig(t, func(dir string) { early.serve(t, filepath.Join(dir, "early.sock")) })
	r.until("the one that was there", func() bool { return len(early.statuses()) == 1 })
	if st, err := os.Stat(r.dir); err != nil || st.Mode().Perm() != 0o750 {
		t.Errorf("directory: %v, %v", st.Mode(), err)
	}

	late := &testPlugin{info: info("DRAPlugin", "late")}
	late.info.Endpoint = "/somewhere/else.sock"
	stop := late.serve(t, filepath.Join(r.dir, "late.sock"))
	served := time.Now()
	r.until("word", func() bool { return len(late.statuses()) == 1 && late.statuses()[0].PluginRegistered })
	if took := time.Since(served); took > 9*time.Second {
		t.Errorf("a socket was found after %v, as if the file system reported none", took)
	}
	stop()
	r.until("deregistration", func() bool { return slices.Contains(r.h.calls(), "deregister late else.sock") })
	want := []string{
		"validate early early.sock [1.0.0]",
		"register early early.sock",
		"validate late else.sock [1.0.0]",
		"register late else.sock",
		"deregister late else.sock",
	}
	if got := r.h.calls(); !slices.Equal(got, want) {
		t.Errorf("calls %q, want %q", got, want)
	}

	// A plugin in a subdirectory that is created later, whose socket is then recreated under the same name.
	sub := filepath.Join(r.dir, "vendor")
	if err := os.Mkdir(sub, 0o750); err != nil {
		t.Fatal(err)
	}
	again := &testPlugin{info: info("DevicePlugin", "vendor.example/gpu")}
	stop = again.serve(t, filepath.Join(sub, "gpu.sock"))
	r.until("word", func() bool { return len(again.statuses()) == 1 })
	next := &testPlugin{info: info("DevicePlugin", "vendor.example/gpu")}
	if err := os.Rename(filepath.Join(sub, "gpu.sock"), filepath.Join(r.dir, ".old")); err != nil {
		t.Fatal(err)
	}
	next.serve(t, filepath.Join(sub, "gpu.sock"))
	r.until("word to the next", func() bool { return len(next.statuses()) == 1 })
	defer stop() // not before: it would remove the new socket of the same name
	calls := r.h.calls()
	if got := calls[len(calls)-3:]; !slices.Equal(got, []string{"deregister vendor.example/gpu gpu.sock", "validate " +
		"vendor.example/gpu gpu.sock [1.0.0]", "register vendor.example/gpu gpu.sock"}) {
		t.Errorf("a socket made anew: %q", got)
	}
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(r.w)
	wantSeries := []string{
		"socket_path=/early.sock state=actual_state_of_world 1",
		"socket_path=/early.sock state=desired_state_of_world 1",
		"socket_path=/vendor/gpu.sock state=actual_state_of_world 1",
		"socket_path=/vendor/gpu.sock state=desired_state_of_world 1",
	}
	r.until("the figures of both", func() bool { return slices.Equal(shownSockets(t, reg, r.dir), wantSeries) })

	// A plugin has the state actual_state_of_world from before its registration until its socket is removed.
	begun, shown := make(chan struct{}), make(chan struct{})
	r.h.mu.Lock()
	r.h.taken = func(string) { begun <- struct{}{}; <-shown }
	r.h.mu.Unlock()
	third := &testPlugin{info: info("CSIPlugin", "third")}
	stop = third.serve(t, filepath.Join(r.dir, "third.sock"))
	withThird := slices.Insert(slices.Clone(wantSeries), 2,
		"socket_path=/third.sock state=actual_state_of_world 1",
		"socket_path=/third.sock state=desired_state_of_world 1")
	<-begun
	if got := shownSockets(t, reg, r.dir); !slices.Equal(got, withThird) {
		t.Errorf("figures during the registration %q, want %q", got, withThird)
	}
	close(shown)
	r.until("word to the third", func() bool { return len(third.statuses()) == 1 && third.statuses()[0].PluginRegistered })
	stop()
	r.until("the figures without it", func() bool { return slices.Equal(shownSockets(t, reg, r.dir), wantSeries) })
}

// shownSockets returns the series of the metric plugin_manager_total_plugins.
func shownSockets(t *testing.T, reg *prometheus.Registry, dir string) []string {
	t.Helper()
	got, err := reg.Gather()
	if err != nil || len(got) != 1 || got[0].GetName() != "plugin_manager_total_plugins" {
		t.Fatalf("metrics: %v, %v", got, err)
	}
	var series []string
	for _, m := range got[0].GetMetric() {
		series = append(series,
			fmt.Sprintf("%s=%s %s=%s %v", m.Label[0].GetName(), strings.TrimPrefix(m.Label[0].GetValue(),
				dir), m.Label[1].GetName(), m.Label[1].GetValue(), m.Gauge.GetValue()))
	}
	return series
}

// Files that are not sockets, hidden files and symlinks are ignored. So are the sockets of drivers
// in the directory plugins beside this one, although some of them serve the registration API.
func TestOtherFilesAreIgnored(t *testing.T) {
	parity.Proves(t, "PLUG-09")
	parity.ProvesPart(t, 2, "PLUG-01")
	parity.ProvesPart(t, 3, "VOL-09")
	hidden := &testPlugin{info: info("CSIPlugin", "hidden")}
	elsewhere := &testPlugin{info: info("CSIPlugin", "elsewhere")}
	beside := &testPlugin{info: info("CSIPlugin", "beside")}
	seen := &testPlugin{info: info("CSIPlugin", "seen")}
	r := newRig(t, nil)
	r.until("the mode of the directory", func() bool {
		st, err := os.Stat(r.dir)
		return err == nil && st.Mode() == fs.ModeDir|0o750
	})
	hidden.serve(t, filepath.Join(r.dir, ".hidden.sock"))
	outside := filepath.Join(filepath.Dir(r.dir), "out.sock")
	elsewhere.serve(t, outside)
	drivers := filepath.Join(filepath.Dir(r.dir), "plugins")
	if err := os.Mkdir(drivers, 0o750); err != nil {
		t.Fatal(err)
	}
	beside.serve(t, filepath.Join(drivers, "csi.sock"))
	if err := errors.Join(os.WriteFile(filepath.Join(r.dir, "file.sock"), nil, 0o600),
		os.Symlink(outside, filepath.Join(r.dir, "link.sock"))); err != nil {
		t.Fatal(err)
	}
	seen.serve(t, filepath.Join(r.dir, "seen.sock"))
	r.until("the one that counts", func() bool { return len(seen.statuses()) == 1 })
	if len(hidden.statuses())+len(elsewhere.statuses())+len(beside.statuses()) > 0 || len(r.h.calls()) != 2 {
		t.Errorf("calls: %q", r.h.calls())
	}
}

// A rejected plugin is notified of the reason, and is tried again with an increasing back-off.
func TestRegistrationRetries(t *testing.T) {
	parity.Proves(t, "PLUG-05")
	parity.ProvesPart(t, 3, "PLUG-04")
	parity.ProvesPart(t, 2, "PLUG-10")
	parity.ProvesPart(t, 2, "SRV-53")
	parity.ProvesPart(t, 2, "PLUG-07")
	parity.ProvesPart(t, 2, "PLUG-14")
	parity.Differs(t, "PLUG-03", "0076")
	r := newRig(t, nil)
	r.h.refuse["validate liar"] = errors.New("too new")
	r.h.refuse["register broken"] = errors.New("no node")
	broken := &testPlugin{info: info("CSIPlugin", "broken")}
	for _, c := range []struct {
		p    *testPlugin
		want string
	}{
		{&testPlugin{info: info("Toaster", "x")},
			"RegisterPlugin error -- no handler registered for plugin type: Toaster at socket " + r.dir + "/x.sock"},
		{&testPlugin{info: info("CSIPlugin", "liar")}, "RegisterPlugin error -- plugin validation failed with err: too new"},
		{broken, "RegisterPlugin error -- plugin registration failed with err: no node"},
	} {
		began := time.Now()
		c.p.serve(t, filepath.Join(r.dir, c.p.info.Name+".sock"))
		r.until("three tries of "+c.p.info.Name, func() bool { return len(c.p.statuses()) >= 3 })
		if took := time.Since(began); took < 1500*time.Millisecond {
			t.Errorf("three tries took %v, want half a second and a second between at least", took)
		}
		if got := c.p.statuses()[0]; got.PluginRegistered || got.Error != c.want {
			t.Errorf("%s hears %v, want %q", c.p.info.Name, got, c.want)
		}
	}
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(r.w)
	wanted := []string{
		"socket_path=/broken.sock state=desired_state_of_world 1",
		"socket_path=/liar.sock state=desired_state_of_world 1",
		"socket_path=/x.sock state=desired_state_of_world 1",
	}
	r.until("the figures of what is refused", func() bool { return slices.Equal(shownSockets(t, reg, r.dir), wanted) })
	// The back-off of repeated failures doubles from 500ms to 2m2s.
	var waits []time.Duration
	for d := minRetry; len(waits) < 10; d = min(2*d, maxRetry) {
		waits = append(waits, d)
	}
	if waits[8] != 122*time.Second || waits[9] != 122*time.Second || waits[7] != 64*time.Second {
		t.Errorf("waits are %v", waits)
	}
	// A plugin that cannot be notified is deregistered again.
	failing := &testPlugin{info: info("CSIPlugin", "failing"), failsNotify: true}
	failing.serve(t, filepath.Join(r.dir, "failing.sock"))
	r.until("a second try", func() bool { return len(failing.statuses()) >= 2 })
	if got := r.h.calls(); !slices.Contains(got, "deregister failing failing.sock") {
		t.Errorf("calls %q", got)
	}
	// When the cause of the failure is gone, the plugin is registered.
	r.h.mu.Lock()
	delete(r.h.refuse, "register broken")
	r.h.mu.Unlock()
	r.until("the broken one", func() bool { last := broken.statuses(); return last[len(last)-1].PluginRegistered })
}

// GetInfo of a plugin that does not answer times out after a second, and does not block other plugins.
func TestHangingPluginDoesNotBlock(t *testing.T) {
	r := newRig(t, nil)
	slow := &testPlugin{info: info("CSIPlugin", "slow"), hang: make(chan struct{})}
	slow.serve(t, filepath.Join(r.dir, "slow.sock"))
	// Sockets without an answering plugin. If they were tried one after another, they would take a minute.
	for i := range 60 {
		mute, err := net.Listen("unix", filepath.Join(r.dir, fmt.Sprintf("mute-%02d.sock", i)))
		if err != nil {
			t.Fatal(err)
		}
		defer mute.Close()
	}
	quick := &testPlugin{info: info("CSIPlugin", "quick")}
	quick.serve(t, filepath.Join(r.dir, "quick.sock"))
	r.until("the quick one", func() bool { return len(quick.statuses()) == 1 })
	r.until("the end of the wait for the slow one",
		func() bool { slow.mu.Lock(); defer slow.mu.Unlock(); return slow.givenUp > 0 })
	close(slow.hang)
	r.until("the slow one", func() bool { return len(slow.statuses()) == 1 })
}

// pipes are connections without sockets, for virtual time.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

func (p pipes) dial(context.Context, string) (net.Conn, error) {
	here, there := net.Pipe()
	p <- there
	return here, nil
}

// A plugin has 10 s to accept a connection, 1 s for GetInfo, and 5 s for NotifyRegistrationStatus.
func TestTimeouts(t *testing.T) {
	parity.ProvesPart(t, 3, "PLUG-04")
	dir, err := os.MkdirTemp("", "plug") // the length of socket paths is limited
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "x.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	run := func(t *testing.T, dial func(context.Context, string) (net.Conn, error)) (stop func()) {
		t.Helper()
		w := New(Config{
			Dir:      dir,
			Dial:     dial,
			Log:      slog.New(slog.DiscardHandler),
			Handlers: map[string]Handler{CSI: &testHandler{gone: map[string]error{}}},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var dials []time.Time
		stop := run(t, func(ctx context.Context, _ string) (net.Conn, error) {
			mu.Lock()
			dials = append(dials, time.Now())
			mu.Unlock()
			<-ctx.Done()
			return nil, ctx.Err()
		})
		time.Sleep(15 * time.Second)
		stop()
		if len(dials) != 2 || dials[1].Sub(dials[0]) != 10*time.Second+500*time.Millisecond {
			t.Errorf("dialled at %v, want another time 500 ms after 10 s", dials)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		conns := make(pipes)
		s, p := grpc.NewServer(), &testPlugin{info: info("CSIPlugin", "x")}
		registerapi.RegisterRegistrationServer(s, p)
		served := make(chan error, 1)
		go func() { served <- s.Serve(conns) }()
		stop := run(t, conns.dial)
		time.Sleep(time.Second)
		stop()
		close(conns)
		s.Stop()
		<-served
		for method, want := range map[string]time.Duration{
			"GetInfo":                  time.Second,
			"NotifyRegistrationStatus": 5 * time.Second,
		} {
			if got := p.limits[method]; got > want || got < want-50*time.Millisecond {
				t.Errorf("%s is waited for %v, want %v", method, got, want)
			}
		}
	})
}

// TestRecreatedSocket: a plugin that restarts removes its socket and creates it again. The
// deregistration of the old socket must not remove the registration of the new one.
func TestRecreatedSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "plug") // the length of socket paths is limited
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	synctest.Test(t, func(t *testing.T) {
		slow, conns := make(chan struct{}), make(pipes)
		h := &testHandler{gone: map[string]error{}, slow: slow}
		w := New(Config{
			Dir:      dir,
			Dial:     conns.dial,
			Log:      slog.New(slog.NewTextHandler(t.Output(), nil)),
			Handlers: map[string]Handler{CSI: h},
		})
		s := grpc.NewServer()
		registerapi.RegisterRegistrationServer(s, &testPlugin{info: info("CSIPlugin", "gpu")})
		served := make(chan error, 1)
		go func() { served <- s.Serve(conns) }()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		comes := func() net.Listener {
			l, err := net.Listen("unix", filepath.Join(dir, "gpu.sock"))
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		calls := []string{"validate gpu gpu.sock [1.0.0]", "register gpu gpu.sock"}
		expect := func(more ...string) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			calls = append(calls, more...)
			if got := h.calls(); !slices.Equal(got, calls) {
				t.Errorf("calls %q, want %q", got, calls)
			}
		}
		before := comes()
		expect()
		before.Close()
		expect("deregister gpu gpu.sock")
		defer comes().Close()
		expect() // it waits
		close(slow)
		expect("deregistered gpu", "validate gpu gpu.sock [1.0.0]", "register gpu gpu.sock")
		w.mu.Lock()
		for path, r := range w.registered {
			if r.socket != w.sockets[path] {
				t.Errorf("a plugin is registered whose socket was removed")
			}
		}
		if len(w.registered) != 1 {
			t.Errorf("%d plugins are registered, want 1", len(w.registered))
		}
		w.mu.Unlock()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		close(conns)
		s.Stop()
		if err := <-served; err != nil {
			t.Log(err) // the listener was closed
		}
	})
}

// TestSocketRemovedDuringRegistration: the plugin is deregistered with a context that has not
// ended, because its handler may have to call the API server.
func TestSocketRemovedDuringRegistration(t *testing.T) {
	r := newRig(t, nil)
	hasty := &testPlugin{info: info("CSIPlugin", "hasty")}
	path := filepath.Join(r.dir, "hasty.sock")
	seen := make(chan struct{})
	r.h.mu.Lock()
	r.h.taken = func(string) {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
		<-seen
	}
	r.h.mu.Unlock()
	hasty.serve(t, path)
	r.until("the end of its socket", func() bool {
		r.w.mu.Lock()
		defer r.w.mu.Unlock()
		return len(r.w.sockets) == 0
	})
	close(seen)
	r.until("the deregistration", func() bool { return slices.Contains(r.h.calls(), "deregister hasty hasty.sock") })
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	if err := r.h.gone["hasty"]; err != nil {
		t.Errorf("it is given up under a context that has ended: %v", err)
	}
}

// TestPollWithoutWatch: the number of inotify watches on a machine is limited, and pods use them,
// too. Without a watch, existing and new sockets are found by periodic reads.
func TestPollWithoutWatch(t *testing.T) {
	for name, follow := range map[string]func(*Watcher, context.Context) error{
		"nothing can be": func(w *Watcher, ctx context.Context) error {
			return w.follow(ctx, nil, nil, func(string) error { return nil })
		},
		"a directory in it cannot be, at first": func(w *Watcher, ctx context.Context) error {
			tries := 0
			return w.follow(ctx, make(chan fsnotify.Event), make(chan error), func(string) error {
				if tries++; tries > 2 {
					return nil
				}
				return unix.ENOSPC
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			base, err := os.MkdirTemp("", "plug") // the length of socket paths is limited
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(base) })
			dir := filepath.Join(base, "plugins_registry")
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				w := New(Config{
					Dir:  dir,
					Log:  slog.New(slog.NewTextHandler(&log, nil)),
					Dial: func(context.Context, string) (net.Conn, error) { return nil, errors.New("no plugin") },
				})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- follow(w, ctx) }()
				socket := func(name string) {
					l, err := net.Listen("unix", filepath.Join(dir, name))
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { l.Close() })
				}
				known := func() int {
					synctest.Wait()
					w.mu.Lock()
					defer w.mu.Unlock()
					return len(w.sockets)
				}
				if n := known(); n != 0 {
					t.Errorf("%d sockets in an empty directory", n)
				}
				socket("a.sock")
				time.Sleep(pollEvery)
				if n := known(); n != 1 {
					t.Errorf("%d sockets are known, want 1", n)
				}
				if n := strings.Count(log.String(), "failed to watch all"); strings.Contains(name, "at first") &&
					n != 1 {
					t.Errorf("logged %d times:\n%s", n, &log)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
