package observed

import (
	"cmp"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/runtime/cri"
)

// event is a runtime's event and how far its statuses can be trusted.
type event struct {
	*runtimeapi.ContainerEventResponse
	// old says that it happened before the stream was opened, or before the pod
	// was last read; runtimes keep events for a while, and queue them. It still
	// tells where to look, but what it says of a pod may long be history.
	old bool
}

// verdict is what an event means next to what is known.
type verdict int

const (
	known   verdict = iota // it says nothing new
	applied                // it said all there is to know
	later                  // read the pod, but not at once
	now                    // read the pod
)

// lazy is how long a read waits that nobody is in a hurry for. Containers are
// created and removed by this agent, which re-reads the pod itself right after;
// mostly the event turns out to be known by then.
const lazy = 100 * time.Millisecond

// judge compares an event with what is known of its pod and returns what is
// known then. No event is passed over because of a clock or the order of events:
// the life of a container only moves forward, so each event is a claim that can
// be checked. Time decides only whether its statuses may be taken as read.
//
// A status in an event is taken as read if it is of the event's own container,
// not behind the event, and ahead of what is known. Statuses of the pod's other
// containers are not: containerd collects them before it queues the event, and
// two events may pass each other.
func judge(have pod.Runtime, ev event) (pod.Runtime, verdict) {
	if have.SeenAt.IsZero() {
		return have, now // there may be more than the event tells
	}
	ev.old = ev.old || ev.CreatedAt < have.SeenAt.UnixNano()
	id, kind := ev.ContainerId, ev.ContainerEventType
	if s := ev.PodSandboxStatus; s != nil && s.Id == id || hasSandbox(have, id) {
		return judgeSandbox(have, ev)
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
		return have, later // perhaps removed already: a late event must not bring it back
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

// judgeSandbox does the same for a sandbox, which is ready or not.
func judgeSandbox(have pod.Runtime, ev event) (pod.Runtime, verdict) {
	i := slices.IndexFunc(have.Sandboxes, func(s pod.Sandbox) bool { return s.ID == ev.ContainerId })
	switch kind := ev.ContainerEventType; {
	case kind == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT && i < 0:
		return have, known
	case kind == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		return have, later // containerd 2 says so a little before it is so
	case kind == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT && i >= 0 && !have.Sandboxes[i].Ready:
		return have, known
	case kind == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT && i < 0:
		return have, later
	case kind != runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT && i >= 0:
		return have, known // there, and ready or past it
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

// moot reports whether a pod that was read after the event came shows no trace
// of what it is about: that was there, and is gone.
func moot(have pod.Runtime, ev event) bool {
	_, ok := have.ByID(ev.ContainerId)
	return !ok && !hasSandbox(have, ev.ContainerId) && ev.ContainerEventType != runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
}

// claim is the state that an event says its container has reached.
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

// digest judges events one after the other. It returns what is known then, the
// events that ask for the pod to be read, and how urgently they do.
func digest(have pod.Runtime, evs []event) (next pod.Runtime, open []event, need verdict) {
	for _, ev := range evs {
		var v verdict
		if have, v = judge(have, ev); v >= later {
			open = append(open, ev)
		}
		need = max(need, v)
	}
	return have, open, need
}

// sortSandboxes puts the newest first. Attempts tell which that is: the clock may have
// been set back since one was made.
func sortSandboxes(ss []pod.Sandbox) {
	slices.SortStableFunc(ss, func(a, b pod.Sandbox) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt))
	})
}

// sortContainers puts the newest first. Among the instances of one container attempts
// tell which that is, as of sandboxes; they take the places that all of them have.
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
