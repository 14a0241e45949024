package node

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/runtime/cri"
)

// fakeServer behaves as an API server with one node and one lease. While down is set every call fails; while hung is
// set every call waits until its connection is closed or its context ends.
type fakeServer struct {
	mu       sync.Mutex
	down     error
	hung     bool
	closed   chan struct{} // of the connections now open
	version  int
	node     *v1.Node
	lease    *coordinationv1.Lease
	watchers []*watch.RaceFreeFakeWatcher
	calls    []string
	times    []time.Time // of calls
	resets   int
	renewals []time.Time
	noCreate bool
	noLease  error // why leases cannot be created
	noRenew  error // why they cannot be updated
	noPatch  error // why the node cannot be patched
}

func newServer() *fakeServer { return &fakeServer{closed: make(chan struct{})} }

func (f *fakeServer) enter(ctx context.Context, call string) error {
	f.mu.Lock()
	f.calls, f.times = append(f.calls, call), append(f.times, time.Now())
	hung, closed := f.hung, f.closed
	f.mu.Unlock()
	if hung {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-closed:
			return errors.New("use of closed network connection")
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.down
}

func (f *fakeServer) closeConnections() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.resets++
	close(f.closed)
	f.closed = make(chan struct{})
}

func (f *fakeServer) count(call string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if c == call {
			n++
		}
	}
	return n
}

// gaps returns the times between successive calls of that kind.
func (f *fakeServer) gaps(call string) (out []time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var last time.Time
	for i, c := range f.calls {
		if c != call {
			continue
		}
		if !last.IsZero() {
			out = append(out, f.times[i].Sub(last))
		}
		last = f.times[i]
	}
	return out
}

func (f *fakeServer) set(change func(*fakeServer)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// storeLocked stores the node as the next version and notifies the watchers.
func (f *fakeServer) storeLocked(n *v1.Node) *v1.Node {
	f.version++
	n.ResourceVersion = strconv.Itoa(f.version)
	f.node = n
	for _, w := range f.watchers {
		if !w.IsStopped() {
			w.Modify(n.DeepCopy())
		}
	}
	return n.DeepCopy()
}

func (f *fakeServer) edit(change func(*v1.Node)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.node.DeepCopy()
	change(n)
	f.storeLocked(n)
}

func (f *fakeServer) snapshot() *v1.Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.node.DeepCopy()
}

type fakeNodes struct{ *fakeServer }

func (f fakeNodes) Get(ctx context.Context, name string) (*v1.Node, error) {
	if err := f.enter(ctx, "get node"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.node == nil {
		return nil, apierrors.NewNotFound(v1.Resource("nodes"), name)
	}
	return f.node.DeepCopy(), nil
}

func (f fakeNodes) Create(ctx context.Context, n *v1.Node) (*v1.Node, error) {
	if err := f.enter(ctx, "create node"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.noCreate {
		return nil, apierrors.NewForbidden(v1.Resource("nodes"), n.Name, errors.New("no"))
	}
	if f.node != nil {
		return nil, apierrors.NewAlreadyExists(v1.Resource("nodes"), n.Name)
	}
	n = n.DeepCopy()
	n.UID = "node-uid"
	return f.storeLocked(n), nil
}

func (f fakeNodes) Patch(ctx context.Context, name string, patch []byte) (*v1.Node, error) {
	return f.patch(ctx, "patch node", patch)
}

func (f fakeNodes) PatchStatus(ctx context.Context, name string, patch []byte) (*v1.Node, error) {
	return f.patch(ctx, "patch status", patch)
}

func (f fakeNodes) patch(ctx context.Context, call string, patch []byte) (*v1.Node, error) {
	if err := f.enter(ctx, call); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.noPatch != nil {
		return nil, f.noPatch
	}
	if f.node == nil {
		return nil, apierrors.NewNotFound(v1.Resource("nodes"), "node1")
	}
	old, err := json.Marshal(f.node)
	if err != nil {
		return nil, err
	}
	text, err := strategicpatch.StrategicMergePatch(old, patch, v1.Node{})
	if err != nil {
		return nil, err
	}
	n := new(v1.Node)
	if err := json.Unmarshal(text, n); err != nil {
		return nil, err
	}
	return f.storeLocked(n), nil
}

func (f fakeNodes) ListWatch(string) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			if err := f.enter(ctx, "list node"); err != nil {
				return nil, err
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			l := &v1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(f.version)}}
			if f.node != nil {
				l.Items = append(l.Items, *f.node.DeepCopy())
			}
			return l, nil
		},
		WatchFuncWithContext: func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
			if err := f.enter(ctx, "watch node"); err != nil {
				return nil, err
			}
			w := watch.NewRaceFreeFake()
			f.set(func(f *fakeServer) { f.watchers = append(f.watchers, w) })
			return w, nil
		},
	}
}

