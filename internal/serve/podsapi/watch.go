package podsapi

import (
	"crypto/sha256"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// watch is the state of one watch.
type watch struct {
	wake chan struct{} // capacity 1

	mu      sync.Mutex
	pending map[types.UID]struct{} // pods that may have changed since they were sent
}

func (w *watch) add(uid types.UID) {
	w.mu.Lock()
	w.pending[uid] = struct{}{}
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// take returns the pending pods and clears them.
func (w *watch) take() map[types.UID]struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	due := w.pending
	w.pending = map[types.UID]struct{}{}
	return due
}

// sentPod identifies the version of a pod that was sent last.
type sentPod struct {
	namespace, name string
	sum             [sha256.Size]byte
}

// WatchPods sends the current pods, then an event that the initial sync is complete, and then changes.
func (s *Server) WatchPods(
	_ *podsv1alpha1.WatchPodsRequest, stream grpc.ServerStreamingServer[podsv1alpha1.WatchPodsEvent],
) error {
	w := &watch{wake: make(chan struct{}, 1), pending: map[types.UID]struct{}{}}
	s.mu.Lock()
	s.watches[w] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.watches, w)
		s.mu.Unlock()
	}()
	known := map[types.UID]sentPod{}
	for _, p := range s.cfg.Pods() { // later changes are pending
		if err := sendEvent(stream, known, p.UID, p); err != nil {
			return err
		}
	}
	if err := stream.Send(
		&podsv1alpha1.WatchPodsEvent{Type: podsv1alpha1.EventType_INITIAL_SYNC_COMPLETE}); err != nil {
		return err
	}
	for {
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-w.wake:
		}
		for uid := range w.take() {
			p, ok := s.cfg.Pod(uid)
			if !ok {
				p = nil
			}
			if err := sendEvent(stream, known, uid, p); err != nil {
				return err
			}
		}
	}
}

// sendEvent sends an event if the pod differs from what was sent last. p is nil if the pod was deleted.
func sendEvent(
	stream grpc.ServerStreamingServer[podsv1alpha1.WatchPodsEvent], known map[types.UID]sentPod, uid types.UID, p *v1.Pod,
) error {
	before, knew := known[uid]
	kind := podsv1alpha1.EventType_MODIFIED
	switch {
	case p == nil && !knew:
		return nil
	case p == nil:
		delete(known, uid)
		kind = podsv1alpha1.EventType_DELETED
		p = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: before.namespace, Name: before.name, UID: uid}}
	case !knew:
		kind = podsv1alpha1.EventType_ADDED
	}
	text, err := p.Marshal()
	if err != nil {
		return status.Errorf(codes.Internal, "encode pod %s/%s: %v", p.Namespace, p.Name, err)
	}
	if kind != podsv1alpha1.EventType_DELETED {
		now := sentPod{p.Namespace, p.Name, sha256.Sum256(text)}
		if knew && now == before {
			return nil
		}
		known[uid] = now
	}
	return stream.Send(&podsv1alpha1.WatchPodsEvent{Type: kind, Pod: text})
}
