package script

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/test/kit/apiproxy"
	"keelson/test/kit/parity"
)

// TestPodsAreWatchedOnceTheNodeIsKnown checks the requests of the agent to the API server:
// it watches only its own pods, and only after it has read the node.
func TestPodsAreWatchedOnceTheNodeIsKnown(t *testing.T) {
	parity.ProvesPart(t, 2, "SRC-01")
	var mu sync.Mutex
	var asked []string
	record := func(w *World) {
		server := w.noteEvents(w.Server)
		w.Proxy = apiproxy.New(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			kind := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
			if selector := r.URL.Query().Get("fieldSelector"); r.Method == http.MethodGet &&
				(kind == "pods" || kind == "nodes") {
				mu.Lock()
				asked = append(asked, kind+" "+selector)
				mu.Unlock()
			}
			server.ServeHTTP(rw, r)
		}))
	}
	Settled(t, "", record, func(t *testing.T, r *Run) {
		other := onePod("elsewhere")
		other.Namespace, other.Spec.NodeName = Namespace, "node2"
		if _, err := r.API.CoreV1().Pods(Namespace).Create(context.Background(), other,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		r.Pod(t, "here", PlainPod)
		r.Must(t, "wait", "here", "Ready")
		time.Sleep(time.Minute)
		if got := r.Server.Pod(Namespace, "elsewhere").Status.Phase; got != "Pending" || len(r.Runtime.Pods()) != 1 {
			t.Errorf("another node's pod is %s, and the runtime has %d pods", got, len(r.Runtime.Pods()))
		}
		mu.Lock()
		defer mu.Unlock()
		node, pods := slices.Index(asked, "nodes metadata.name=node1"), slices.Index(asked, "pods spec.nodeName=node1")
		if node < 0 || pods < node {
			t.Errorf("asked for %q, want the node first, and then its pods", asked)
		}
		for _, a := range asked {
			if strings.HasPrefix(a, "pods ") && a != "pods spec.nodeName=node1" {
				t.Errorf("asked for %q", a)
			}
		}
	})
}
