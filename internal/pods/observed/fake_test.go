package observed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
)

// fakeRuntime holds sandboxes and containers whose state only moves forward, counts the calls, and has an event stream
// unless noStream is set.
type fakeRuntime struct {
	mu         sync.Mutex
	sandboxes  map[string]*runtimeapi.PodSandboxStatus
	containers map[string]*runtimeapi.ContainerStatus
	in         map[string]string // container → sandbox
	calls      map[string]int
	events     chan *runtimeapi.ContainerEventResponse // nil: not used
	broken     chan struct{}
	noStream   bool
	silent     bool // changes send no events
	latency    time.Duration
	mangle     *rand.Rand // events are lost, doubled, late and out of order
	down       error
	hang       map[string]bool // ids whose status call hangs
	linger     map[string]int  // ids that stay listed for so many more lists after their removal
}

func newFake() *fakeRuntime {
	return &fakeRuntime{
		sandboxes:  map[string]*runtimeapi.PodSandboxStatus{},
		containers: map[string]*runtimeapi.ContainerStatus{},
		in:         map[string]string{},
		calls:      map[string]int{},
		hang:       map[string]bool{},
		linger:     map[string]int{},
	}
}

const (
	created = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
	started = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
	stopped = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
	deleted = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
)

func labels(uid, container string) map[string]string {
	l := map[string]string{pod.LabelPodUID: uid, pod.LabelPodName: "pod-" + uid, pod.LabelPodNamespace: "ns"}
	if container != "" {
		l[pod.LabelContainerName] = container
	}
	return l
}

func (f *fakeRuntime) run(uid, id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sandboxes[id] = &runtimeapi.PodSandboxStatus{
		Id: id, CreatedAt: time.Now().UnixNano(), Labels: labels(uid, ""),
		State:   runtimeapi.PodSandboxState_SANDBOX_READY,
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.1"},
	}
	f.emit(id, id, created)
	f.emit(id, id, started)
}

func (f *fakeRuntime) start(uid, sandbox, name, id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.in[id] = sandbox
	c := &runtimeapi.ContainerStatus{Id: id, CreatedAt: time.Now().UnixNano(), Labels: labels(uid, name)}
	f.containers[id] = c
	f.emit(id, sandbox, created)
	c = f.edit(id)
	c.State, c.StartedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, time.Now().UnixNano()
	f.emit(id, sandbox, started)
}

// edit replaces a container's status by a copy: events hold the earlier one.
func (f *fakeRuntime) edit(id string) *runtimeapi.ContainerStatus {
	o := f.containers[id]
	f.containers[id] = &runtimeapi.ContainerStatus{
		Id: o.Id, CreatedAt: o.CreatedAt, StartedAt: o.StartedAt, Labels: o.Labels, State: o.State,
		Annotations: o.Annotations, Mounts: o.Mounts, LogPath: o.LogPath, ExitCode: o.ExitCode,
	}
	return f.containers[id]
}

func (f *fakeRuntime) exit(id string, code int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.edit(id)
	c.State, c.FinishedAt, c.ExitCode = runtimeapi.ContainerState_CONTAINER_EXITED, time.Now().UnixNano(), code
	f.emit(id, f.in[id], stopped)
}

func (f *fakeRuntime) remove(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sandboxes[id] != nil {
		f.emit(id, id, deleted)
		if f.linger[id] == 0 {
			delete(f.sandboxes, id)
		}
		return
	}
	delete(f.containers, id)
	f.emit(id, f.in[id], deleted)
}

func (f *fakeRuntime) emit(id, sandbox string, kind runtimeapi.ContainerEventType) {
	if f.events == nil || f.silent {
		return
	}
	ev := &runtimeapi.ContainerEventResponse{
		ContainerId:        id,
		ContainerEventType: kind,
		CreatedAt:          time.Now().UnixNano(),
		PodSandboxStatus:   f.sandboxes[sandbox],
	}
	for cid, c := range f.containers {
		if f.in[cid] == sandbox {
			ev.ContainersStatuses = append(ev.ContainersStatuses, c)
		}
	}
	if f.mangle == nil {
		f.events <- ev
		return
	}
	events := f.events
	for range []int{0, 1, 1, 1, 2}[f.mangle.IntN(5)] {
		time.AfterFunc(time.Duration(f.mangle.IntN(500))*time.Millisecond, func() { events <- ev })
	}
}

