package script

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"keelson/test/kit/parity"
)

// TestTheAgentProbesByHTTP: the User-Agent of a probe has the Kubernetes version of the agent, and the event of a
// failed probe has the status code and not the body.
func TestTheAgentProbesByHTTP(t *testing.T) {
	parity.ProvesPart(t, 2, "PROBE-21")
	parity.ProvesPart(t, 2, "PROBE-23")
	var ill atomic.Bool
	asked := make(chan *http.Request, 1)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r:
		default:
		}
		if ill.Load() {
			http.Error(w, "a secret of the pod", http.StatusServiceUnavailable)
		}
	}))
	defer web.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(web.URL, "http://"), ":")
	s := Listening(t, "", Rights)
	s.RunPod(t, "web", `spec:
  containers:
  - {name: main, readinessProbe: {periodSeconds: 1, failureThreshold: 1, httpGet: {host: 127.0.0.1, port: `+port+
		`, path: /healthz}}}
`)
	r := <-asked
	if r.Header.Get("User-Agent") != "kube-probe/1.36" || r.Header.Get("Accept") != "*/*" ||
		r.Host != "127.0.0.1:"+port {
		t.Errorf("asked of %s with %v", r.Host, r.Header)
	}
	ill.Store(true)
	const want = "web/main Warning Unhealthy: Readiness probe failed: HTTP probe failed with statuscode: 503\n"
	var events string
	Eventually(t, "the event", func() (string, bool) {
		events += s.ShowEvents("web")
		return events, strings.Contains(events, want)
	})
	if strings.Contains(events, "secret") {
		t.Errorf("events %s", events)
	}
}
