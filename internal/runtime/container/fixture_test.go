package container

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
	"keelson/test/kit/eventlog"
	"keelson/test/kit/fakecri"
)

const busybox = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1"

// fakeRuntime is the behaving fake, extended by records of calls and injected failures.
type fakeRuntime struct {
	*fakecri.Runtime
	mu     sync.Mutex
	stops  []int64          // timeouts of StopContainer, in order
	images int              // calls of ImageStatus
	fail   map[string]error // by method
}

func (f *fakeRuntime) failing(method string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fail[method]
}

func (f *fakeRuntime) CreateContainer(
	ctx context.Context, req *runtimeapi.CreateContainerRequest,
) (*runtimeapi.CreateContainerResponse, error) {
	if err := f.failing("CreateContainer"); err != nil {
		return nil, err
	}
	return f.Runtime.CreateContainer(ctx, req)
}

// StartContainer fails as runtimes do, with the container ID in the error.
func (f *fakeRuntime) StartContainer(
	ctx context.Context, req *runtimeapi.StartContainerRequest,
) (*runtimeapi.StartContainerResponse, error) {
	if err := f.failing("StartContainer"); err != nil {
		return nil, fmt.Errorf("start container: %w",
			status.Errorf(codes.Unknown, "%v: container %s", err, req.GetContainerId()))
	}
	return f.Runtime.StartContainer(ctx, req)
}

func (f *fakeRuntime) StopContainer(
	ctx context.Context, req *runtimeapi.StopContainerRequest,
) (*runtimeapi.StopContainerResponse, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.stops = append(f.stops, req.GetTimeout())
	f.mu.Unlock()
	return f.Runtime.StopContainer(ctx, req)
}

func (f *fakeRuntime) ImageStatus(
	ctx context.Context, req *runtimeapi.ImageStatusRequest,
) (*runtimeapi.ImageStatusResponse, error) {
	f.mu.Lock()
	f.images++
	f.mu.Unlock()
	return f.Runtime.ImageStatus(ctx, req)
}

func (f *fakeRuntime) ExecSync(
	ctx context.Context, req *runtimeapi.ExecSyncRequest,
) (*runtimeapi.ExecSyncResponse, error) {
	if req.GetTimeout() != 0 {
		return nil, fmt.Errorf("hook has a timeout of its own: %d", req.GetTimeout())
	}
	return f.Runtime.ExecSync(ctx, req)
}

// fakeObjects holds objects of all namespaces under namespace/name.
type fakeObjects struct {
	maps    map[string]map[string]string
	secrets map[string]map[string]string
}

func (f fakeObjects) ConfigMap(_ context.Context, ns, name string) (*v1.ConfigMap, error) {
	data, ok := f.maps[ns+"/"+name]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
	}
	return &v1.ConfigMap{Data: data}, nil
}

func (f fakeObjects) Secret(_ context.Context, ns, name string) (*v1.Secret, error) {
	data, ok := f.secrets[ns+"/"+name]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
	}
	s := &v1.Secret{Data: map[string][]byte{}}
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	return s, nil
}

type fakeServices struct {
	all    []*v1.Service
	unread bool
}

func (f fakeServices) Synced() bool { return !f.unread }

func (f fakeServices) List(ns string) []*v1.Service {
	var out []*v1.Service
	for _, s := range f.all {
		if s.Namespace == ns {
			out = append(out, s)
		}
	}
	return out
}

func service(ns, name, ip string, ports ...v1.ServicePort) *v1.Service {
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec:       v1.ServiceSpec{ClusterIP: ip, Ports: ports},
	}
}

// bench is a Runner with its environment.
type bench struct {
	*Runner
	runtime *fakeRuntime
	events  *eventlog.Log
	root    string
	logs    string
	image   string // reference of the busybox image
}

func newBench(t testing.TB, change func(*Config)) bench {
	t.Helper()
	dir := t.TempDir()
	resolv := filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver 127.0.0.1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b := bench{
		runtime: &fakeRuntime{Runtime: fakecri.New(fakecri.Options{}), fail: map[string]error{}},
		events:  &eventlog.Log{},
		root:    filepath.Join(dir, "root"),
		logs:    filepath.Join(dir, "pods"),
	}
	b.image = b.runtime.AddImage(fakecri.Image{Name: busybox, Local: true})
	cfg := Config{
		Runtime: b.runtime,
		Objects: fakeObjects{},
		Services: fakeServices{
			all: []*v1.Service{
				service("default", "kubernetes", "10.96.0.1", v1.ServicePort{
					Name:     "https",
					Port:     443,
					Protocol: v1.ProtocolTCP,
				}),
			},
		},
		Events: b.events,
		Node: func() NodeFacts {
			return NodeFacts{
				Name:    "node1",
				HostIPs: []string{"192.0.2.10"},
				Allocatable: v1.ResourceList{
					v1.ResourceCPU:    resource.MustParse("2"),
					v1.ResourceMemory: resource.MustParse("24581696Ki"),
				},
				Memory: 24684096 << 10,
			}
		},
		Kernel: Kernel{SwapController: true, HugePageSizes: []string{"2MB", "1GB"}},
		DNS: DNSConfig{
			ClusterDNS:    []string{"10.96.0.10"},
			ClusterDomain: "cluster.local",
			ResolvConf:    resolv,
		},
		RootDir:          b.root,
		PodLogsDir:       b.logs,
		ContainerLogsDir: filepath.Join(dir, "containers"),
		CgroupParent: func(p *v1.Pod) string {
			return map[v1.PodQOSClass]string{
				v1.PodQOSGuaranteed: "/kubepods", v1.PodQOSBurstable: "/kubepods/burstable",
				v1.PodQOSBestEffort: "/kubepods/besteffort",
			}[pod.QOS(p)] + "/pod" + string(p.UID)
		},
		RuntimeHandler: func(*v1.Pod) (string, error) { return "", nil },
		Settings: Settings{
			CPUQuota:       true,
			CPUQuotaPeriod: 100 * time.Millisecond,
			Version:        "1.36",
		},
		Log: slog.New(slog.DiscardHandler),
		Now: time.Now,
	}
	if change != nil {
		change(&cfg)
	}
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.Runner = r
	return b
}

// run creates the pod's sandbox.
func (b bench) run(t testing.TB, p *v1.Pod) pod.Sandbox {
	t.Helper()
	id, err := b.RunSandbox(t.Context(), p, 0)
	if err != nil {
		t.Fatal(err)
	}
	return pod.Sandbox{ID: id, Ready: true}
}

// startOf returns the input to start a pod's first container.
func (b bench) startOf(p *v1.Pod, s pod.Sandbox) Start {
	return Start{Pod: p, Container: &p.Spec.Containers[0], Sandbox: s, PodIPs: []string{"10.88.0.2"}, ImageRef: b.image}
}

// simplePod returns a pod of one container named main.
func simplePod(change func(*v1.Container)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "uid-1"},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name:                     "main",
			Image:                    busybox,
			Command:                  []string{"sh", "-c", "sleep infinity"},
			TerminationMessagePath:   "/dev/termination-log",
			TerminationMessagePolicy: v1.TerminationMessageReadFile,
		}}},
	}
	if change != nil {
		change(&p.Spec.Containers[0])
	}
	return p
}
