package builtin

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
	"keelson/test/kit/await"
	"keelson/test/kit/eventlog"
	"keelson/test/kit/volumenode"
)

// testNode is a node with these kinds of volumes on a real file system.
type testNode struct {
	*volume.Manager
	t       testing.TB
	root    string
	objects *fakeObjects
	tokens  *fakeTokens
	events  *eventlog.Log
	changed chan types.UID
	stop    func()
	maySwap bool
	trust   *fakeTrust // nil: the gates are disabled
}

type fakeObjects struct {
	mu      sync.Mutex
	maps    map[string]*v1.ConfigMap // by namespace/name
	secrets map[string]*v1.Secret
}

func (f *fakeObjects) ConfigMap(_ context.Context, ns, name string) (*v1.ConfigMap, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o := f.maps[ns+"/"+name]; o != nil {
		return o, nil
	}
	return nil, apierrors.NewNotFound(v1.Resource("configmap"), name)
}

func (f *fakeObjects) Secret(_ context.Context, ns, name string) (*v1.Secret, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o := f.secrets[ns+"/"+name]; o != nil {
		return o, nil
	}
	return nil, apierrors.NewNotFound(v1.Resource("secret"), name)
}

func (f *fakeObjects) putMap(name string, data map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.maps["ref/"+name] = &v1.ConfigMap{Data: data}
}

func (f *fakeObjects) putSecret(name string, data map[string][]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.secrets["ref/"+name] = &v1.Secret{Data: data}
}

type fakeTokens struct {
	mu    sync.Mutex
	n     int
	life  time.Duration
	asked []string
}

func (f *fakeTokens) Token(
	_ context.Context, p *v1.Pod, audiences []string, seconds *int64,
) (string, time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	f.asked = append(f.asked, fmt.Sprint(p.UID, audiences, *seconds))
	return fmt.Sprintf("token-%d", f.n), time.Now().Add(f.life), nil
}

func (f *fakeTokens) Forget(types.UID) {}

// metricOf returns the value of a metric without labels.
func metricOf(t *testing.T, n *testNode, name string) float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(n.Manager)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.Metric[0].GetCounter().GetValue() + f.Metric[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

func newTestNode(t testing.TB) *testNode {
	t.Helper()
	n := &testNode{
		t:       t,
		root:    volumenode.Root(t),
		objects: &fakeObjects{maps: map[string]*v1.ConfigMap{}, secrets: map[string]*v1.Secret{}},
		tokens:  &fakeTokens{life: time.Hour},
		events:  &eventlog.Log{},
	}
	n.start()
	return n
}

func allocatable() v1.ResourceList {
	return v1.ResourceList{v1.ResourceMemory: resource.MustParse("24581696Ki"), v1.ResourceCPU: resource.MustParse("2")}
}

func newManager(
	root string, objects Objects, tokens Tokens, events pod.Events, onChange func(
		types.UID,
	), maySwap bool, trust *fakeTrust,
) *volume.Manager {
	guard := mount.NewGuard()
	cfg := Config{Objects: objects, Tokens: tokens, Allocatable: allocatable, Guard: guard}
	if trust != nil {
		cfg.Bundles, cfg.Certificates = trust, trust
	}
	return volume.New(volume.Config{
		RootDir:           root,
		Kinds:             append(New(cfg), hostDirs{}),
		Guard:             guard,
		Events:            events,
		MaySwap:           func() (bool, error) { return maySwap, nil },
		StatsPeriod:       time.Minute,
		RecursiveReadOnly: func(*v1.Pod) bool { return true },
		OnChange:          onChange,
		Log:               slog.New(slog.DiscardHandler),
	})
}

// start runs a manager on the existing state, as after a restart of the agent.
func (n *testNode) start() {
	n.changed = make(chan types.UID, 1000)
	n.Manager = newManager(n.root, n.objects, n.tokens, n.events, func(uid types.UID) { n.changed <- uid }, n.maySwap,
		n.trust)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	m := n.Manager
	go func() { done <- m.Run(ctx) }()
	n.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Errorf("Run = %v", err)
		}
	})
	n.t.Cleanup(n.stop)
}

func (n *testNode) restart() {
	n.stop()
	n.start()
}

// until waits for a condition, which is checked at each change.
func (n *testNode) until(what string, ok func() bool) {
	n.t.Helper()
	for end := time.After(time.Minute); !ok(); {
		select {
		case <-n.changed:
		case <-end:
			n.t.Fatalf("never: %s", what)
		}
	}
}

// lastEvent waits until the last event is the wanted one.
func (n *testNode) lastEvent(want string) {
	n.t.Helper()
	await.Until(n.t, "the event\n"+want, func() (string, bool) {
		last := n.events.Last()
		return last, last == want
	})
}

func (n *testNode) ready(p *v1.Pod) {
	n.t.Helper()
	n.Want(p)
	n.until("volumes of "+p.Name+" are ready", func() bool {
		s := n.State(p.UID)
		if s.Err != nil {
			n.t.Fatalf("volumes of %s: %v", p.Name, s.Err)
		}
		return s.Ready
	})
}

func (n *testNode) release(p *v1.Pod) {
	n.t.Helper()
	n.Release(pod.RefOf(p))
	n.until("volumes of "+p.Name+" are released", func() bool {
		done, err := n.Released(p.UID)
		if err != nil {
			n.t.Fatal(err)
		}
		return done
	})
}

func (n *testNode) mounts(p *v1.Pod, c *v1.Container) []pod.Mount {
	n.t.Helper()
	ms, err := n.Mounts(context.Background(), p, c, func(s string) (string, error) { return s, nil })
	if err != nil {
		n.t.Fatal(err)
	}
	return ms
}

func (n *testNode) dir(p *v1.Pod, plugin, name string) string {
	return filepath.Join(n.root, "pods", string(p.UID), "volumes", "kubernetes.io~"+plugin, name)
}

func (n *testNode) read(path string) string {
	n.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		n.t.Fatal(err)
	}
	return string(b)
}

func (n *testNode) mounted() []string {
	n.t.Helper()
	points, err := mount.At(n.root)
	if err != nil {
		n.t.Fatal(err)
	}
	return points
}

// referencePods are the pods whose volumes were recorded.
func referencePods() (map[string]*v1.Pod, error) {
	b, err := os.ReadFile("testdata/pods.yaml")
	if err != nil {
		return nil, err
	}
	pods := map[string]*v1.Pod{}
	for doc := range strings.SplitSeq(string(b), "\n---\n") {
		p := &v1.Pod{}
		if err := yaml.UnmarshalStrict([]byte(doc), p); err != nil {
			return nil, err
		}
		pods[p.Name] = p
	}
	return pods, nil
}

// referenceObjects are the objects that those pods refer to.
func referenceObjects() *fakeObjects {
	o := &fakeObjects{maps: map[string]*v1.ConfigMap{}, secrets: map[string]*v1.Secret{}}
	o.putMap("ref-cm", map[string]string{"a": "1", "b.txt": "two"})
	o.putMap("kube-root-ca.crt", map[string]string{"ca.crt": "PEM"})
	o.putSecret("ref-sec", map[string][]byte{"s": []byte("shh")})
	return o
}

// podWith returns a pod whose container mounts all these volumes at /<name>.
func podWith(uid types.UID, vols ...v1.Volume) *v1.Pod {
	c := v1.Container{Name: "main"}
	for _, v := range vols {
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ref", Name: "pod-" + string(uid), UID: uid},
		Spec:       v1.PodSpec{Containers: []v1.Container{c}, Volumes: vols},
	}
}
