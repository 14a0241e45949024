package device

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/internal/resources/numa"
	"keelson/test/kit/await"
	"keelson/test/kit/deviceplugin"
	"keelson/test/kit/eventlog"
)

// machine is a node where plugins can register.
type machine struct {
	t    *testing.T
	dir  string
	pool *Manager
	stop func()
	boot time.Time
	runs map[types.UID]bool // running pods in the runtime; nil: it does not answer

	wait time.Duration
	log  slog.Handler // nil: not used

	mu     sync.Mutex
	late   int               // calls of OnPending
	node   int               // calls of OnNode
	woken  map[types.UID]int // calls of OnPod
	events eventlog.Log
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "dev") // short: the path of a socket has little room
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m := &machine{t: t, dir: dir + "/device-plugins", runs: map[types.UID]bool{}, woken: map[types.UID]int{}}
	m.start()
	t.Cleanup(func() { m.stop() })
	return m
}

// build returns the Manager of an agent that does not run yet.
func (m *machine) build() *Manager {
	running := func() (map[types.UID]bool, error) {
		if m.runs == nil {
			return nil, errors.New("no answer")
		}
		return m.runs, nil
	}
	log := slog.DiscardHandler
	if m.log != nil {
		log = m.log
	}
	return New(Config{
		Dir:        m.dir,
		Nodes:      numa.NodesOf(0, 1),
		Booted:     m.boot,
		Running:    running,
		Events:     &m.events,
		Log:        slog.New(log),
		PluginWait: m.wait,
		OnPending:  func() { m.mu.Lock(); defer m.mu.Unlock(); m.late++ },
		OnNode:     func() { m.mu.Lock(); defer m.mu.Unlock(); m.node++ },
		OnPod:      func(uid types.UID) { m.mu.Lock(); defer m.mu.Unlock(); m.woken[uid]++ },
	})
}

// waits returns the number of calls of OnPending.
func (m *machine) waits() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.late
}

// start starts an agent.
func (m *machine) start() {
	m.t.Helper()
	m.pool = m.build()
	m.run()
}

// run runs the Manager, and waits until it serves the registration socket.
func (m *machine) run() {
	m.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	pool := m.pool
	go func() { done <- pool.Run(ctx) }()
	m.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			m.t.Error(err)
		}
	})
	m.until("the socket", func() bool { pool.mu.Lock(); defer pool.mu.Unlock(); return pool.owned })
}

// restart stops the agent and starts the next one.
func (m *machine) restart() {
	m.t.Helper()
	m.stop()
	m.start()
}

func (m *machine) until(what string, ok func() bool) {
	m.t.Helper()
	await.True(m.t, what, ok)
}

// plugin starts a plugin and waits until its devices are known.
func (m *machine) plugin(cfg deviceplugin.Config, ids ...string) *deviceplugin.Plugin {
	m.t.Helper()
	if cfg.Dir = m.dir; cfg.Socket == "" {
		cfg.Socket = "p.sock"
	}
	p := deviceplugin.New(cfg, ids...)
	if err := p.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(p.Stop)
	m.register(p, cfg.Resource, len(ids))
	return p
}

func (m *machine) register(p *deviceplugin.Plugin, resource string, n int) {
	m.t.Helper()
	if err := p.Register(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
	m.amount(resource, n, n)
}

// amount waits until the resource has there devices, and well of them are healthy.
func (m *machine) amount(resource string, there, well int) {
	m.t.Helper()
	m.until(fmt.Sprintf("%d of %d devices of %s", well, there, resource), func() bool {
		t, w, _ := m.pool.Capacity()
		n, known := t[resource]
		return known && n == there && w[resource] == well
	})
}

// admit allocates devices to a pod and calls the plugins.
func (m *machine) admit(p *v1.Pod) error { return m.assign(p, numa.Hint{}) }

func (m *machine) assign(p *v1.Pod, at numa.Hint) error {
	for _, c := range pod.Containers(p) {
		if err := m.pool.Allocate(p, c, at); err != nil {
			return err
		}
	}
	return m.pool.Confirm(m.t.Context(), p)
}

// starts returns what the plugins contribute to a container of the pod.
func (m *machine) starts(p *v1.Pod, name string) pod.Contribution {
	m.t.Helper()
	_, c, _ := pod.Find(p, name)
	got, err := m.pool.Contribute(m.t.Context(), p, c)
	if err != nil {
		m.t.Fatal(err)
	}
	return got
}

// ids returns the IDs of the devices of a container.
func (m *machine) ids(p *v1.Pod, name string) (out []string) {
	for _, h := range m.pool.Devices(p.UID, name) {
		out = append(out, h.ID)
	}
	return out
}

// free returns the IDs of the healthy devices that are not allocated.
func (m *machine) free(resource string) []string {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	return slices.Sorted(maps.Keys(m.pool.freeLocked(resource)))
}

// wants returns a container that requests n devices.
func wants(name, resourceName string, n int64) v1.Container {
	return v1.Container{
		Name: name,
		Resources: v1.ResourceRequirements{
			Limits: v1.ResourceList{v1.ResourceName(resourceName): *apiresource.NewQuantity(n, apiresource.DecimalSI)},
		},
	}
}

func podOf(uid string, containers ...v1.Container) *v1.Pod {
	p := &v1.Pod{}
	p.UID, p.Name, p.Namespace = types.UID(uid), uid, "ns"
	p.Spec.Containers = containers
	return p
}

func one() apiresource.Quantity { return *apiresource.NewQuantity(1, apiresource.DecimalSI) }

var noHint numa.Hint
