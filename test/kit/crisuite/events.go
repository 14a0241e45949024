package crisuite

import (
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func testEvents(t *testing.T, s *suite) {
	if s.Old {
		stream, err := s.rt.GetContainerEvents(s.ctx(t), &cri.GetEventsRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		wantCode(t, "an event stream that is not there", err, codes.Unimplemented)
		return
	}
	stream, err := s.rt.GetContainerEvents(s.ctx(t), &cri.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	p := s.runPod(t)
	id := s.start(t, p, s.script(t, p, "main", serve))
	s.stop(t, id, 0)
	s.remove(t, id)
	if _, err := s.rt.StopPodSandbox(s.ctx(t), &cri.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.rt.RemovePodSandbox(s.ctx(t), &cri.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Fatal(err)
	}

	type event struct {
		id   string
		kind cri.ContainerEventType
	}
	want := []event{
		{p.id, cri.ContainerEventType_CONTAINER_CREATED_EVENT},
		{p.id, cri.ContainerEventType_CONTAINER_STARTED_EVENT},
		{id, cri.ContainerEventType_CONTAINER_CREATED_EVENT},
		{id, cri.ContainerEventType_CONTAINER_STARTED_EVENT},
		{id, cri.ContainerEventType_CONTAINER_STOPPED_EVENT},
		{id, cri.ContainerEventType_CONTAINER_DELETED_EVENT},
		{p.id, cri.ContainerEventType_CONTAINER_STOPPED_EVENT},
		{p.id, cri.ContainerEventType_CONTAINER_DELETED_EVENT},
	}
	var got []event
	for len(got) < len(want) {
		e, err := stream.Recv()
		if err != nil {
			t.Fatalf("after %v: %v", got, err)
		}
		if e.ContainerId != p.id && e.ContainerId != id {
			continue // of another test's leftovers
		}
		got = append(got, event{e.ContainerId, e.ContainerEventType})
		if e.CreatedAt <= 0 {
			t.Errorf("event %v has no time", e)
		}
		if e.ContainerId == id && e.ContainerEventType == cri.ContainerEventType_CONTAINER_STOPPED_EVENT {
			i := slices.IndexFunc(e.ContainersStatuses, func(c *cri.ContainerStatus) bool { return c.Id == id })
			if i < 0 || e.ContainersStatuses[i].State != cri.ContainerState_CONTAINER_EXITED ||
				e.ContainersStatuses[i].ExitCode != 137 {
				t.Errorf("the stop event does not show the exited container: %v", e.ContainersStatuses)
			}
			if e.PodSandboxStatus.GetMetadata().GetUid() != p.cfg.Metadata.Uid {
				t.Errorf("the stop event does not name the pod: %v", e.PodSandboxStatus)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("events\n%v, want\n%v", got, want)
	}
}
