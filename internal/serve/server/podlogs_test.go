package server

import (
	"encoding/json"
	"net/url"
	"testing"

	v1 "k8s.io/api/core/v1"

	"keelson/test/kit/parity"
)

func TestLogOptions(t *testing.T) {
	parity.ProvesPart(t, 6, "SRV-25")
	for query, want := range map[string]string{
		"":                                  `{}`,
		"follow=true&previous=1&timestamps": `{"follow":true,"previous":true,"timestamps":true}`,
		"follow=false&previous=0&timestamps=False": `{}`,
		"sinceSeconds=5&tailLines=0&limitBytes=9":  `{"sinceSeconds":5,"tailLines":0,"limitBytes":9}`,
		"sinceTime=2026-01-02T03:04:05Z":           `{"sinceTime":"2026-01-02T03:04:05Z"}`,
		"tail=7":                                   `{"tailLines":7}`,
		"tail=7&tailLines=3":                       `{"tailLines":7}`,
		"tail=all&tailLines=3":                     `{}`,
		"stream=Stderr":                            `{"stream":"Stderr"}`,
		"container=x&unknown=y":                    `{"container":"x"}`,
		"tailLines=1&tailLines=2":                  `{"tailLines":1}`,
		"tailLines=":                               "error",
		"limitBytes=1.5":                           "error",
		"sinceSeconds=1s":                          "error",
		"sinceTime=5":                              "error",
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		got := "error"
		if o, err := logOptions(q); err == nil {
			b, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			got = string(b)
		}
		if got != want {
			t.Errorf("%q: %s, want %s", query, got, want)
		}
	}
}

func TestInstanceWithLog(t *testing.T) {
	parity.ProvesPart(t, 5, "RT-49")
	parity.ProvesPart(t, 2, "RT-50")
	const now, before = "containerd://now", "containerd://before"
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	ended := func(id string) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: id}}
	}
	waits := func(why string) v1.ContainerState {
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: why}}
	}
	for _, c := range []struct {
		name     string
		status   v1.ContainerStatus
		previous bool
		want     string
	}{
		{"a running container", v1.ContainerStatus{ContainerID: now, State: running}, false, "now"},
		{"a container that ended", v1.ContainerStatus{
			ContainerID:          now,
			State:                ended(now),
			LastTerminationState: ended(before),
		}, false, "now"},
		{"the one before", v1.ContainerStatus{
			ContainerID:          now,
			State:                running,
			LastTerminationState: ended(before),
		}, true, "before"},
		{"back-off shows the one that crashed", v1.ContainerStatus{
			ContainerID:          before,
			State:                waits("CrashLoopBackOff"),
			LastTerminationState: ended(before),
		}, false, "before"},
		{"ended before it was created shows the one before", v1.ContainerStatus{
			State:                ended(""),
			LastTerminationState: ended(before),
		}, false, "before"},
		{"there was none before", v1.ContainerStatus{
			ContainerID: now,
			State:       running,
		}, true, `previous terminated container "c" in pod "p" not found`},
		{"ended without ever being", v1.ContainerStatus{State: ended("")}, false, `container "c" in pod "p" is terminated`},
		{"being created", v1.ContainerStatus{State: waits("ContainerCreating")}, false,
			`container "c" in pod "p" is waiting to start: ContainerCreating`},
		{"pull failed", v1.ContainerStatus{State: waits("ErrImagePull")}, false,
			`container "c" in pod "p" is waiting to start: image can't be pulled`},
		{"pull waits", v1.ContainerStatus{State: waits("ImagePullBackOff")}, false,
			`container "c" in pod "p" is waiting to start: trying and failing to pull image`},
		{"nothing known", v1.ContainerStatus{}, false, `container "c" in pod "p" is waiting to start - no logs yet`},
		{"no status", v1.ContainerStatus{Name: "other"}, false, `container "c" in pod "p" is not available`},
		{"an id without a runtime", v1.ContainerStatus{
			ContainerID: "now",
			State:       running,
		}, false, `invalid container ID: "now"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.status.Name == "" {
				c.status.Name = "c"
			}
			got, err := instanceWithLog("p",
				&v1.PodStatus{InitContainerStatuses: []v1.ContainerStatus{c.status}}, "c", c.previous)
			if err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
