package fakeapi_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"net/http/httptest"

	"keelson/test/kit/fakeapi"
)

// formats are the encodings that a client can ask for.
var formats = map[string]rest.ContentConfig{
	"json": {ContentType: "application/json"},
	"protobuf": {
		ContentType:        runtime.ContentTypeProtobuf,
		AcceptContentTypes: runtime.ContentTypeProtobuf + ",application/json",
	},
}

// eachFormat runs a test over a real connection in both encodings.
func eachFormat(t *testing.T, test func(t *testing.T, s *fakeapi.Server, c kubernetes.Interface)) {
	for name, content := range formats {
		t.Run(name, func(t *testing.T) {
			s := fakeapi.New()
			srv := httptest.NewServer(s)
			t.Cleanup(srv.Close)
			t.Cleanup(s.CloseWatches)
			c, err := kubernetes.NewForConfig(&rest.Config{Host: srv.URL, ContentConfig: content, QPS: -1})
			if err != nil {
				t.Fatal(err)
			}
			test(t, s, c)
		})
	}
}

func pod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeName:   node,
			Containers: []corev1.Container{{Name: "main", Image: "busybox:1.37"}},
		},
	}
}

func mustCreate(t *testing.T, c kubernetes.Interface, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	got, err := c.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestPodLife(t *testing.T) {
	eachFormat(t, func(t *testing.T, s *fakeapi.Server, c kubernetes.Interface) {
		pods := c.CoreV1().Pods("default")
		p := mustCreate(t, c, pod("web", "n1"))
		if p.UID == "" || p.ResourceVersion == "" || p.CreationTimestamp.IsZero() || p.Generation != 1 {
			t.Errorf("metadata of a new pod: %+v", p.ObjectMeta)
		}
		if p.Status.Phase != corev1.PodPending || p.Status.QOSClass != corev1.PodQOSBestEffort {
			t.Errorf("status of a new pod: %+v", p.Status)
		}
		if *p.Spec.TerminationGracePeriodSeconds != 30 || p.Spec.RestartPolicy != corev1.RestartPolicyAlways ||
			p.Spec.Containers[0].ImagePullPolicy != corev1.PullIfNotPresent {
			t.Errorf("defaults of a new pod: %+v", p.Spec)
		}
		_, err := pods.Create(t.Context(), pod("web", "n1"), metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			t.Errorf("a second pod of the same name: %v", err)
		}
		_, err = pods.Get(t.Context(), "none", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), `pods "none" not found`) {
			t.Errorf("a pod that is not there: %v", err)
		}

		// A status patch changes the status and nothing else.
		patch := []byte(`{"metadata":{"uid":"` + string(p.UID) +
			`"},"spec":{"hostname":"x"},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
		q, err := pods.Patch(t.Context(), "web", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil {
			t.Fatal(err)
		}
		if q.Status.Phase != corev1.PodRunning || q.Status.QOSClass != corev1.PodQOSBestEffort ||
			q.Spec.Hostname != "" || q.ResourceVersion == p.ResourceVersion || q.Generation != 1 {
			t.Errorf("after a status patch: %+v", q)
		}
		// Conditions merge by type.
		q, err = pods.Patch(t.Context(), "web", types.StrategicMergePatchType,
			[]byte(`{"status":{"conditions":[{"type":"Initialized","status":"True"}]}}`), metav1.PatchOptions{},
			"status")
		if err != nil || len(q.Status.Conditions) != 2 {
			t.Errorf("after a second patch: %+v, %v", q.Status.Conditions, err)
		}
		// A patch that changes nothing writes nothing.
		r, err := pods.Patch(t.Context(), "web", types.StrategicMergePatchType,
			[]byte(`{"status":{"phase":"Running"}}`), metav1.PatchOptions{}, "status")
		if err != nil || r.ResourceVersion != q.ResourceVersion {
			t.Errorf("an empty patch: version %s → %s, %v", q.ResourceVersion, r.ResourceVersion, err)
		}
		_, err = pods.Patch(t.Context(), "web", types.StrategicMergePatchType, []byte(`{"metadata":{"uid":"other"}}`),
			metav1.PatchOptions{}, "status")
		if !apierrors.IsInvalid(err) {
			t.Errorf("a patch for another pod of that name: %v", err)
		}
		// An update keeps the status and checks the resource version.
		stale := p.DeepCopy()
		stale.Labels["x"] = "y"
		if _, err := pods.Update(t.Context(), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("a stale update: %v", err)
		}
		fresh := r.DeepCopy()
		fresh.Status.Phase = corev1.PodFailed
		fresh.Spec.Containers[0].Image = "busybox:2"
		r, err = pods.Update(t.Context(), fresh, metav1.UpdateOptions{})
		if err != nil || r.Status.Phase != corev1.PodRunning || r.Generation != 2 {
			t.Errorf("after an update: phase %s, generation %d, %v", r.Status.Phase, r.Generation, err)
		}

		// Deletion is graceful and ends with grace 0.
		if err := pods.Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		r = s.Pod("default", "web")
		if r == nil || r.DeletionTimestamp == nil || *r.DeletionGracePeriodSeconds != 30 {
			t.Fatalf("a pod being deleted: %+v", r)
		}
		if left := time.Until(r.DeletionTimestamp.Time); left < 25*time.Second || left > 31*time.Second {
			t.Errorf("it ends in %v", left)
		}
		longer, shorter, none := int64(60), int64(5), int64(0)
		for _, g := range []int64{longer, shorter} {
			if err := pods.Delete(t.Context(), "web", metav1.DeleteOptions{GracePeriodSeconds: &g}); err != nil {
				t.Fatal(err)
			}
		}
		if got := *s.Pod("default", "web").DeletionGracePeriodSeconds; got != shorter {
			t.Errorf("grace %d, want the shorter one, %d", got, shorter)
		}
		other := types.UID("other")
		err = pods.Delete(t.Context(), "web", metav1.DeleteOptions{
			GracePeriodSeconds: &none,
			Preconditions:      &metav1.Preconditions{UID: &other},
		})
		if !apierrors.IsConflict(err) || s.Pod("default", "web") == nil {
			t.Errorf("deleting another pod of that name: %v", err)
		}
		err = pods.Delete(t.Context(), "web", metav1.DeleteOptions{
			GracePeriodSeconds: &none,
			Preconditions:      &metav1.Preconditions{UID: &p.UID},
		})
		if err != nil || s.Pod("default", "web") != nil {
			t.Errorf("the final deletion: %v", err)
		}
	})
}

func TestDeletionWithoutNode(t *testing.T) {
	s := fakeapi.New()
	c := s.Client()
	mustCreate(t, c, pod("waiting", ""))
	if err := c.CoreV1().Pods("default").Delete(t.Context(), "waiting", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if s.Pod("default", "waiting") != nil {
		t.Error("a pod that no node has waits for a kubelet")
	}
	held := pod("held", "n1")
	held.Finalizers = []string{"example.com/hold"}
	mustCreate(t, c, held)
	none := int64(0)
	if err := c.CoreV1().Pods("default").Delete(t.Context(),
		"held", metav1.DeleteOptions{GracePeriodSeconds: &none}); err != nil {
		t.Fatal(err)
	}
	if s.Pod("default", "held") == nil {
		t.Fatal("a finalizer did not hold the pod")
	}
	if _, err := c.CoreV1().Pods("default").Patch(t.Context(), "held", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if s.Pod("default", "held") != nil {
		t.Error("without its finalizer the pod is still there")
	}
}

func TestWatch(t *testing.T) {
	eachFormat(t, func(t *testing.T, s *fakeapi.Server, c kubernetes.Interface) {
		pods := c.CoreV1().Pods("")
		mustCreate(t, c, pod("other", "n2"))
		list, err := pods.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=n1"})
		if err != nil || len(list.Items) != 0 {
			t.Fatalf("%d pods, %v", len(list.Items), err)
		}
		w, err := pods.Watch(t.Context(), metav1.ListOptions{
			FieldSelector:   "spec.nodeName=n1",
			ResourceVersion: list.ResourceVersion,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		next := func(kind watch.EventType, name string) *corev1.Pod {
			t.Helper()
			e := <-w.ResultChan()
			p, ok := e.Object.(*corev1.Pod)
			if !ok || e.Type != kind || p.Name != name {
				t.Fatalf("event %s %+v, want %s %s", e.Type, e.Object, kind, name)
			}
			return p
		}
		mustCreate(t, c, pod("unscheduled", ""))
		mustCreate(t, c, pod("mine", "n1"))
		next(watch.Added, "mine")
		// A pod that is bound to the node appears.
		if err := c.CoreV1().Pods("default").Bind(t.Context(), &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: "unscheduled"}, Target: corev1.ObjectReference{Name: "n1"},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		next(watch.Added, "unscheduled")
		if err := c.CoreV1().Pods("default").Delete(t.Context(), "mine", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if p := next(watch.Modified, "mine"); p.DeletionTimestamp == nil {
			t.Error("no deletion timestamp")
		}
		none := int64(0)
		if err := c.CoreV1().Pods("default").Delete(t.Context(),
			"mine", metav1.DeleteOptions{GracePeriodSeconds: &none}); err != nil {
			t.Fatal(err)
		}
		if p := next(watch.Modified, "mine"); *p.DeletionGracePeriodSeconds != 0 {
			t.Errorf("%d s are left", *p.DeletionGracePeriodSeconds)
		}
		next(watch.Deleted, "mine")

		s.Compact()
		old, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
		if err == nil {
			old.Stop()
		}
		if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			t.Errorf("a watch from before the compaction: %v", err)
		}
		if _, err := pods.List(t.Context(),
			metav1.ListOptions{FieldSelector: "spec.nonsense=1"}); !apierrors.IsBadRequest(err) {
			t.Errorf("an unknown field: %v", err)
		}
	})
}

// TestReflector checks that a client's cache stays up to date over closed watches and a compaction, with and
// without the streaming list.
func TestReflector(t *testing.T) {
	eachFormat(t, func(t *testing.T, s *fakeapi.Server, c kubernetes.Interface) {
		mustCreate(t, c, pod("a", "n1"))
		seen := make(chan string, 100)
		lw := cache.NewListWatchFromClient(c.CoreV1().RESTClient(),
			"pods", "", fields.OneTermEqualSelector("spec.nodeName", "n1"))
		_, inf := cache.NewInformerWithOptions(cache.InformerOptions{ListerWatcher: lw, ObjectType: &corev1.Pod{},
			Handler: cache.ResourceEventHandlerFuncs{
				AddFunc:    func(o any) { seen <- "+" + o.(*corev1.Pod).Name },
				DeleteFunc: func(o any) { seen <- "-" + o.(*corev1.Pod).Name },
			}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); inf.RunWithContext(ctx) }()
		defer func() { cancel(); <-done }()
		want := func(what string) {
			t.Helper()
			select {
			case got := <-seen:
				if got != what {
					t.Fatalf("%s, want %s", got, what)
				}
			case <-time.After(time.Minute):
				t.Fatalf("waited in vain for %s", what)
			}
		}
		want("+a")
		mustCreate(t, c, pod("b", "n1"))
		want("+b")
		s.CloseWatches()
		mustCreate(t, c, pod("c", "n1"))
		want("+c")
		none := int64(0)
		if err := c.CoreV1().Pods("default").Delete(t.Context(),
			"a", metav1.DeleteOptions{GracePeriodSeconds: &none}); err != nil {
			t.Fatal(err)
		}
		want("-a")
	})
}

func TestInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakeapi.New()
		c := s.Client()
		w, err := c.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{AllowWatchBookmarks: true})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if e := <-w.ResultChan(); e.Type != watch.Bookmark || time.Since(begin) != time.Minute {
			t.Errorf("%s after %v", e.Type, time.Since(begin))
		}
		if s.Watches("pods") != 1 {
			t.Errorf("%d watches", s.Watches("pods"))
		}
		w.Stop()
		synctest.Wait()
		if s.Watches("pods") != 0 {
			t.Error("the watch goes on after its client has gone")
		}

		ready := func(p *corev1.Pod) bool { return p != nil && p.Status.Phase == corev1.PodRunning }
		go func() {
			time.Sleep(time.Hour)
			mustCreate(t, c, pod("late", "n1"))
			if _, err := c.CoreV1().Pods("default").Patch(t.Context(), "late", types.MergePatchType,
				[]byte(`{"status":{"phase":"Running"}}`), metav1.PatchOptions{}, "status"); err != nil {
				t.Error(err)
			}
		}()
		if p, err := s.WaitPod(t.Context(), "default", "late", ready); err != nil || p.Name != "late" {
			t.Errorf("%v, %v", p, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := s.WaitPod(ctx, "default", "never", ready); err == nil ||
			!strings.Contains(err.Error(), "there is none") {
			t.Errorf("waiting for a pod that never comes: %v", err)
		}
	})
}

func TestNodeAndLease(t *testing.T) {
	eachFormat(t, func(t *testing.T, s *fakeapi.Server, c kubernetes.Interface) {
		if _, err := c.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		n, err := c.CoreV1().Nodes().PatchStatus(t.Context(),
			"n1", []byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`))
		if err != nil || len(n.Status.Conditions) != 1 || s.Node("n1").Status.Conditions[0].Type != corev1.NodeReady {
			t.Errorf("%+v, %v", n, err)
		}
		leases := c.CoordinationV1().Leases("kube-node-lease")
		holder := "n1"
		l, err := leases.Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "n1"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		now := metav1.NowMicro()
		l.Spec.RenewTime = &now
		if l, err = leases.Update(t.Context(), l, metav1.UpdateOptions{}); err != nil || l.Spec.RenewTime == nil {
			t.Errorf("%+v, %v", l, err)
		}
		l.ResourceVersion = "1"
		if _, err := leases.Update(t.Context(), l, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("a stale lease: %v", err)
		}
	})
}

