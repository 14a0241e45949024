package observed

import (
	"cmp"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/runtime/cri"
)

// event is a CRI event and whether its statuses can be trusted.
type event struct {
	*runtimeapi.ContainerEventResponse
	// old is set if the event happened before the stream was opened or before the pod was last
	// read: runtimes queue events. It still names the pod to read, but its statuses may be
	// outdated.
	old bool
}

// verdict is the consequence of an event for the observed state.
type verdict int

const (
	known   verdict = iota // nothing new
	applied                // the event was complete; no read is needed
	later                  // read the pod, but not at once
	now                    // read the pod
)

// lazyDelay is how long a read that is not urgent waits. Containers are created and
// removed by this agent, which reads the pod right after; usually the event is known by
// then.
const lazyDelay = 100 * time.Millisecond

// compareEvent compares an event with the observed state of its pod and returns the new
// state. No event is dropped because of a clock or the order of events: the state of a
// container only moves forward, so each event can be checked against it. Time decides only
// whether its statuses are used.
//
// A status in an event is used if it is of the event's own container, not behind the
// event, and ahead of the observed state. Statuses of the pod's other containers are not:
// containerd collects them before it queues the event, and two events may arrive out of
// order.
func compareEvent(have pod.Runtime, ev event) (pod.Runtime, verdict) {
	if have.SeenAt.IsZero() {
		return have, now // the pod may have more than the event shows
	}
	ev.old = ev.old || ev.CreatedAt < have.SeenAt.UnixNano()
	id, kind := ev.ContainerId, ev.ContainerEventType
	if s := ev.PodSandboxStatus; s != nil && s.Id == id || hasSandbox(have, id) {
		return compareSandboxEvent(have, ev)
	}
	had, ok := have.ByID(id)
	if kind == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT {
		if ok {
			return have, later
		}
		return have, known
	}
	want := claim(kind)
	if ok && had.State >= want {
		return have, known
	}
	if !ok && want == pod.StateExited {
		return have, later // may be removed already: a late event must not bring it back
	}
	status, found := statusIn(ev, id)
	if ev.old || !found || cri.ToState(status.State) < want || !hasSandbox(have, ev.PodSandboxStatus.GetId()) {
		if want == pod.StateCreated {
			return have, later
		}
		return have, now
	}
	c, err := containerOf(have, have.UID, ev.PodSandboxStatus.Id, id, status)
	if err != nil || ok && had.SandboxID != c.SandboxID {
		return have, now
	}
	return withContainer(have, c), applied
}

// compareSandboxEvent does the same for an event of a sandbox, which is ready or not.
func compareSandboxEvent(have pod.Runtime, ev event) (pod.Runtime, verdict) {
	i := slices.IndexFunc(have.Sandboxes, func(s pod.Sandbox) bool { return s.ID == ev.ContainerId })
	switch kind := ev.ContainerEventType; {
	case kind == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT && i < 0:
		return have, known
	case kind == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		return have, later // containerd 2 sends the event shortly before the state changes
	case kind == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT && i >= 0 && !have.Sandboxes[i].Ready:
		return have, known
	case kind == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT && i < 0:
		return have, later
	case kind != runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT && i >= 0:
		return have, known // known, and ready or stopped
	case ev.old || ev.PodSandboxStatus == nil:
		return have, now
	}
	s, err := sandboxOf(have.UID, ev.ContainerId, ev.PodSandboxStatus)
	if err != nil {
		return have, now
	}
	if i >= 0 { // it stopped
		if s.Ready {
			return have, now
		}
		have.Sandboxes = slices.Clone(have.Sandboxes)
		have.Sandboxes[i].Ready = false
		return have, applied
	}
	if !s.Ready || !s.HostNetwork && len(s.IPs) == 0 {
		return have, now
	}
	if ref, ok := cri.PodRef(ev.PodSandboxStatus.Labels); ok {
		have.Ref = ref
	}
	have.Sandboxes = append(slices.Clone(have.Sandboxes), s)
	sortSandboxes(have.Sandboxes)
	return have, applied
}

// removedSince reports whether a pod that was read after the event arrived does not show
// the event's sandbox or container: it was removed.
func removedSince(have pod.Runtime, ev event) bool {
	_, ok := have.ByID(ev.ContainerId)
	return !ok && !hasSandbox(have, ev.ContainerId) &&
		ev.ContainerEventType != runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
}

// claim returns the state that the container of an event has reached.
func claim(kind runtimeapi.ContainerEventType) pod.State {
	switch kind {
	case runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		return pod.StateRunning
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
		return pod.StateExited
	default:
		return pod.StateCreated
	}
}

func statusIn(ev event, id string) (*runtimeapi.ContainerStatus, bool) {
	for _, s := range ev.ContainersStatuses {
		if s.GetId() == id {
			return s, true
		}
	}
	return nil, false
}

func hasSandbox(r pod.Runtime, id string) bool {
	return slices.ContainsFunc(r.Sandboxes, func(s pod.Sandbox) bool { return s.ID == id })
}

func withContainer(r pod.Runtime, c pod.Container) pod.Runtime {
	r.Containers = slices.Clone(r.Containers)
	if i := slices.IndexFunc(r.Containers, func(o pod.Container) bool { return o.ID == c.ID }); i >= 0 {
		r.Containers[i] = c
	} else {
		r.Containers = append(r.Containers, c)
		sortContainers(r.Containers)
	}
	return r
}

// digest applies events in order. It returns the new state, the events that require a
// read, and how urgent that is.
func digest(have pod.Runtime, evs []event) (next pod.Runtime, open []event, need verdict) {
	for _, ev := range evs {
		var v verdict
		if have, v = compareEvent(have, ev); v >= later {
			open = append(open, ev)
		}
		need = max(need, v)
	}
	return have, open, need
}

// sortSandboxes sorts by attempt, the newest first: creation times are unreliable when the
// clock was set back.
func sortSandboxes(ss []pod.Sandbox) {
	slices.SortStableFunc(ss, func(a, b pod.Sandbox) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt))
	})
}

// sortContainers sorts by creation time, the newest first. The instances of one container
// are sorted by attempt within the places that they have.
func sortContainers(cs []pod.Container) {
	slices.SortStableFunc(cs, func(a, b pod.Container) int { return b.CreatedAt.Compare(a.CreatedAt) })
	places := map[string][]int{}
	for i, c := range cs {
		places[c.Name] = append(places[c.Name], i)
	}
	for _, at := range places {
		instances := make([]pod.Container, 0, len(at))
		for _, i := range at {
			instances = append(instances, cs[i])
		}
		slices.SortStableFunc(instances, func(a, b pod.Container) int { return cmp.Compare(b.Attempt, a.Attempt) })
		for n, i := range at {
			cs[i] = instances[n]
		}
	}
}
