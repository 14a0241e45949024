package container

import (
	"encoding/json"
	"net"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/runtime/cri"
)

// FuzzAnnotations stops a container of which only the annotations are known.
func FuzzAnnotations(f *testing.F) {
	f.Add("3b8f61c", "2", "/dev/termination-log", "File", `{"exec":{"command":["sh","-c","bye"]}}`,
		`[{"name":"web","containerPort":80,"protocol":"TCP"}]`, "5", "30", uint32(1))
	f.Add("", "-1", "", "",
		`{"httpGet":{"path":"/a b","port":"web","scheme":"HTTPS","httpHeaders":[{"name":"Host","value":"x"}]}}`,
		`[{"name":"web","containerPort":99999}]`, "9223372036854775807", "-5", uint32(0))
	f.Add("x", "99999999999", "relative", "FallbackToLogsOnError", `{"sleep":{"seconds":9223372036854775807}}`,
		`null`, "",
		"", uint32(1<<32-1))
	f.Add("", "", "", "", `{"httpGet":{"host":"[::1","port":-1}}`, `{}`, "1e9", "0x10", uint32(7))
	f.Fuzz(func(t *testing.T, hash, count, path, policy, hook, ports, deletion, grace string, attempt uint32) {
		a := map[string]string{
			pod.AnnotationHash:                     hash,
			pod.AnnotationRestartCount:             count,
			pod.AnnotationTerminationMessagePath:   path,
			pod.AnnotationTerminationMessagePolicy: policy,
			pod.AnnotationPreStopHandler:           hook,
			pod.AnnotationPorts:                    ports,
			pod.AnnotationDeletionGracePeriod:      deletion,
			pod.AnnotationTerminationGracePeriod:   grace,
		}
		c := cri.ToContainer("s", &runtimeapi.ContainerStatus{
			Id:          "c",
			Metadata:    &runtimeapi.ContainerMetadata{Name: "main", Attempt: attempt},
			Annotations: a,
		})
		if c.Attempt < 0 || int32(c.Attempt+1) <= 0 {
			t.Errorf("restart count %d of %q and %d: the next one cannot be shown", c.Attempt, count, attempt)
		}
		s, err := restore(Stop{Ref: pod.Ref{UID: "u"}, Container: c})
		if s.Pod == nil || s.Spec == nil || s.Spec.Name != "main" {
			t.Fatalf("restored %+v, %v; want a pod and a container in any case", s, err)
		}
		if g, ok := pod.GraceFromAnnotations(c.Annotations); ok && (g < time.Second || g > 200*365*24*time.Hour) {
			t.Errorf("grace %v of %q and %q", g, deletion, grace)
		}
		if err == nil && hook != "" && !json.Valid([]byte(hook)) {
			t.Errorf("hook %q was understood", hook)
		}
		if s.Spec.Lifecycle == nil || s.Spec.Lifecycle.PreStop == nil {
			return
		}
		switch h := s.Spec.Lifecycle.PreStop; {
		case h.Sleep != nil:
			if d := pod.Seconds(h.Sleep.Seconds); d > 0 != (h.Sleep.Seconds > 0) {
				t.Errorf("sleep of %d s is %v", h.Sleep.Seconds, d)
			}
		case h.HTTPGet != nil:
			checkHook(t, h.HTTPGet, s.Spec)
		}
	})
}

// checkHook builds the request of a hook and checks its destination.
func checkHook(t *testing.T, get *v1.HTTPGetAction, c *v1.Container) {
	t.Helper()
	req, err := hookRequest(get, c, []string{"10.0.0.1"}, "agent")
	if err != nil {
		return
	}
	if get.Host == "" && req.URL.Hostname() != "10.0.0.1" {
		t.Errorf("hook %+v is sent to %s, want the pod", get, req.URL.Host)
	}
	_, port, err := net.SplitHostPort(req.URL.Host)
	if n, bad := strconv.Atoi(port); err != nil || bad != nil || n < 1 || n > 65535 {
		t.Errorf("hook %+v is sent to port %q, %v", get, port, err)
	}
}
