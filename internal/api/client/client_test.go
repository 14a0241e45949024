package client

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	restwatch "k8s.io/client-go/rest/watch"
	"k8s.io/client-go/tools/cache"
)

// TestLinksNoGeneratedClients guards the size of the binary: one import of the
// generated clients or their scheme brings in every API group.
func TestLinksNoGeneratedClients(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("list dependencies: %v", err)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 100 {
		t.Fatalf("go list names only %d dependencies", len(deps))
	}
	for _, d := range deps {
		if d == "k8s.io/client-go/kubernetes" || strings.HasPrefix(d, "k8s.io/client-go/kubernetes/") {
			t.Errorf("the client links %s", d)
		}
	}
}

// serve starts an API server that is one function and returns a client for it.
func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c, err := NewFor(&rest.Config{Host: srv.URL}, Config{Version: "v1.36.3"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseConnections)
	return c
}

// answer writes obj in the encoding that the client prefers.
func answer(t *testing.T, w http.ResponseWriter, code int, obj runtime.Object) {
	info, ok := runtime.SerializerInfoForMediaType(Codecs.SupportedMediaTypes(), ContentProtobuf)
	if !ok {
		t.Error("no protobuf serializer")
		return
	}
	gvks, _, err := Scheme.ObjectKinds(obj)
	if err != nil {
		t.Error(err)
		return
	}
	w.Header().Set("Content-Type", ContentProtobuf)
	w.WriteHeader(code)
	if err := Codecs.EncoderForVersion(info.Serializer, gvks[0].GroupVersion()).Encode(obj, w); err != nil {
		t.Error(err)
	}
}

func TestNewReadsKubeconfig(t *testing.T) {
	var agent, auth, accept string
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agent, auth, accept = r.UserAgent(), r.Header.Get("Authorization"), r.Header.Get("Accept")
		answer(t, w, 200, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}})
	}))
	defer srv.Close()
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{
		Type:  "CERTIFICATE",
		Bytes: srv.Certificate().Raw,
	}))
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "` + srv.URL + `", certificate-authority-data: ` + ca +
		`}}], users: [{name: u, user: {token: hush}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Kubeconfig: file, Version: "v1.36.3"})
	if err != nil {
		t.Fatal(err)
	}
	n, err := c.Nodes.Get(t.Context(), "node1")
	if err != nil || n.Name != "node1" {
		t.Fatalf("Get = %v, %v", n, err)
	}
	if !strings.HasPrefix(agent, "kubelet/v1.36.3 (linux/") || auth != "Bearer hush" ||
		!strings.HasPrefix(accept, ContentProtobuf) {
		t.Errorf("request came as %q with %q, accepting %q", agent, auth, accept)
	}
}

func TestNewNamesTheBadKubeconfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "absent")
	if _, err := New(Config{Kubeconfig: file}); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("error %v does not name %s", err, file)
	}
}

func TestPatchStatusIsForOneUID(t *testing.T) {
	var body map[string]any
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPatch || r.URL.Path != "/api/v1/namespaces/ns/pods/p/status" ||
			r.Header.Get("Content-Type") != "application/strategic-merge-patch+json" {
			t.Errorf("%s %s as %s", r.Method, r.URL.Path, r.Header.Get("Content-Type"))
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		answer(t, w, 200, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}})
	})
	p, err := c.Pods.PatchStatus(
		t.Context(),
		"ns",
		"p",
		"u1",
		[]byte(`{"metadata":{"labels":null},"status":{"phase":"Running"}}`),
	)
	if err != nil || p.ResourceVersion != "7" {
		t.Fatalf("PatchStatus = %v, %v", p, err)
	}
	if meta := body["metadata"].(map[string]any); meta["uid"] != "u1" || len(meta) != 2 {
		t.Errorf("metadata of the patch = %v", meta)
	}
	if _, err := c.Pods.PatchStatus(t.Context(), "ns", "p", "u1", []byte(`[]`)); err == nil {
		t.Error("a patch that is no object was sent")
	}
}

func TestServerErrorsKeepTheirKind(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		s := apierrors.NewNotFound(coordinationv1.Resource("leases"), "node1").Status()
		answer(t, w, 404, &s)
	})
	if _, err := c.Leases.Get(t.Context(), "kube-node-lease", "node1"); !apierrors.IsNotFound(err) {
		t.Errorf("error = %v, want not found", err)
	}
}

