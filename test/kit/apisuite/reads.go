package apisuite

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

func version(t *testing.T, text string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func testList(t *testing.T, s *space) {
	last := s.create(t, pod("b", "n1"))
	for name, node := range map[string]string{"a": "n1", "c": "n2", "d": ""} {
		last = s.create(t, pod(name, node))
	}
	for _, tc := range []struct{ fields, labels, want string }{
		{"", "", "[a b c d]"},
		{"spec.nodeName=n1", "", "[a b]"},
		{"metadata.name=c", "", "[c]"},
		{"spec.nodeName=", "", "[d]"},
		{"spec.nodeName!=n1", "app in (a,c)", "[c]"},
		{"", "app!=a,app!=b", "[c d]"},
		{"status.phase=Running", "", "[]"},
	} {
		list, err := s.CoreV1().
			Pods(s.name).
			List(t.Context(), metav1.ListOptions{FieldSelector: tc.fields, LabelSelector: tc.labels})
		if err != nil {
			t.Fatal(err)
		}
		names := []string{}
		for _, p := range list.Items {
			names = append(names, p.Name)
		}
		if got := fmt.Sprint(names); got != tc.want {
			t.Errorf("%q, %q: %s, want %s", tc.fields, tc.labels, got, tc.want)
		}
		if version(t, list.ResourceVersion) < version(t, last.ResourceVersion) && tc.fields == "" {
			t.Errorf("the list is of version %s, its last pod of %s", list.ResourceVersion, last.ResourceVersion)
		}
	}
}

func testWatch(t *testing.T, s *space) {
	ctx, pods := t.Context(), s.CoreV1().Pods(s.name)
	s.create(t, pod("a", "n"))
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b := s.create(t, pod("b", "n")) // before the watch begins
	w, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true})
	seen := open(t, w, err)
	added := seen.nextPod(t, watch.Added, "b")
	if added.ResourceVersion != b.ResourceVersion || version(t, b.ResourceVersion) <= version(t, list.ResourceVersion) {
		t.Errorf("version %s, want %s, after %s", added.ResourceVersion, b.ResourceVersion, list.ResourceVersion)
	}
	if _, err := pods.Patch(
		ctx,
		"a",
		types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"x":"y"}}}`),
		metav1.PatchOptions{},
	); err != nil {
		t.Fatal(err)
	}
	if got := seen.nextPod(t, watch.Modified, "a"); got.Labels["x"] != "y" ||
		version(t, got.ResourceVersion) <= version(t, b.ResourceVersion) {
		t.Errorf("modified %+v", got.ObjectMeta)
	}

	// A watch without a version begins with the objects that are there.
	w, err = pods.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=b"})
	seen = open(t, w, err)
	seen.nextPod(t, watch.Added, "b")

	// A watch is closed when its timeout has passed.
	short := int64(1)
	w, err = pods.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion, TimeoutSeconds: &short})
	for range open(t, w, err).ResultChan() {
	}
}

func testWatchNode(t *testing.T, s *space) {
	ctx, pods := t.Context(), s.CoreV1().Pods(s.name)
	a := s.create(t, pod("a", ""))
	w, err := pods.Watch(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=n", ResourceVersion: a.ResourceVersion})
	node := open(t, w, err)
	w, err = pods.Watch(ctx, metav1.ListOptions{LabelSelector: "app=a", ResourceVersion: a.ResourceVersion})
	label := open(t, w, err)
	err = pods.Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: s.name},
		Target:     corev1.ObjectReference{Kind: "Node", Name: "n"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.nextPod(t, watch.Added, "a")
	label.nextPod(t, watch.Modified, "a")
	// A pod that no longer matches the selector is reported as deleted.
	if _, err := pods.Patch(
		ctx,
		"a",
		types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"app":"z"}}}`),
		metav1.PatchOptions{},
	); err != nil {
		t.Fatal(err)
	}
	changed := node.nextPod(t, watch.Modified, "a")
	if gone := label.nextPod(t, watch.Deleted, "a"); gone.Labels["app"] != "a" ||
		gone.ResourceVersion != changed.ResourceVersion {
		t.Errorf("deleted for the watch: %+v", gone.ObjectMeta)
	}
}

func testStreamingList(t *testing.T, s *space) {
	ctx, pods := t.Context(), s.CoreV1().Pods(s.name)
	s.create(t, pod("a", "n"))
	b := s.create(t, pod("b", "n"))
	yes := true
	w, err := pods.Watch(ctx, metav1.ListOptions{
		SendInitialEvents:    &yes,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		AllowWatchBookmarks:  true,
	})
	seen := open(t, w, err)
	seen.nextPod(t, watch.Added, "a")
	seen.nextPod(t, watch.Added, "b")
	mark, ok := seen.next(t, watch.Bookmark).Object.(*corev1.Pod)
	if !ok || mark.Annotations[metav1.InitialEventsAnnotationKey] != "true" ||
		version(t, mark.ResourceVersion) < version(t, b.ResourceVersion) {
		t.Errorf("bookmark %+v, after %s", mark, b.ResourceVersion)
	}
	s.create(t, pod("c", "n"))
	seen.nextPod(t, watch.Added, "c")

	_, err = pods.Watch(ctx, metav1.ListOptions{SendInitialEvents: &yes})
	refused(t, "a streaming list without a match", err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
}

// testExpired reads either answer that a server may give: a refusal, or an event.
func testExpired(t *testing.T, s *space) {
	w, err := s.CoreV1().Pods(s.name).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
	if err == nil {
		err = apierrors.FromObject(open(t, w, nil).next(t, watch.Error).Object)
	}
	refused(t, "a watch from the first version", err, http.StatusGone, metav1.StatusReasonExpired)
}
