package observed

import (
	"errors"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
)

func TestInconsistentStatuses(t *testing.T) {
	const running = runtimeapi.ContainerState_CONTAINER_RUNNING
	known := pod.Runtime{Ref: pod.Ref{UID: "u"}, Containers: []pod.Container{{
		ID:        "c1",
		Name:      "main",
		SandboxID: "s1",
		Attempt:   3,
		State:     pod.StateRunning,
		Hash:      "abc",
	}}}
	for _, tc := range []struct {
		name string
		edit func(*runtimeapi.ContainerStatus)
		sane bool
	}{
		{"as it was", func(*runtimeapi.ContainerStatus) {}, true},
		{"ended", func(s *runtimeapi.ContainerStatus) { s.State = runtimeapi.ContainerState_CONTAINER_EXITED }, true},
		{"an unknown state",
			func(s *runtimeapi.ContainerStatus) { s.State = runtimeapi.ContainerState_CONTAINER_UNKNOWN }, true},
		{"its labels and metadata differ",
			func(s *runtimeapi.ContainerStatus) { s.Annotations = map[string]string{pod.AnnotationHash: "xyz"} }, true},
		{"of another container", func(s *runtimeapi.ContainerStatus) { s.Id = "c2" }, false},
		{"of none", func(s *runtimeapi.ContainerStatus) { s.Id = "" }, false},
		{"of another pod", func(s *runtimeapi.ContainerStatus) { s.Labels = labels("v", "main") }, false},
		{"without labels", func(s *runtimeapi.ContainerStatus) { s.Labels = nil }, false},
		{"a name that is not on the label", func(s *runtimeapi.ContainerStatus) {
			s.Metadata = &runtimeapi.ContainerMetadata{Name: "side"}
		}, false},
		{"never started, after it ran",
			func(s *runtimeapi.ContainerStatus) { s.State = runtimeapi.ContainerState_CONTAINER_CREATED }, false},
		{"an undefined state", func(s *runtimeapi.ContainerStatus) { s.State = 99 }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &runtimeapi.ContainerStatus{
				Id:        "c1",
				Labels:    labels("u", "main"),
				State:     running,
				StartedAt: time.Now().UnixNano(),
			}
			tc.edit(s)
			c, err := containerOf(known, "u", "s1", "c1", s)
			if (err == nil) != tc.sane || err != nil && !errors.Is(err, errInconsistent) {
				t.Fatalf("%+v, %v", c, err)
			}
			if tc.sane && (c.Hash != "abc" || c.Attempt != 3 || c.Name != "main") {
				t.Errorf("what does not change has changed: %+v", c)
			}
		})
	}
	if _, err := containerOf(pod.Runtime{}, "u", "s1", "c1", &runtimeapi.ContainerStatus{
		Id:        "c1",
		Labels:    labels("u", "main"),
		StartedAt: 1,
	}); !errors.Is(err, errInconsistent) {
		t.Errorf("a new container that has not started and did at some time: %v", err)
	}
	if _, err := containerOf(known, "u", "s1", "c1", nil); !errors.Is(err, errInconsistent) {
		t.Errorf("no status: %v", err)
	}
	for name, s := range map[string]*runtimeapi.PodSandboxStatus{
		"none":                     nil,
		"another one":              {Id: "s2", Labels: labels("u", "")},
		"another pod's":            {Id: "s1", Labels: labels("v", "")},
		"labels that are not its":  {Id: "s1", Labels: labels("u", ""), Metadata: &runtimeapi.PodSandboxMetadata{Uid: "v"}},
		"a state that there isn't": {Id: "s1", Labels: labels("u", ""), State: 99},
	} {
		if got, err := sandboxOf("u", "s1", s); !errors.Is(err, errInconsistent) {
			t.Errorf("%s is taken for the sandbox: %+v, %v", name, got, err)
		}
	}
}

// A list may be incomplete. A running container counts as removed once its status is
// NotFound.
func TestIncompleteList(t *testing.T) {
	inTime(t, nil, func(t *testing.T, r *rig) {
		r.fake.run("u1", "s1")
		r.fake.start("u1", "s1", "main", "c1")
		r.after(time.Second)
		hidden := r.fake.containers["c1"]
		hide := func(yes bool) {
			r.fake.set(func() {
				l := labels("u1", "main")
				if yes {
					l = nil
				}
				hidden.Labels = l
			})
		}
		hide(true)
		r.after(2 * DefaultAudit)
		if got := r.state(t, "u1", "main"); got != pod.StateRunning {
			t.Errorf("while it is not listed as the pod's the container is %v", got)
		}
		hide(false)
		r.fake.exit("c1", 3)
		r.after(time.Second)
		if got := r.state(t, "u1", "main"); got != pod.StateExited {
			t.Errorf("listed again, it is %v", got)
		}
		r.fake.set(func() { r.fake.silent = true })
		r.fake.remove("c1")
		r.after(2 * DefaultAudit)
		if have, ok := r.Get("u1"); !ok || len(have.Containers) != 0 || len(have.Sandboxes) != 1 {
			t.Errorf("removed, and known is %+v", have)
		}
	})
}