type fakeLeases struct{ *fakeServer }

func (f fakeLeases) Get(ctx context.Context, _, name string) (*coordinationv1.Lease, error) {
	if err := f.enter(ctx, "get lease"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lease == nil {
		return nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), name)
	}
	return f.lease.DeepCopy(), nil
}

func (f fakeLeases) Create(ctx context.Context, ns string, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	f.mu.Lock()
	failed := f.noLease
	f.mu.Unlock()
	if failed != nil {
		if err := f.enter(ctx, "create lease"); err != nil {
			return nil, err
		}
		return nil, failed
	}
	return f.store(ctx, "create lease", l)
}

func (f fakeLeases) Update(
	ctx context.Context,
	ns, name string,
	l *coordinationv1.Lease,
) (*coordinationv1.Lease, error) {
	f.mu.Lock()
	gone := f.lease == nil && f.down == nil && !f.hung
	failed := f.noRenew
	f.mu.Unlock()
	if failed != nil {
		if err := f.enter(ctx, "update lease"); err != nil {
			return nil, err
		}
		return nil, failed
	}
	if gone {
		if err := f.enter(ctx, "update lease"); err != nil {
			return nil, err
		}
		return nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), name)
	}
	return f.store(ctx, "update lease", l)
}

func (f fakeLeases) store(ctx context.Context, call string, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if err := f.enter(ctx, call); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lease != nil && l.ResourceVersion != f.lease.ResourceVersion {
		return nil, apierrors.NewConflict(coordinationv1.Resource("leases"), l.Name, errors.New("changed"))
	}
	f.version++
	f.lease = l.DeepCopy()
	f.lease.ResourceVersion = strconv.Itoa(f.version)
	f.renewals = append(f.renewals, time.Now())
	return f.lease.DeepCopy(), nil
}

// fakeRuntime responds unless it is down. While it hangs, calls wait until their context ends.
type fakeRuntime struct {
	noNetwork atomic.Bool
	unready   atomic.Bool
	asked     atomic.Int32 // calls of Status

	mu     sync.Mutex
	down   bool
	hangs  chan struct{} // nil: calls do not hang
	cidrs  []string
	images []*runtimeapi.Image
	lists  int
}

// hang makes calls hang until back is called.
func (f *fakeRuntime) hang() (back func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	hangs := make(chan struct{})
	f.hangs = hangs
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.hangs = nil
		close(hangs)
	}
}

// wait returns when the runtime does not hang, with the error of the call.
func (f *fakeRuntime) wait(ctx context.Context) error {
	f.mu.Lock()
	hangs := f.hangs
	f.mu.Unlock()
	if hangs != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-hangs:
		}
	}
	return f.err()
}

func (f *fakeRuntime) set(down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = down
}

func (f *fakeRuntime) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return errors.New("connection refused")
	}
	return nil
}

func (f *fakeRuntime) Status(ctx context.Context) (cri.Status, error) {
	f.asked.Add(1)
	err := f.wait(ctx)
	st := healthy(time.Now()).Status
	if f.unready.Load() {
		st.Runtime = cri.Condition{Reason: "Starting", Message: "shim is missing"}
	}
	if f.noNetwork.Load() {
		st.Network = cri.Condition{Reason: "NetworkPluginNotReady", Message: "cni plugin not initialized"}
	}
	return st, err
}

func (f *fakeRuntime) Version(ctx context.Context, _ *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "v2.4.2"}, f.wait(ctx)
}

func (f *fakeRuntime) ListImages(
	ctx context.Context, _ *runtimeapi.ListImagesRequest,
) (*runtimeapi.ListImagesResponse, error) {
	f.mu.Lock()
	f.lists++
	f.mu.Unlock()
	if err := f.wait(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return &runtimeapi.ListImagesResponse{Images: slices.Clone(f.images)}, nil
}

func (f *fakeRuntime) UpdateRuntimeConfig(
	_ context.Context, req *runtimeapi.UpdateRuntimeConfigRequest,
) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cidrs = append(f.cidrs, req.GetRuntimeConfig().GetNetworkConfig().GetPodCidr())
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

// reported reports whether there is an event of that type, reason and message.
func (r *rig) reported(event string) bool { return slices.Contains(r.events.Texts(), event) }
