package observed

import (
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
)

func TestCompareEvent(t *testing.T) {
	const (
		isCreated = runtimeapi.ContainerState_CONTAINER_CREATED
		isRunning = runtimeapi.ContainerState_CONTAINER_RUNNING
		isExited  = runtimeapi.ContainerState_CONTAINER_EXITED
	)
	seen := time.Unix(1, 0)
	sandbox := &runtimeapi.PodSandboxStatus{
		Id:      "s1",
		Labels:  labels("u", ""),
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.1"},
	}
	stoppedSandbox := &runtimeapi.PodSandboxStatus{
		Id:     "s1",
		Labels: labels("u", ""),
		State:  runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
	}
	bare := &runtimeapi.PodSandboxStatus{Id: "s1", Labels: labels("u", "")}
	ready, notReady := pod.Sandbox{
		ID:    "s1",
		Ready: true,
		IPs:   []string{"10.0.0.1"},
	}, pod.Sandbox{ID: "s1", IPs: []string{"10.0.0.1"}}
	in := func(s pod.State) pod.Container { return pod.Container{ID: "c1", SandboxID: "s1", State: s} }
	pods := func(s *pod.Sandbox, cs ...pod.Container) pod.Runtime {
		r := pod.Runtime{Ref: pod.Ref{UID: "u", Namespace: "ns", Name: "pod-u"}, SeenAt: seen, Containers: cs}
		if s != nil {
			r.Sandboxes = []pod.Sandbox{*s}
		}
		return r
	}
	about := func(
		id string, kind runtimeapi.ContainerEventType, s *runtimeapi.PodSandboxStatus,
		states ...runtimeapi.ContainerState,
	) event {
		ev := &runtimeapi.ContainerEventResponse{
			ContainerId:        id,
			ContainerEventType: kind,
			PodSandboxStatus:   s,
			CreatedAt:          seen.Add(time.Second).UnixNano(),
		}
		for _, st := range states {
			ev.ContainersStatuses = append(ev.ContainersStatuses, &runtimeapi.ContainerStatus{
				Id:     "c1",
				Labels: labels("u", ""),
				State:  st,
			})
		}
		return event{ContainerEventResponse: ev}
	}
	old := func(ev event) event { ev.old = true; return ev }
	before := func(ev event) event { ev.CreatedAt = seen.Add(-time.Second).UnixNano(); return ev }
	of := func(uid string, ev event) event { // in its labels
		s := proto.Clone(ev.PodSandboxStatus).(*runtimeapi.PodSandboxStatus)
		s.Labels = labels(uid, "")
		ev.PodSandboxStatus = s
		for _, c := range ev.ContainersStatuses {
			c.Labels = labels(uid, "")
		}
		return ev
	}
	unread := pods(&ready)
	unread.SeenAt = time.Time{}
	for _, tc := range []struct {
		name string
		have pod.Runtime
		ev   event
		want verdict
		then *pod.Runtime // nil: as before
	}{
		{"a pod that was never read is read", unread, about("c1", started, sandbox, isRunning), now, nil},

		{"a start that is known", pods(&ready, in(pod.StateRunning)), about("c1", started, sandbox, isRunning), known, nil},
		{"a start that is history", pods(&ready, in(pod.StateExited)), about("c1", started, sandbox, isRunning), known, nil},
		{"a start", pods(&ready, in(pod.StateCreated)), about("c1", started, sandbox, isRunning), applied,
			new(pods(&ready, in(pod.StateRunning)))},
		{"a start whose status is further already", pods(&ready, in(pod.StateCreated)),
			about("c1", started, sandbox, isExited), applied, new(pods(&ready, in(pod.StateExited)))},
		{"a start whose status is behind", pods(&ready, in(pod.StateCreated)),
			about("c1", started, sandbox, isCreated), now, nil},
		{"a start without a status", pods(&ready, in(pod.StateCreated)), about("c1", started, sandbox), now, nil},
		{"a start in an unknown sandbox", pods(nil), about("c1", started, sandbox, isRunning), now, nil},
		{"a start kept from before the stream", pods(&ready), old(about("c1", started, sandbox, isRunning)), now, nil},
		{"a start from before the pod was read", pods(&ready), before(about("c1", started, sandbox, isRunning)), now, nil},
		{"a creation", pods(&ready), about("c1", created, sandbox, isCreated), applied,
			new(pods(&ready, in(pod.StateCreated)))},
		{"a creation without a status can wait", pods(&ready), about("c1", created, sandbox), later, nil},
		{"an exit", pods(&ready, in(pod.StateRunning)), about("c1", stopped, sandbox, isExited), applied,
			new(pods(&ready, in(pod.StateExited)))},
		{"an exit that is known", pods(&ready, in(pod.StateExited)), about("c1", stopped, sandbox, isExited), known, nil},
		{"a late exit does not bring a removed container back", pods(&ready),
			about("c1", stopped, sandbox, isExited), later, nil},
		{"a removal is looked at when there is time", pods(&ready, in(pod.StateExited)),
			about("c1", deleted, sandbox), later, nil},
		{"a removal that is known", pods(&ready), about("c1", deleted, sandbox), known, nil},

		{"a sandbox", pods(nil), about("s1", started, sandbox), applied, new(pods(&ready))},
		{"a sandbox that is known", pods(&ready), about("s1", started, sandbox), known, nil},
		{"a sandbox without an address yet", pods(nil), about("s1", created, bare), now, nil},
		{"a sandbox kept from before the stream", pods(nil), old(about("s1", started, sandbox)), now, nil},
		{"the end of a sandbox", pods(&ready), about("s1", stopped, stoppedSandbox), applied, new(pods(&notReady))},
		{"the end of a sandbox that looks ready", pods(&ready), about("s1", stopped, sandbox), now, nil},
		{"the end of a sandbox without a status", pods(&ready), about("s1", stopped, nil), now, nil},
		{"a start of what is another pod's", pods(&ready, in(pod.StateCreated)),
			of("v", about("c1", started, sandbox, isRunning)), now, nil},
		{"a sandbox of another pod", pods(nil), of("v", about("s1", started, sandbox)), now, nil},
		{"a start in a state that there is not", pods(&ready, in(pod.StateCreated)),
			about("c1", started, sandbox, 99), now, nil},
		{"the end of a sandbox that is known", pods(&notReady), about("s1", stopped, stoppedSandbox), known, nil},
		{"the removal of a sandbox without a status", pods(&notReady), about("s1", deleted, nil), later, nil},
		{"the removal of a sandbox that is known", pods(nil), about("s1", deleted, nil), known, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.then == nil {
				as := tc.have
				tc.then = &as
			}
			got, v := compareEvent(tc.have, tc.ev)
			for i := range got.Sandboxes {
				got.Sandboxes[i].CreatedAt = time.Time{}
			}
			if v != tc.want || !reflect.DeepEqual(got, *tc.then) {
				t.Errorf("judge = %v, %+v\nwant %v, %+v", v, got, tc.want, *tc.then)
			}
		})
	}
}