func TestListWatchThroughAReflector(t *testing.T) {
	node := func(version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "u", ResourceVersion: version}}
	}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.URL.Path != "/api/v1/nodes" || q.Get("fieldSelector") != "metadata.name=node1" {
			t.Errorf("asked for %s", r.URL)
		}
		if q.Get("watch") != "true" {
			answer(t, w, 200, &corev1.NodeList{
				ListMeta: metav1.ListMeta{ResourceVersion: "1"},
				Items:    []corev1.Node{*node("1")},
			})
			return
		}
		if q.Get("sendInitialEvents") == "true" { // an older server: falls back to a list
			s := apierrors.NewBadRequest("sendInitialEvents is forbidden").Status()
			s.Reason = metav1.StatusReasonInvalid
			s.Code = 422
			answer(t, w, 422, &s)
			return
		}
		info, _ := runtime.SerializerInfoForMediaType(Codecs.SupportedMediaTypes(), ContentProtobuf)
		w.Header().Set("Content-Type", ContentProtobuf+";stream=watch")
		enc := restwatch.NewEncoder(
			streaming.NewEncoder(info.StreamSerializer.Framer.NewFrameWriter(w), info.StreamSerializer.Serializer),
			Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion))
		if err := enc.Encode(&watch.Event{Type: watch.Modified, Object: node("2")}); err != nil {
			t.Error(err)
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	seen := make(chan *corev1.Node, 8)
	store := cache.NewUndeltaStore(func(objs []any) {
		for _, o := range objs {
			seen <- o.(*corev1.Node)
		}
	}, cache.MetaNamespaceKeyFunc)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go cache.NewReflectorWithOptions(c.Nodes.ListWatch("node1"), &corev1.Node{}, store,
		cache.ReflectorOptions{}).RunWithContext(ctx)
	for _, want := range []string{"1", "2"} {
		select {
		case n := <-seen:
			if n.ResourceVersion != want {
				t.Errorf("saw version %s, want %s", n.ResourceVersion, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("version %s never arrived", want)
		}
	}
}

func TestListWatchOfAnUnknownKind(t *testing.T) {
	c := serve(t, nil)
	if _, err := c.ListWatch("gadgets", "", nil); err == nil {
		t.Error("gadgets can be watched")
	}
	for name, gv := range watchable {
		if _, err := c.ListWatch(name, "", nil); err != nil || c.groups[gv] == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCloseConnectionsFreesAHungCall(t *testing.T) {
	arrived := make(chan struct{}, 1)
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		arrived <- struct{}{}
		<-r.Context().Done() // the server does not respond
	})
	done := make(chan error, 1)
	go func() {
		_, err := c.Leases.Create(t.Context(), "kube-node-lease", &coordinationv1.Lease{})
		done <- err
	}()
	<-arrived
	c.CloseConnections()
	if err := <-done; err == nil || strings.Contains(err.Error(), "deadline exceeded") { // it would end by itself
		t.Errorf("the call ended with %v", err)
	}
}

// reviewer is an API server that responds to reviews and has every pod.
type reviewer struct{ t *testing.T }

func (r reviewer) RoundTrip(req *http.Request) (*http.Response, error) {
	var answer runtime.Object = &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	switch path.Base(req.URL.Path) {
	case "tokenreviews":
		answer = &authenticationv1.TokenReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"},
		}
	case "subjectaccessreviews":
		answer = &authorizationv1.SubjectAccessReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SubjectAccessReview"},
		}
	}
	text, err := json.Marshal(answer)
	if err != nil {
		r.t.Error(err)
	}
	return &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(bytes.NewReader(text)),
		Request:    req,
	}, nil
}

// TestReviewRateLimitIsSeparate: any client of the node's port can cause token reviews. They must not delay calls for
// pods or access reviews.
func TestReviewRateLimitIsSeparate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewFor(&rest.Config{
			Host:      "http://api",
			Transport: reviewer{t},
		}, Config{Version: "v1", ContentType: "application/json", QPS: 1, Burst: 1})
		if err != nil {
			t.Fatal(err)
		}
		var strangers sync.WaitGroup
		began := time.Now()
		for i := range 20 {
			strangers.Go(func() {
				if _, err := c.ReviewToken(t.Context(), &authenticationv1.TokenReview{
					Spec: authenticationv1.TokenReviewSpec{Token: strconv.Itoa(i)},
				}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait() // all token reviews but one wait for the rate limiter
		if _, err := c.Pods.GetPod(t.Context(), "ns", "p"); err != nil {
			t.Error(err)
		}
		if _, err := c.ReviewAccess(t.Context(), &authorizationv1.SubjectAccessReview{}); err != nil {
			t.Error(err)
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("the calls for a pod and a caller who is known waited %v", waited)
		}
		strangers.Wait()
		if took := time.Since(began).Round(time.Second); took != 19*time.Second {
			t.Errorf("20 reviews took %v, want one in a second", took)
		}
	})
}
