package fakecri

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// keepEvents is how long events wait for a client, as in containerd.
const keepEvents = 5 * time.Minute

// eventQueue sends events to every subscriber in order; without subscribers it
// keeps them for the next one. Runtime.mu guards it.
type eventQueue struct {
	kept []*cri.ContainerEventResponse
	subs map[*subscriber]bool
}

type subscriber struct {
	pending []*cri.ContainerEventResponse
	wake    chan struct{} // capacity 1
	broken  error         // set once; ends the stream
}

func (s *subscriber) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// emitLocked sends an event to the subscribers, with the present status of the pod.
func (r *Runtime) emitLocked(containerID, sandboxID string, kind cri.ContainerEventType) {
	if r.opts.NoEvents {
		return
	}
	e := &cri.ContainerEventResponse{ContainerId: containerID, ContainerEventType: kind, CreatedAt: r.nowLocked()}
	if s := r.sandboxes[sandboxID]; s != nil {
		e.PodSandboxStatus = r.sandboxStatusLocked(s)
		e.ContainersStatuses = r.containerStatusesLocked(s)
	}
	if len(r.events.subs) == 0 {
		oldest := time.Now().Add(-keepEvents).UnixNano()
		for len(r.events.kept) > 0 && r.events.kept[0].CreatedAt < oldest {
			r.events.kept = r.events.kept[1:]
		}
		r.events.kept = append(r.events.kept, e)
		return
	}
	for s := range r.events.subs {
		s.pending = append(s.pending, e)
		s.poke()
	}
}

// GetContainerEvents streams events until the caller ends the stream or BreakEvents is called.
func (r *Runtime) GetContainerEvents(
	_ *cri.GetEventsRequest, stream cri.RuntimeService_GetContainerEventsServer,
) error {
	if r.opts.NoEvents {
		return status.Error(codes.Unimplemented, "method GetContainerEvents not implemented")
	}
	sub := &subscriber{wake: make(chan struct{}, 1)}
	r.mu.Lock()
	oldest := time.Now().Add(-keepEvents).UnixNano()
	for _, e := range r.events.kept {
		if e.CreatedAt >= oldest {
			sub.pending = append(sub.pending, e)
		}
	}
	r.events.kept = nil
	if r.events.subs == nil {
		r.events.subs = map[*subscriber]bool{}
	}
	r.events.subs[sub] = true
	r.mu.Unlock()
	sub.poke()
	defer func() {
		r.mu.Lock()
		delete(r.events.subs, sub)
		r.mu.Unlock()
	}()
	for {
		select {
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-sub.wake:
		}
		r.mu.Lock()
		batch, broken := sub.pending, sub.broken
		sub.pending = nil
		r.mu.Unlock()
		for _, e := range batch {
			if err := stream.Send(e); err != nil {
				return err
			}
		}
		if broken != nil {
			return broken
		}
	}
}

// BreakEvents ends every event stream with an error, after what was already
// sent. New streams work again; events that happen in between are kept.
func (r *Runtime) BreakEvents(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.events.subs {
		s.broken = err
		s.poke()
		delete(r.events.subs, s)
	}
}

// LoseEvents drops the events that subscribers have not been sent yet and those that are
// kept for the next one. No client will get them.
func (r *Runtime) LoseEvents() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events.kept = nil
	for s := range r.events.subs {
		s.pending = nil
	}
}

// EventStreams is the number of open event streams.
func (r *Runtime) EventStreams() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.events.subs)
}
