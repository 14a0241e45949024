package podsapi

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"keelson/test/kit/parity"
)

// node is a node with pods, and a client of its API.
type node struct {
	*Server
	client podsv1alpha1.PodsClient
	mu     sync.Mutex
	pods   map[types.UID]*v1.Pod
	stop   func()
}

func newNode(t *testing.T) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "pods") // short: the path of a socket has little room
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	n := &node{pods: map[types.UID]*v1.Pod{}}
	socket := filepath.Join(dir, Socket)
	// An agent that was killed has left its socket.
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	n.Server = New(Config{
		Socket: socket,
		Log:    slog.New(slog.DiscardHandler),
		Pods: func() (out []*v1.Pod) {
			n.mu.Lock()
			defer n.mu.Unlock()
			for _, p := range n.pods {
				out = append(out, p)
			}
			return out
		},
		Pod: func(uid types.UID) (*v1.Pod, bool) {
			n.mu.Lock()
			defer n.mu.Unlock()
			p, ok := n.pods[uid]
			return p, ok
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	n.client = podsv1alpha1.NewPodsClient(conn)
	n.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { n.stop(); conn.Close() })
	return n
}

// set adds or updates a pod with the given phase; "" removes it.
func (n *node) set(uid types.UID, phase v1.PodPhase) {
	n.mu.Lock()
	if phase == "" {
		delete(n.pods, uid)
	} else {
		n.pods[uid] = &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				UID:       uid,
				Namespace: "ns",
				Name:      "pod-" + string(uid),
				Labels:    map[string]string{"a": "b"},
			},
			Status: v1.PodStatus{Phase: phase},
		}
	}
	n.mu.Unlock()
	n.Changed(uid)
}

func decode(t *testing.T, text []byte) *v1.Pod {
	t.Helper()
	p := &v1.Pod{}
	if err := p.Unmarshal(text); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestListGetAndWatch(t *testing.T) {
	parity.Proves(t, "SRV-66")
	n := newNode(t)
	n.set("1", v1.PodPending)
	n.set("2", v1.PodRunning)
	list, err := n.client.ListPods(t.Context(), &podsv1alpha1.ListPodsRequest{})
	if err != nil || len(list.Pods) != 2 {
		t.Fatalf("listed %v, %v", list, err)
	}
	for _, text := range list.Pods {
		if p := decode(t, text); p.Name != "pod-"+string(p.UID) || p.Labels["a"] != "b" {
			t.Errorf("listed %v", p)
		}
	}
	got, err := n.client.GetPod(t.Context(), &podsv1alpha1.GetPodRequest{PodUID: "2"})
	if err != nil || decode(t, got.Pod).Status.Phase != v1.PodRunning {
		t.Errorf("got %v, %v", got, err)
	}
	for uid, code := range map[string]codes.Code{"3": codes.NotFound, "": codes.InvalidArgument} {
		if _, err := n.client.GetPod(t.Context(), &podsv1alpha1.GetPodRequest{PodUID: uid}); status.Code(err) != code {
			t.Errorf("UID %q: %v", uid, err)
		}
	}

	stream, err := n.client.WatchPods(t.Context(), &podsv1alpha1.WatchPodsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	next := func(kind podsv1alpha1.EventType) *v1.Pod {
		t.Helper()
		ev, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type != kind || (len(ev.Pod) == 0) != (kind == podsv1alpha1.EventType_INITIAL_SYNC_COMPLETE) {
			t.Fatalf("event %v, want %v", ev, kind)
		}
		return decode(t, ev.Pod)
	}
	first, second := next(podsv1alpha1.EventType_ADDED), next(podsv1alpha1.EventType_ADDED)
	if first.UID == second.UID {
		t.Errorf("notified twice of %s", first.UID)
	}
	next(podsv1alpha1.EventType_INITIAL_SYNC_COMPLETE)
	n.set("1", v1.PodRunning)
	if p := next(podsv1alpha1.EventType_MODIFIED); p.UID != "1" || p.Status.Phase != v1.PodRunning {
		t.Errorf("changed: %v", p)
	}
	n.Changed("1") // without a change
	n.Changed("9") // no such pod
	n.set("3", v1.PodPending)
	if p := next(podsv1alpha1.EventType_ADDED); p.UID != "3" {
		t.Errorf("came: %v", p)
	}
	n.set("2", "")
	if p := next(podsv1alpha1.EventType_DELETED); p.UID != "2" || p.Name != "pod-2" || p.Namespace != "ns" {
		t.Errorf("went: %v", p)
	}
	n.stop()
	if _, err := stream.Recv(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("after the agent: %v", err)
	}
	if len(n.watches) != 0 {
		t.Errorf("%d watches are left", len(n.watches))
	}
}

// TestSlowWatcher: events that a watcher has not read do not accumulate, and the last one has the latest state.
func TestSlowWatcher(t *testing.T) {
	n := newNode(t)
	n.set("1", v1.PodPending)
	stream, err := n.client.WatchPods(t.Context(), &podsv1alpha1.WatchPodsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the pod, and the end of the initial sync
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20_000 {
		n.set("1", []v1.PodPhase{v1.PodPending, v1.PodRunning}[i%2])
	}
	n.set("1", v1.PodSucceeded)
	for events := 1; ; events++ {
		ev, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if decode(t, ev.Pod).Status.Phase == v1.PodSucceeded {
			t.Logf("%d events for 20001 changes", events)
			return
		}
	}
}

func TestRateLimit(t *testing.T) {
	n := newNode(t)
	refused := 0
	began := time.Now()
	for range 200 {
		_, err := n.client.ListPods(t.Context(), &podsv1alpha1.ListPodsRequest{})
		if status.Code(err) == codes.ResourceExhausted {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	most := callsAtOnce + int(time.Since(began).Seconds()*callsPerSecond) + 1
	if taken := 200 - refused; taken < callsAtOnce || taken > most {
		t.Errorf("%d of 200 calls were taken, want %d to %d", taken, callsAtOnce, most)
	}
}

// A socket that cannot be created does not stop the agent.
func TestSocketError(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := New(Config{Socket: filepath.Join(dir, "file", "x.sock"), Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Run(ctx); err != nil || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Errorf("Run = %v, %v", err, ctx.Err())
	}
}