func (f *fakeRuntime) breakStream() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.broken)
}

// count counts a call and returns the error of a runtime that is down.
func (f *fakeRuntime) count(call string) error {
	f.calls[call]++
	return f.down
}

func (f *fakeRuntime) called(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[call]
}

func (f *fakeRuntime) forgetCalls() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.calls)
}

func (f *fakeRuntime) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeRuntime) total() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, c := range f.calls {
		n += c
	}
	return n
}

func (f *fakeRuntime) ListPodSandbox(
	_ context.Context, r *runtimeapi.ListPodSandboxRequest,
) (*runtimeapi.ListPodSandboxResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.count("ListPodSandbox"); err != nil {
		return nil, err
	}
	resp := &runtimeapi.ListPodSandboxResponse{}
	for id, s := range f.sandboxes {
		if want := r.GetFilter().GetLabelSelector()[pod.LabelPodUID]; want == "" || want == s.Labels[pod.LabelPodUID] {
			resp.Items = append(resp.Items, &runtimeapi.PodSandbox{
				Id:        id,
				State:     s.State,
				Labels:    s.Labels,
				CreatedAt: s.CreatedAt,
			})
		}
		if f.linger[id] > 0 {
			if f.linger[id]--; f.linger[id] == 0 {
				delete(f.sandboxes, id)
			}
		}
	}
	return resp, nil
}

func (f *fakeRuntime) ListContainers(
	_ context.Context, r *runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	f.mu.Lock()
	latency := f.latency
	f.mu.Unlock()
	time.Sleep(latency)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.count("ListContainers"); err != nil {
		return nil, err
	}
	resp := &runtimeapi.ListContainersResponse{}
	for id, c := range f.containers {
		if want := r.GetFilter().GetLabelSelector()[pod.LabelPodUID]; want == "" || want == c.Labels[pod.LabelPodUID] {
			resp.Containers = append(resp.Containers, &runtimeapi.Container{
				Id:           id,
				PodSandboxId: f.in[id],
				State:        c.State,
				Labels:       c.Labels,
				CreatedAt:    c.CreatedAt,
			})
		}
	}
	return resp, nil
}

func (f *fakeRuntime) PodSandboxStatus(
	ctx context.Context, r *runtimeapi.PodSandboxStatusRequest,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.count("PodSandboxStatus"); err != nil {
		return nil, err
	}
	s, ok := f.sandboxes[r.PodSandboxId]
	if !ok {
		return nil, fmt.Errorf("read sandbox: %w", status.Error(codes.NotFound, "gone"))
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: s}, nil
}

func (f *fakeRuntime) ContainerStatus(
	ctx context.Context, r *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	f.mu.Lock()
	if f.hang[r.ContainerId] {
		f.mu.Unlock()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	defer f.mu.Unlock()
	if err := f.count("ContainerStatus"); err != nil {
		return nil, err
	}
	c, ok := f.containers[r.ContainerId]
	if !ok {
		return nil, fmt.Errorf("read container: %w", status.Error(codes.NotFound, "gone"))
	}
	return &runtimeapi.ContainerStatusResponse{Status: c}, nil
}

func (f *fakeRuntime) ContainerEvents(ctx context.Context, handle func(*runtimeapi.ContainerEventResponse)) error {
	f.mu.Lock()
	if f.noStream {
		f.mu.Unlock()
		return status.Error(codes.Unimplemented, "no events here")
	}
	if f.down != nil {
		f.mu.Unlock()
		return f.down
	}
	events, broken := make(chan *runtimeapi.ContainerEventResponse, 1000), make(chan struct{})
	f.events, f.broken = events, broken
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.events = nil
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-broken:
			return errors.New("stream broke")
		case ev := <-events:
			handle(ev)
		}
	}
}
