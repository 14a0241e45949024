package dra

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/test/kit/dradriver"
	"keelson/test/kit/eventlog"
)

const driverName = "gpu.example.com"

// cluster is a fake API server: it has ResourceClaims, and records which ResourceSlices are deleted.
type cluster struct {
	mu     sync.Mutex
	claims map[string]*Object
	reads  int
	fails  error
	wiped  []string
}

func (c *cluster) Claim(_ context.Context, namespace, name string) (*Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	if obj := c.claims[namespace+"/"+name]; obj != nil && c.fails == nil {
		one := *obj
		return &one, nil
	}
	return nil, errors.Join(c.fails, errors.New("not found"))
}

func (c *cluster) Delete(_ context.Context, driver string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fails != nil {
		return c.fails
	}
	c.wiped = append(c.wiped, cmp.Or(driver, "all"))
	return nil
}

func (c *cluster) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// stage is a node with its drivers, in virtual time. The agent on it can be killed.
type stage struct {
	*Manager
	t       *testing.T
	cluster *cluster
	dir     string
	drivers *Drivers
	health  *Health
	end     func()

	mu      sync.Mutex
	sockets map[string]*bufconn.Listener
	events  eventlog.Log
	news    map[types.UID]int
}

// play runs a test in virtual time.
func play(t *testing.T, f func(*stage)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{
			t:       t,
			dir:     dir,
			cluster: &cluster{claims: map[string]*Object{}},
			sockets: map[string]*bufconn.Listener{},
			news:    map[types.UID]int{},
		}
		s.start()
		defer func() { s.end() }()
		f(s)
	})
}

// start starts an agent.
func (s *stage) start() {
	log := slog.New(slog.DiscardHandler)
	s.health = NewHealth(HealthConfig{
		Path:     filepath.Join(s.dir, HealthFile),
		OnChange: func(d string) { s.HealthChanged(d) },
		Log:      log,
	})
	s.drivers = NewDrivers(DriversConfig{
		Slices:   s.cluster,
		Dial:     s.dial,
		OnDriver: func(d string) { s.DriverReady(d) },
		Health:   s.health,
		Log:      log,
	})
	s.Manager = New(Config{
		Path:     s.file(),
		API:      s.cluster,
		Drivers:  s.drivers,
		Health:   s.health,
		Events:   &s.events,
		OnChange: s.changed,
		Log:      log,
	})
	if err := errors.Join(s.Load(), s.health.Load()); err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{s.health.Run, s.drivers.Run, s.Manager.Run} {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				s.t.Error(err)
			}
		})
	}
	s.end = sync.OnceFunc(func() { stop(); wg.Wait() })
}

// kill ends the agent as in a crash: what it writes to the checkpoint while it ends is undone. Then it starts the next
// agent.
func (s *stage) kill() {
	content, err := os.ReadFile(s.file())
	s.end()
	if err == nil {
		err = os.WriteFile(s.file(), content, 0o600)
	}
	if err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	s.start()
}

func (s *stage) file() string { return filepath.Join(s.dir, StateFile) }

func (s *stage) text() string {
	b, err := os.ReadFile(s.file())
	if err != nil && !os.IsNotExist(err) {
		s.t.Error(err)
	}
	return string(b)
}

func (s *stage) dial(ctx context.Context, path string) (net.Conn, error) {
	s.mu.Lock()
	l := s.sockets[path]
	s.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("no listener at %s", path)
	}
	return l.DialContext(ctx)
}

// listen serves a driver at a path.
func (s *stage) listen(d *dradriver.Driver, path string) {
	l := bufconn.Listen(1 << 16)
	s.mu.Lock()
	s.sockets[path] = l
	s.mu.Unlock()
	d.Serve(l)
}

// driver starts a driver and registers it.
func (s *stage) driver(name string, services ...string) *dradriver.Driver {
	d := dradriver.New(dradriver.Config{Name: name, Versions: services})
	s.listen(d, name)
	s.register(name, name, services...)
	s.t.Cleanup(d.Stop)
	return d
}

func (s *stage) register(name, path string, services ...string) {
	if len(services) == 0 {
		services = []string{dradriver.V1}
	}
	if err := errors.Join(s.drivers.Validate(name, path, services),
		s.drivers.Register(context.Background(), name, path, services)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) changed(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.news[uid]++
}

// claim creates a claim with devices of the drivers, which is reserved for the pods.
func (s *stage) claim(name string, drivers []string, pods ...*v1.Pod) *Object {
	c := &Object{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name)},
		Allocated:   true,
		Drivers:     drivers,
		ReservedFor: reservedFor(pods...),
	}
	s.cluster.set(func() { s.cluster.claims["ns/"+name] = c })
	return c
}

// using returns a pod whose container uses the claims.
func using(name string, claims ...string) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main"}}},
	}
	for _, c := range claims {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, v1.PodResourceClaim{Name: c, ResourceClaimName: &c})
		p.Spec.Containers[0].Resources.Claims = append(p.Spec.Containers[0].Resources.Claims, v1.ResourceClaim{Name: c})
	}
	return p
}

// wants calls Want for a pod, and waits until the first attempt has ended or blocks.
func (s *stage) wants(p *v1.Pod) {
	s.Want(p)
	synctest.Wait()
}

func (s *stage) releases(p *v1.Pod) {
	s.Release(pod.RefOf(p))
	synctest.Wait()
}

// is checks the result of Ready for a pod.
func (s *stage) is(p *v1.Pod, ready bool, failure string) {
	s.t.Helper()
	got, err := s.Ready(p.UID)
	logged := ""
	if err != nil {
		logged = err.Error()
	}
	if got != ready || (failure == "") != (logged == "") || !strings.Contains(logged, failure) {
		s.t.Errorf("%s is ready: %v, %q; want %v, %q", p.Name, got, logged, ready, failure)
	}
}

// calls returns the calls that a driver got.
func calls(d *dradriver.Driver) string {
	var out []string
	for _, c := range d.Calls() {
		out = append(out, strings.TrimSuffix(strings.TrimPrefix(c.Method, "Node"), "Resources")+" "+c.Claim)
	}
	return strings.Join(out, ", ")
}

func (s *stage) called(d *dradriver.Driver, want string) {
	s.t.Helper()
	if got := calls(d); got != want {
		s.t.Errorf("the driver was called: %s; want %s", got, want)
	}
}

func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func reservedFor(pods ...*v1.Pod) (out []types.UID) {
	for _, p := range pods {
		out = append(out, p.UID)
	}
	return out
}

func ownedBy(p *v1.Pod) []metav1.OwnerReference {
	is := true
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: &is}}
}
