package apisuite

import (
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

func grace(seconds int64) metav1.DeleteOptions {
	return metav1.DeleteOptions{GracePeriodSeconds: &seconds}
}

func testGrace(t *testing.T, s *space) {
	ctx, pods := t.Context(), s.CoreV1().Pods(s.name)
	p := s.create(t, pod("a", "n"))
	w, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: p.ResourceVersion})
	seen := open(t, w, err)

	if err := pods.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	first := seen.nextPod(t, watch.Modified, "a")
	if first.DeletionTimestamp == nil || *first.DeletionGracePeriodSeconds != 30 || first.Generation != 2 {
		t.Fatalf("after a deletion: %+v", first.ObjectMeta)
	}
	// A longer period changes nothing, a shorter one does.
	if err := pods.Delete(ctx, "a", grace(60)); err != nil {
		t.Fatal(err)
	}
	if err := pods.Delete(ctx, "a", grace(5)); err != nil {
		t.Fatal(err)
	}
	second := seen.nextPod(t, watch.Modified, "a")
	if *second.DeletionGracePeriodSeconds != 5 || !second.DeletionTimestamp.Before(first.DeletionTimestamp) ||
		second.Generation != 2 {
		t.Errorf("after a shorter one: %+v, before %+v", second.ObjectMeta, first.ObjectMeta)
	}
	// The status of a pod that is being deleted can be written.
	_, err = pods.Patch(
		ctx,
		"a",
		types.StrategicMergePatchType,
		[]byte(`{"status":{"phase":"Succeeded"}}`),
		metav1.PatchOptions{},
		"status",
	)
	if err != nil {
		t.Error(err)
	}
	seen.nextPod(t, watch.Modified, "a")
	none := grace(0)
	none.Preconditions = metav1.NewUIDPreconditions(string(p.UID))
	if err := pods.Delete(ctx, "a", none); err != nil {
		t.Fatal(err)
	}
	// The watch shows that the period is over before it shows that the pod is gone.
	third := seen.nextPod(t, watch.Modified, "a")
	if *third.DeletionGracePeriodSeconds != 0 {
		t.Errorf("before the end: %+v", third.ObjectMeta)
	}
	last := seen.nextPod(t, watch.Deleted, "a")
	if last.UID != p.UID || last.ResourceVersion == third.ResourceVersion {
		t.Errorf("at the end: %+v", last.ObjectMeta)
	}
	_, err = pods.Get(ctx, "a", metav1.GetOptions{})
	refused(t, "get a pod that was deleted", err, http.StatusNotFound, metav1.StatusReasonNotFound)
}

func testDeleteUnbound(t *testing.T, s *space) {
	ctx, pods := t.Context(), s.CoreV1().Pods(s.name)
	s.create(t, pod("a", ""))
	if err := pods.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := pods.Get(ctx, "a", metav1.GetOptions{})
	refused(t, "get a deleted pod without a node", err, http.StatusNotFound, metav1.StatusReasonNotFound)

	s.create(t, pod("b", "n"))
	_, err = pods.Patch(
		ctx,
		"b",
		types.StrategicMergePatchType,
		[]byte(`{"status":{"phase":"Failed"}}`),
		metav1.PatchOptions{},
		"status",
	)
	if err != nil {
		t.Fatal(err)
	}
	if err := pods.Delete(ctx, "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = pods.Get(ctx, "b", metav1.GetOptions{})
	refused(t, "get a deleted pod that has failed", err, http.StatusNotFound, metav1.StatusReasonNotFound)
}

func testDeletePreconditions(t *testing.T, s *space) {
	ctx, pods := t.Context(), s.CoreV1().Pods(s.name)
	p := s.create(t, pod("a", "n"))
	other, old := types.UID("another"), "1"
	for what, pre := range map[string]*metav1.Preconditions{
		"another UID":    {UID: &other},
		"an old version": {ResourceVersion: &old},
	} {
		opts := grace(0)
		opts.Preconditions = pre
		refused(t, what, pods.Delete(ctx, "a", opts), http.StatusConflict, metav1.StatusReasonConflict)
	}
	if got := s.get(t, "a"); got.ResourceVersion != p.ResourceVersion {
		t.Errorf("changed: %+v", got.ObjectMeta)
	}
}

func testFinalizers(t *testing.T, s *space) {
	ctx, pods := t.Context(), s.CoreV1().Pods(s.name)
	held := pod("a", "n")
	held.Finalizers = []string{"suite.keelson.dev/hold"}
	s.create(t, held)
	if err := pods.Delete(ctx, "a", grace(0)); err != nil {
		t.Fatal(err)
	}
	if got := s.get(t, "a"); got.DeletionTimestamp == nil || *got.DeletionGracePeriodSeconds != 0 {
		t.Errorf("held: %+v", got.ObjectMeta)
	}
	if _, err := pods.Patch(
		ctx,
		"a",
		types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{},
	); err != nil {
		t.Fatal(err)
	}
	_, err := pods.Get(ctx, "a", metav1.GetOptions{})
	refused(t, "get a pod whose last finalizer was removed", err, http.StatusNotFound, metav1.StatusReasonNotFound)
}

func testDeleteCollection(t *testing.T, s *space) {
	ctx, pods := t.Context(), s.CoreV1().Pods(s.name)
	s.create(t, pod("a", "n"))
	s.create(t, pod("b", "n"))
	if err := pods.DeleteCollection(ctx, grace(0), metav1.ListOptions{LabelSelector: "app=a"}); err != nil {
		t.Fatal(err)
	}
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "b" {
		t.Errorf("left %+v, %v", list, err)
	}
}
