package crisuite

import (
	"slices"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func testFilters(t *testing.T, s *suite) {
	a, b := s.runPod(t), s.runPod(t)
	up := s.start(t, a, s.script(t, a, "up", serve))
	down := s.start(t, a, s.script(t, a, "down", "true"))
	other := s.create(t, b, s.script(t, b, "other", serve))
	s.exited(t, down)
	if _, err := s.rt.StopPodSandbox(s.ctx(t), &cri.StopPodSandboxRequest{PodSandboxId: b.id}); err != nil {
		t.Fatal(err)
	}

	label := func(p pod) map[string]string { return map[string]string{"suite": p.cfg.Labels["suite"]} }
	state := func(st cri.ContainerState) *cri.ContainerStateValue { return &cri.ContainerStateValue{State: st} }
	for _, c := range []struct {
		name   string
		filter *cri.ContainerFilter
		want   []string
	}{
		{"by sandbox", &cri.ContainerFilter{PodSandboxId: a.id}, []string{up, down}},
		{"by label", &cri.ContainerFilter{LabelSelector: label(b)}, []string{other}},
		{"by id", &cri.ContainerFilter{Id: down}, []string{down}},
		{"by state and sandbox", &cri.ContainerFilter{
			PodSandboxId: a.id,
			State:        state(cri.ContainerState_CONTAINER_RUNNING),
		}, []string{up}},
		{"exited ones", &cri.ContainerFilter{
			LabelSelector: label(a),
			State:         state(cri.ContainerState_CONTAINER_EXITED),
		}, []string{down}},
		{"all must match", &cri.ContainerFilter{Id: up, PodSandboxId: b.id}, nil},
		{"two labels", &cri.ContainerFilter{LabelSelector: map[string]string{
			"suite":                        a.cfg.Labels["suite"],
			"io.kubernetes.container.name": "up",
		}}, []string{up}},
	} {
		res, err := s.rt.ListContainers(s.ctx(t), &cri.ListContainersRequest{Filter: c.filter})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var got []string
		for _, item := range res.Containers {
			got = append(got, item.Id)
			if item.PodSandboxId == "" || item.Metadata.GetName() == "" || item.ImageRef == "" || item.CreatedAt <= 0 {
				t.Errorf("%s: incomplete item %v", c.name, item)
			}
		}
		wantSet(t, c.name, got, c.want)
	}

	pstate := func(st cri.PodSandboxState) *cri.PodSandboxStateValue { return &cri.PodSandboxStateValue{State: st} }
	for _, c := range []struct {
		name   string
		filter *cri.PodSandboxFilter
		want   []string
	}{
		{"by id", &cri.PodSandboxFilter{Id: a.id}, []string{a.id}},
		{"by label and state", &cri.PodSandboxFilter{
			LabelSelector: label(b),
			State:         pstate(cri.PodSandboxState_SANDBOX_NOTREADY),
		}, []string{b.id}},
		{"the wrong state", &cri.PodSandboxFilter{
			LabelSelector: label(b),
			State:         pstate(cri.PodSandboxState_SANDBOX_READY),
		}, nil},
	} {
		res, err := s.rt.ListPodSandbox(s.ctx(t), &cri.ListPodSandboxRequest{Filter: c.filter})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var got []string
		for _, item := range res.Items {
			got = append(got, item.Id)
		}
		wantSet(t, "sandboxes "+c.name, got, c.want)
	}
}

func wantSet(t *testing.T, what string, got, want []string) {
	t.Helper()
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}