func TestTokensAndReviews(t *testing.T) {
	eachFormat(t, func(t *testing.T, s *fakeapi.Server, c kubernetes.Interface) {
		p := mustCreate(t, c, pod("web", "n1"))
		seconds := int64(1200)
		ask := func(uid types.UID) (*authenticationv1.TokenRequest, error) {
			return c.CoreV1().ServiceAccounts("default").CreateToken(t.Context(),
				"default", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
					Audiences: []string{"vault"}, ExpirationSeconds: &seconds,
					BoundObjectRef: &authenticationv1.BoundObjectReference{
						Kind:       "Pod",
						APIVersion: "v1",
						Name:       "web",
						UID:        uid,
					},
				}}, metav1.CreateOptions{})
		}
		tok, err := ask(p.UID)
		if err != nil {
			t.Fatal(err)
		}
		if parts := strings.Split(tok.Status.Token, "."); len(parts) != 3 {
			t.Errorf("token %q", tok.Status.Token)
		}
		if left := time.Until(tok.Status.ExpirationTimestamp.Time); left < 1190*time.Second || left > 1200*time.Second {
			t.Errorf("it lasts %v", left)
		}
		if _, err := ask("other"); !apierrors.IsConflict(err) {
			t.Errorf("a token for a pod that is gone: %v", err)
		}

		s.AddToken("secret", authenticationv1.UserInfo{Username: "alice"})
		for token, want := range map[string]bool{"secret": true, "guess": false} {
			r, err := c.AuthenticationV1().TokenReviews().Create(t.Context(),
				&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}},
				metav1.CreateOptions{})
			if err != nil || r.Status.Authenticated != want || want && r.Status.User.Username != "alice" {
				t.Errorf("%s: %+v, %v", token, r, err)
			}
		}
		s.Authorize(func(a authorizationv1.SubjectAccessReviewSpec) bool { return a.ResourceAttributes.Verb == "get" })
		for verb, want := range map[string]bool{"get": true, "delete": false} {
			r, err := c.AuthorizationV1().SubjectAccessReviews().Create(t.Context(),
				&authorizationv1.SubjectAccessReview{
					Spec: authorizationv1.SubjectAccessReviewSpec{
						User:               "alice",
						ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Resource: "nodes"},
					},
				}, metav1.CreateOptions{})
			if err != nil || r.Status.Allowed != want {
				t.Errorf("%s: %+v, %v", verb, r, err)
			}
		}
	})
}

