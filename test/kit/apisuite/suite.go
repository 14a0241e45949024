package apisuite

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// patience bounds every wait.
const patience = time.Minute

// Run runs the suite with a client that may do everything.
func Run(t *testing.T, client kubernetes.Interface) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *space)
	}{
		{"error statuses", testErrors},
		{"names and defaults", testCreate},
		{"an update of an old version is a conflict", testConflict},
		{"patches", testPatch},
		{"preconditions of patches", testPatchPreconditions},
		{"the status subresource", testStatus},
		{"a write without a change", testUnchanged},
		{"deletion with a grace period", testGrace},
		{"deletion without a node", testDeleteUnbound},
		{"deletion with preconditions", testDeletePreconditions},
		{"deletion with finalizers", testFinalizers},
		{"deletion of a collection", testDeleteCollection},
		{"binding", testBinding},
		{"lists and selectors", testList},
		{"a watch from a list on", testWatch},
		{"a watch of the pods of a node", testWatchNode},
		{"a streaming list", testStreamingList},
		{"a watch from a version that is too old", testExpired},
		{"events", testEvents},
		{"leases", testLease},
		{"nodes", testNode},
		{"tokens", testToken},
		{"certificate signing requests", testSigningRequest},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, newSpace(t, client)) })
	}
}

// account is the service account of the pods. The suite makes it, because that of every
// namespace is made by a controller.
const account = "suite"

// space is the namespace of one case.
type space struct {
	kubernetes.Interface
	name string
	uid  string // distinguishes the cluster-wide objects of the case from others
}

func newSpace(t *testing.T, client kubernetes.Interface) *space {
	t.Helper()
	ns, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "suite-"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := &space{client, ns.Name, string(ns.UID)}
	t.Cleanup(func() {
		// The test's own context has ended.
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := client.CoreV1().Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete namespace: %v", err)
		}
	})
	_, err = client.CoreV1().ServiceAccounts(ns.Name).Create(t.Context(), &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: account},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pod is a pod of one container; node may be empty.
func pod(name, node string) *corev1.Pod {
	mount := false
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeName:                     node,
			SchedulerName:                "none",
			ServiceAccountName:           account,
			AutomountServiceAccountToken: &mount,
			Containers:                   []corev1.Container{{Name: "main", Image: "app:1"}},
		},
	}
}

// create creates a pod.
func (s *space) create(t *testing.T, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	p, err := s.CoreV1().Pods(s.name).Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// get reads a pod.
func (s *space) get(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	p, err := s.CoreV1().Pods(s.name).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// refused fails unless the error is a status of this code and reason.
func refused(t *testing.T, what string, err error, code int32, reason metav1.StatusReason) {
	t.Helper()
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		t.Errorf("%s: %v, want a status of %d %s", what, err, code, reason)
		return
	}
	if s := status.Status(); s.Code != code || s.Reason != reason {
		t.Errorf("%s: %d %s: %s; want %d %s", what, s.Code, s.Reason, s.Message, code, reason)
	}
}

// stream is an open watch.
type stream struct {
	watch.Interface
}

func open(t *testing.T, w watch.Interface, err error) stream {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return stream{w}
}

// next is the next event that is not a bookmark.
func (w stream) next(t *testing.T, wanted watch.EventType) watch.Event {
	t.Helper()
	end := time.After(patience)
	for {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				t.Fatalf("the watch has ended, want %s", wanted)
			}
			if e.Type == watch.Bookmark && wanted != watch.Bookmark {
				continue
			}
			if e.Type != wanted {
				t.Fatalf("%s of %+v, want %s", e.Type, e.Object, wanted)
			}
			return e
		case <-end:
			t.Fatalf("no event within %v, want %s", patience, wanted)
		}
	}
}

// nextPod is the pod of the next event.
func (w stream) nextPod(t *testing.T, wanted watch.EventType, name string) *corev1.Pod {
	t.Helper()
	p, ok := w.next(t, wanted).Object.(*corev1.Pod)
	if !ok || p.Name != name {
		t.Fatalf("%s of %+v, want that of pod %s", wanted, p, name)
	}
	return p
}
