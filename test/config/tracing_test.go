package config

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"keelson/test/kit/otlp"
	"keelson/test/kit/parity"
	"keelson/test/script"
)

// TestSpans runs an agent that sends its spans to a collector, and checks the spans of a pod from its start to its end.
func TestSpans(t *testing.T) {
	parity.Proves(t, "SRV-35")
	parity.ProvesPart(t, 2, "CFG-102")
	r := otlp.Listen(t)
	s := script.Listening(t,
		fmt.Sprintf("tracing: {endpoint: %q, samplingRatePerMillion: 1000000}\nimageGCHighThresholdPercent: 99\n",
			r.Addr), script.Rights)
	web := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name:      "web",
		Namespace: script.Namespace,
	}, Spec: corev1.PodSpec{NodeName: script.Node,
		TerminationGracePeriodSeconds: ptr.To[int64](1),
		Containers:                    []corev1.Container{{Name: "main", Image: script.Image}}}}
	pods := s.API.CoreV1().Pods(script.Namespace)
	web, err := pods.Create(t.Context(), web, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Awaits("web", time.Minute,
		func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning }); err != nil {
		t.Fatal(err)
	}
	if err := pods.Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	named := func(name string, attrs ...string) func(otlp.Span) bool {
		return func(sp otlp.Span) bool {
			for i := 0; i < len(attrs); i += 2 {
				if sp.Attr(attrs[i]) != attrs[i+1] {
					return false
				}
			}
			return sp.Name == name
		}
	}
	of := []string{"k8s.pod", "web_" + script.Namespace, "k8s.pod.name", "web", "k8s.namespace.name", script.Namespace,
		"k8s.pod.uid", string(web.UID), "k8s.pod.update_type"}
	create := r.Wait(t, "the first turn", named("syncPod", append(of, "create")...))
	r.Wait(t, "a turn without news of the pod", named("syncPod", append(of, "sync")...))
	r.Wait(t, "the end", named("syncTerminatingPod", append(of, "kill")...))
	r.Wait(t, "after the end", named("syncTerminatedPod", append(of, "kill")...))
	r.Wait(t, "the sandbox as a part of the first turn", func(sp otlp.Span) bool {
		return sp.Name == "runtime.v1.RuntimeService/RunPodSandbox" && bytes.Equal(sp.ParentSpanId, create.SpanId) &&
			bytes.Equal(sp.TraceId, create.TraceId)
	})
	collect := r.Wait(t, "the removal of what has ended", named("Containers/GarbageCollect"))
	r.Wait(t, "the call to the runtime as a part of it", func(sp otlp.Span) bool {
		return sp.Name == "runtime.v1.RuntimeService/RemoveContainer" && bytes.Equal(sp.ParentSpanId, collect.SpanId)
	})
	r.Wait(t, "a status", named("HTTP PATCH", "url.path", "/api/v1/namespaces/"+script.Namespace+"/pods/web/status"))
	r.Wait(t, "a look at the images", named("Images/GarbageCollect"))
	if create.Resource["service.name"] != "kubelet" || create.Resource["host.name"] != script.Node {
		t.Errorf("resource %v", create.Resource)
	}

	// The span of a request to the server is a part of the client's trace.
	const trace, caller = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	code, _ := askTraced(t, s, "/pods", "good", "00-"+trace+"-"+caller+"-01")
	refused, _ := askTraced(t, s, "/runningpods/", "poor", "00-"+trace+"-"+caller+"-01")
	if code != http.StatusOK || refused != http.StatusForbidden {
		t.Errorf("asked: %d, without rights %d", code, refused)
	}
	r.Wait(t, "the request", func(sp otlp.Span) bool {
		return sp.Name == "/pods" && fmt.Sprintf("%x", sp.TraceId) == trace &&
			fmt.Sprintf("%x", sp.ParentSpanId) == caller && sp.Attr("http.response.status_code") == "200"
	})
	s.Stop() // sends the spans that have not been sent
	for _, sp := range r.Spans() {
		if strings.Contains(sp.Name, "runningpods") {
			t.Errorf("who may not ask has made the span %s", sp.Name)
		}
	}
}

// TestNoSpansAreSentByDefault: without a sampling rate no spans are sent.
func TestNoSpansAreSentByDefault(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-102")
	r := otlp.Listen(t)
	s := script.Listening(t, fmt.Sprintf("tracing: {endpoint: %q}\n", r.Addr), script.Rights)
	if code, _ := askTraced(t, s, "/pods", "good", ""); code != http.StatusOK {
		t.Errorf("asked: %d", code)
	}
	s.Stop()
	if spans := r.Spans(); len(spans) > 0 {
		t.Errorf("with a rate of zero: %d spans, the first %s", len(spans), spans[0].Name)
	}
}

// askTraced sends a request as a client with an open trace does.
func askTraced(t *testing.T, s *script.Served, path, token, parent string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if parent != "" {
		req.Header.Set("traceparent", parent)
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}