func TestQOS(t *testing.T) {
	list := func(cpu, mem string) corev1.ResourceList {
		out := corev1.ResourceList{}
		if cpu != "" {
			out[corev1.ResourceCPU] = resource.MustParse(cpu)
		}
		if mem != "" {
			out[corev1.ResourceMemory] = resource.MustParse(mem)
		}
		return out
	}
	c := fakeapi.New().Client()
	for want, r := range map[corev1.PodQOSClass]corev1.ResourceRequirements{
		corev1.PodQOSBestEffort: {},
		corev1.PodQOSBurstable:  {Requests: list("100m", "")},
		corev1.PodQOSGuaranteed: {Limits: list("1", "1Gi")},
	} {
		p := pod(strings.ToLower(string(want)), "n1")
		p.Spec.Containers[0].Resources = r
		if got := mustCreate(t, c, p).Status.QOSClass; got != want {
			t.Errorf("%+v is %s, want %s", r, got, want)
		}
	}
}

func TestGeneratedNamesAndEvents(t *testing.T) {
	s := fakeapi.New()
	c := s.Client()
	names := map[string]bool{}
	for range 3 {
		p := pod("", "n1")
		p.GenerateName = "web-"
		names[mustCreate(t, c, p).Name] = true
	}
	if len(names) != 3 {
		t.Errorf("names %v", names)
	}
	if _, err := c.CoreV1().Pods("nowhere").Create(t.Context(),
		func() *corev1.Pod { p := pod("x", "n1"); p.Namespace = "nowhere"; return p }(),
		metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a pod in a namespace that is not there: %v", err)
	}
	e := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "web.1", Namespace: "default"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "web"},
		Reason:         "Started",
		Count:          1,
	}
	if _, err := c.CoreV1().Events("default").Create(t.Context(), e, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch, err := json.Marshal(map[string]any{"count": 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CoreV1().Events("default").Patch(t.Context(), "web.1", types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := c.CoreV1().Events("").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=web"})
	if err != nil || len(got.Items) != 1 || got.Items[0].Count != 2 {
		t.Errorf("%+v, %v", got, err)
	}
}
