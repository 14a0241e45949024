package script

import (
	"testing"
	"time"

	"keelson/test/kit/parity"
)

// status.startTime is set with the first status of a pod, also of one that is rejected, and stays as it is when the
// pod's status changes, when containers are restarted, and when the agent is.
func TestStartTimeStaysAsItIs(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-32")
	settled(t, "", nil, func(t *testing.T, r *run) {
		at := func(pod string) time.Time {
			t.Helper()
			p := r.server.Pod(namespace, pod)
			if p == nil || p.Status.StartTime == nil {
				t.Fatalf("%s has no startTime: %+v", pod, p)
			}
			return p.Status.StartTime.Time
		}
		began := time.Now().Truncate(time.Second)
		r.pod(t, "refused", `spec:
  securityContext: {sysctls: [{name: kernel.msgmax, value: "1"}]}
  containers: [{name: main}]
`)
		r.pod(t, "web", plainPod)
		r.must(t, "wait", "refused", "Failed")
		r.must(t, "wait", "web", "Ready")
		for range 2 {
			for _, pod := range []string{"web", "refused"} {
				if got := at(pod); !got.Equal(began) {
					t.Errorf("startTime of %s is %v, want %v", pod, got, began)
				}
			}
			time.Sleep(time.Minute)
			r.must(t, "exit", "web", "main", "1")
			r.must(t, "restart")
			r.must(t, "wait", "web", "Ready")
			r.must(t, "advance", "10")
		}
	})
}
