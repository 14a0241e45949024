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
	Settled(t, "", nil, func(t *testing.T, r *Run) {
		at := func(pod string) time.Time {
			t.Helper()
			p := r.Server.Pod(Namespace, pod)
			if p == nil || p.Status.StartTime == nil {
				t.Fatalf("%s has no startTime: %+v", pod, p)
			}
			return p.Status.StartTime.Time
		}
		began := time.Now().Truncate(time.Second)
		r.Pod(t, "refused", `spec:
  securityContext: {sysctls: [{name: kernel.msgmax, value: "1"}]}
  containers: [{name: main}]
`)
		r.Pod(t, "web", PlainPod)
		r.Must(t, "wait", "refused", "Failed")
		r.Must(t, "wait", "web", "Ready")
		for range 2 {
			for _, pod := range []string{"web", "refused"} {
				if got := at(pod); !got.Equal(began) {
					t.Errorf("startTime of %s is %v, want %v", pod, got, began)
				}
			}
			time.Sleep(time.Minute)
			r.Must(t, "exit", "web", "main", "1")
			r.Must(t, "restart")
			r.Must(t, "wait", "web", "Ready")
			r.Must(t, "advance", "10")
		}
	})
}
